"""Finds the topic of sentences of any length, and which words decide it.

  python -m examples.sequences

A sentence has four words of its topic, up to two of each other topic, and some
of no topic, in random order. Each word is a capsule. Padding is masked.
"""

import keras
import numpy as np

import layers

TOPICS = {
    "weather": ("rain", "sun", "wind", "cloud", "storm", "snow"),
    "food": ("bread", "soup", "salt", "apple", "rice", "cheese"),
    "sport": ("ball", "race", "team", "goal", "swim", "coach"),
}
OTHERS = ("the", "a", "we", "and", "then", "today", "was", "very", "with")
WORDS = ("", *OTHERS, *(w for words in TOPICS.values() for w in words))
LENGTH, ATOMS = 20, 8


def sentences(count):
    """Returns word indices [count, LENGTH] (0: padding) and topics [count]."""
    rng = np.random.default_rng(0)
    topics = rng.integers(len(TOPICS), size=count)
    numbers = np.zeros((count, LENGTH), "int32")
    for row, topic in zip(numbers, topics, strict=True):
        words = [*rng.choice(OTHERS, rng.integers(12))]
        for other, choices in enumerate(TOPICS.values()):
            size = 4 if other == topic else rng.integers(3)
            words += [*rng.choice(choices, size)]
        row[: len(words)] = [WORDS.index(w) for w in rng.permutation(words)]
    return numbers, topics


def networks():
    """Yields compiled networks whose second layer routes words to topics."""
    shared = layers.Capsule(len(TOPICS), ATOMS, share_weights=True)
    vector = layers.VectorRouting(len(TOPICS), 1, any_number=True)
    for routing, to_logits, loss in (
        (shared, layers.Length(), layers.margin_loss),
        (vector, keras.layers.Flatten(), layers.softmax_loss),
    ):
        words = keras.layers.Embedding(len(WORDS), ATOMS, mask_zero=True)
        network = keras.Sequential([words, routing, to_logits])
        network.compile(keras.optimizers.Adam(0.01), loss)
        yield network


def weights(network, numbers):
    """Maps word indices [B, n] to weights [B, n, topics] for the topics."""
    embedding, routing, _ = network.layers
    words = embedding(numbers)
    if isinstance(routing, layers.VectorRouting):
        return np.abs(routing.credit(words))
    return np.asarray(routing.couplings(words))[-1]


def main():
    """Trains the networks and prints how they route a test sentence."""
    keras.utils.set_random_seed(0)
    numbers, topics = sentences(3000)
    one_hot = np.eye(len(TOPICS))[topics]
    for network in networks():
        network.fit(numbers[1000:], one_hot[1000:], epochs=10, verbose=0)
        found = network.predict(numbers[:1000], verbose=0).argmax(axis=1)
        accuracy = np.mean(found == topics[:1000])
        print(f"{accuracy:.1%} of 1,000 test sentences are right.", end=" ")
        (of_topics,) = weights(network, numbers[:1])
        words = zip(numbers[0], of_topics[:, found[0]], strict=True)
        texts = [f"{WORDS[n]} {weight:.2f}" for n, weight in words if n]
        print(f"{[*TOPICS][found[0]]}:", *texts)


if __name__ == "__main__":
    main()

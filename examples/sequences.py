"""Finds the topic of sentences of any length, and the words that decided it.

python -m examples.sequences

A sentence has four words of its topic, up to two of each other topic and some
of no topic, in random order. Its words are capsules, padded and masked.
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


def sentences(count, seed=0):
    """Numbers of words [count, LENGTH], 0 for padding, and topics [count]."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(len(TOPICS), size=count)
    numbers = np.zeros((count, LENGTH), "int32")
    for row, topic in zip(numbers, topics, strict=True):
        words = [*rng.choice(OTHERS, rng.integers(12))]
        for other, choices in enumerate(TOPICS.values()):
            size = 4 if other == topic else rng.integers(3)
            words += [*rng.choice(choices, size)]
        row[: len(words)] = [WORDS.index(w) for w in rng.permutation(words)]
    return numbers, topics


def classifier(routing, loss, to_logits):
    """A compiled network of an embedding and a layer that routes."""
    numbers = keras.Input((None,), dtype="int32")
    words = keras.layers.Embedding(
        len(WORDS), ATOMS, "glorot_normal", mask_zero=True
    )
    network = keras.Model(numbers, to_logits(routing(words(numbers))))
    network.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return network


def networks():
    """Yields networks, and functions for weights of words [B, I, topics]."""
    shared = layers.Capsule(len(TOPICS), ATOMS, share_weights=True)
    network = classifier(shared, layers.margin_loss, layers.Length())
    yield network, lambda *words: shared.couplings(*words)[-1]
    vector = layers.VectorRouting(len(TOPICS), 1, any_number=True)
    logits = keras.layers.Flatten()  # a capsule of one atom is a logit
    network = classifier(vector, layers.softmax_loss, logits)
    yield network, lambda *words: abs(vector.credit(*words))


def main():
    """Trains the networks and prints how they route a test sentence."""
    keras.utils.set_random_seed(0)
    numbers, topics = sentences(3000)
    one_hot = np.eye(len(TOPICS))[topics]
    for network, weigh in networks():
        network.fit(numbers[1000:], one_hot[1000:], epochs=10, verbose=0)
        test = network.evaluate(numbers[:1000], one_hot[:1000], verbose=0)
        print(f"{test[1]:.1%} of 1,000 test sentences are right.", end=" ")
        first = numbers[:1]
        topic = np.argmax(network.predict_on_batch(first))
        found = np.asarray(weigh(network.layers[1](first), first > 0))
        print(f"{[*TOPICS][topic]}:", end="")
        for number, share in zip(first[0], found[0, :, topic], strict=True):
            print(f" {WORDS[number]} {share:.2f}" if number else "", end="")
        print()


if __name__ == "__main__":
    main()

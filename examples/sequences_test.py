import keras
import numpy as np

from examples import sequences


def test_words_of_the_topic_count_most():
    keras.utils.set_random_seed(0)
    numbers, topics = sequences.sentences(400)
    one_hot = np.eye(3)[topics]
    words = np.asarray(sequences.WORDS)[numbers]
    of_topic = np.stack(
        [np.isin(words, topic) for topic in sequences.TOPICS.values()], axis=-1
    )
    assert (of_topic.sum(axis=1).argmax(axis=1) == topics).all()
    pads = np.pad(numbers, ((0, 0), (0, 3)))
    for network in sequences.networks():
        network.fit(numbers[100:], one_hot[100:], epochs=12, verbose=0)
        outputs = network.predict_on_batch(numbers)
        assert (outputs.argmax(axis=1) == topics)[:100].mean() > 0.9
        np.testing.assert_allclose(
            network.predict_on_batch(pads), outputs, atol=1e-5
        )
        found = sequences.weights(network, pads)
        assert not found[pads == 0].any()
        rows = np.arange(400)
        own = found[rows, :20, topics]
        mean = own[of_topic[rows, :, topics]].mean()
        assert mean > 1.5 * own[(numbers > 0) & ~of_topic.any(-1)].mean()

import numpy as np
import pytest
from keras import ops

from input_data import keys
from layers.networks.efficient_capsule import layout
from testing import numpy_oracle
from testing.small_models import SMALL, example_batch, small_model

RNG = np.random.default_rng(2)


@pytest.mark.parametrize(
    ("size", "strides", "kernel"),
    [
        (28, (1, 1, 1, 2), 9),  # MNIST
        (36, (1, 1, 2, 2), 5),  # MultiMNIST
        (48, (2, 1, 1, 2), 8),  # smallNORB
        (96, (2, 2, 2, 2), 4),
    ],
)
def test_layout_of_the_published_sizes_and_of_others(size, strides, kernel):
    first = 7 if size >= 48 else 5
    expected = (first, 3, 3, 3), strides, (kernel, kernel)
    assert layout(size, size) == expected


@pytest.mark.parametrize("normalization", ["batch", "instance"])
def test_the_network_equals_numpy(normalization):
    model = small_model("efficient_capsule", normalization=normalization)
    layer = model.network.get_layer
    norms = [layer(f"norm{number}") for number in range(1, 5)]
    for norm in norms:
        norm.set_weights([RNG.uniform(0.5, 1.5, w.shape) for w in norm.weights])
    x, _ = example_batch(SMALL, 1, size=2)
    outputs = {k: ops.convert_to_numpy(v) for k, v in model(x).items()}
    hidden = x[keys.IMAGES].astype("float64")
    for number, norm in enumerate(norms, 1):
        kernel, bias = layer(f"conv{number}").get_weights()
        strides = layer(f"conv{number}").strides[0]
        hidden = numpy_oracle.convolution(hidden, kernel, strides, "VALID")
        hidden += bias
        weights = norm.get_weights()
        if normalization == "batch":
            hidden = np.maximum(hidden, 0)
            gamma, beta, mean, variance = weights
        else:
            hidden = np.where(hidden > 0, hidden, 0.3 * hidden)
            gamma, beta = weights
            mean = hidden.mean(axis=(1, 2), keepdims=True)
            variance = hidden.var(axis=(1, 2), keepdims=True)
        hidden = (hidden - mean) / np.sqrt(variance + 1e-3) * gamma + beta

    def copies(name):
        return [np.stack([w, w]) for w in layer(name).get_weights()]

    primary = numpy_oracle.depthwise_capsule(
        hidden, *copies("primary_capsule"), 2
    )
    capsules = numpy_oracle.self_attention_capsule(
        primary, *copies("class_capsule")
    )
    np.testing.assert_allclose(outputs[keys.CAPSULES], capsules, atol=1e-5)
    lengths = np.linalg.norm(capsules, axis=-1)
    np.testing.assert_allclose(outputs[keys.LOGITS], lengths, atol=1e-5)

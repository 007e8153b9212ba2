import numpy as np
import pytest

from testing.tiny_subject import decoder_in_numpy, make_subject
from visualisation import reconstructions


@pytest.mark.parametrize("num_targets", [1, 2])
def test_panels_of_right_and_wrong_predictions(num_targets):
    subject = make_subject(num_targets)
    right, wrong = subject.right_and_wrong(1)
    suffixes = [""] if num_targets == 1 else [" 1", " 2"]
    for example in right + wrong:
        images = reconstructions.panels(subject, example)
        np.testing.assert_array_equal(images["input"], example.image)
        for index, suffix in enumerate(suffixes):
            if num_targets == 1:
                assert "target" not in images  # the input
            else:
                np.testing.assert_array_equal(
                    images[f"target{suffix}"], example.targets[index]
                )
            for row, label in (
                ("remake", example.labels[index]),
                ("remake of\nprediction", example.predictions[index]),
            ):
                image = images[row + suffix]
                if example.is_right and "prediction" in row:
                    assert image is None
                    continue
                expected = decoder_in_numpy(
                    subject, example.capsules[label], label
                )
                np.testing.assert_allclose(image, expected, atol=1e-5)
    assert wrong

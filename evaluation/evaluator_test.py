import pytest

from devices.parallel import OneDevice
from evaluation.evaluator import predict
from testing.tiny_subject import NUM_EXAMPLES, make_subject


@pytest.mark.parametrize("remake", [True, False])
def test_the_loss_is_that_of_training(remake):
    subject = make_subject(2, remake=remake)
    predictor = OneDevice().predictor(subject.model)
    found = predict(predictor, subject.pipeline, 100)
    assert found.losses.shape == (NUM_EXAMPLES,)
    ((x, y),) = subject.pipeline.evaluation_batches(NUM_EXAMPLES)
    subject.model.compile()
    logs = subject.model.test_on_batch(x, y, return_dict=True)
    assert found.score.loss == pytest.approx(float(logs["loss"]), rel=1e-5)

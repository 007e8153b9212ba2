import numpy as np
import pytest

from common.errors import UserError
from config import Config
from input_data import features as keys
from input_data import registry
from input_data.splits import Split
from testing.mnist_files import write_mnist


def load(folder, split, **options):
    options = Config(data_dir=str(folder), **options)
    return registry.load("mnist", split, options)


def all_images(pipeline):
    return np.concatenate(
        [x[keys.IMAGES] for x, _ in pipeline.evaluation_batches(100)]
    )


def test_test_images_are_the_files_in_order(tmp_path):
    images, labels = write_mnist(tmp_path, 20, 13)["t10k"]
    pipeline = load(tmp_path, Split.TEST)
    assert pipeline.spec == keys.Spec(keys.ImageShape(28, 28, 1, 10), 1, 13, 13)
    (x, y), *more = pipeline.evaluation_batches(100)
    assert not more
    np.testing.assert_allclose(x[keys.IMAGES][..., 0], images / 255, atol=1e-7)
    np.testing.assert_array_equal(x[keys.RECONS_LABEL], labels)
    np.testing.assert_array_equal(y[keys.LOGITS], np.eye(10)[labels])
    np.testing.assert_array_equal(y[keys.RECONS], x[keys.IMAGES])


def test_validation_is_the_last_10000_training_images(tmp_path):
    images, _ = write_mnist(tmp_path, 10_007, 3, size=6)["train"]
    seen = all_images(load(tmp_path, Split.VALID_TEST))
    np.testing.assert_allclose(seen[..., 0], images[7:] / 255, atol=1e-7)
    assert load(tmp_path, Split.VALID_TRAIN).spec.num_examples == 7
    kept = all_images(load(tmp_path, Split.VALID_TRAIN))
    np.testing.assert_allclose(kept[..., 0], images[:7] / 255, atol=1e-7)


def test_eval_size_limits_the_images(tmp_path):
    write_mnist(tmp_path, 20, 13)
    assert len(all_images(load(tmp_path, Split.TEST, eval_size=5))) == 5


def test_too_few_images_to_hold_out(tmp_path):
    write_mnist(tmp_path, 20, 13)
    with pytest.raises(UserError, match=r"10000 .* to be held out, .* only 20"):
        load(tmp_path, Split.VALID_TRAIN)


def test_missing_files_are_named_with_what_is_there(tmp_path):
    with pytest.raises(UserError, match="is not a folder"):
        load(tmp_path / "none", Split.TEST)
    with pytest.raises(UserError, match=r"t10k-images-idx3-ubyte.*nothing"):
        load(tmp_path, Split.TEST)
    write_mnist(tmp_path, 20, 13)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(
        UserError, match=r"t10k-labels-idx1-ubyte.gz; it has: t10k-images"
    ):
        load(tmp_path, Split.TEST)


def test_a_folder_does_not_hide_the_packed_file(tmp_path):
    write_mnist(tmp_path, 20, 13)
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.mkdir()
    assert len(all_images(load(tmp_path, Split.TEST))) == 13
    path.with_name(f"{path.name}.gz").unlink()
    with pytest.raises(UserError, match=f"{path} cannot be read: Is a dir"):
        load(tmp_path, Split.TEST)


@pytest.mark.parametrize(
    ("split", "options", "names"),
    [
        (Split.TRAIN, {"shift": 3}, ["be train_3shifted_mnist.tfrecords.$"]),
        (
            Split.VALID_TEST,
            {},
            [
                "test_0shifted_mnist_valid.tfrecords",
                "valid_test_0shifted_mnist.tfrecords",
            ],
        ),
        (Split.TRAIN, {"num_targets": 2}, ["--data_dir=PREFIX.tfrecords@"]),
    ],
)
def test_missing_records_are_named(tmp_path, split, options, names):
    (tmp_path / "train_2shifted_mnist.tfrecords").touch()
    message = "it has: train_2shifted_mnist.tfrecords.*" + ".*".join(names)
    with pytest.raises(UserError, match=message):
        load(tmp_path, split, **options)


def test_records_of_pairs_named_without_their_number(tmp_path):
    (tmp_path / "multi.tfrecords-00000-of-00003").touch()
    message = f"--data_dir={tmp_path}/multi.tfrecords@3$"
    for data_dir in (tmp_path, tmp_path / "multi.tfrecords"):
        with pytest.raises(UserError, match=message):
            load(data_dir, Split.TRAIN, num_targets=2)
    path = tmp_path / "train_2shifted_mnist.tfrecords"
    path.touch()
    with pytest.raises(UserError, match="is not a folder: name the folder"):
        load(path, Split.TRAIN)


def test_files_that_do_not_fit_together(tmp_path):
    write_mnist(tmp_path, 20, 13)
    other = tmp_path / "other"
    other.mkdir()
    write_mnist(other, 20, 12)
    labels = tmp_path / "t10k-labels-idx1-ubyte"
    content = labels.read_bytes()
    labels.write_bytes((other / labels.name).read_bytes())
    with pytest.raises(UserError, match=r"13 images but .* 12 labels"):
        load(tmp_path, Split.TEST)
    labels.write_bytes(content[:-1] + b"\x0a")
    with pytest.raises(UserError, match="labels from 0 to 10: they must"):
        load(tmp_path, Split.TEST)


def test_empty_files(tmp_path):
    write_mnist(tmp_path, 20, 0)
    with pytest.raises(UserError, match="has no images"):
        load(tmp_path, Split.TEST)

"""The network behind the demo page: images in, values for JSON out."""

import base64
import dataclasses
import io

import keras
import numpy as np
from keras import ops
from PIL import Image

from common.errors import UserError, reading
from config import EVAL_BATCH_SIZE
from input_data import features as keys
from input_data import registry
from input_data.images import PAIR_SHIFT
from input_data.transforms import DIGIT_SIZE, center, center_of_mass
from training.checkpoint import open_checkpoint
from training.evaluate import Evaluator
from training.inference import class_names, preparation
from training.scores import predicted_classes
from visualisation.drawing import to_rgb, two_colors
from visualisation.trained_model import TrainedModel

# Of an image file that the page sends.
MAX_FILE_BYTES = 2**28
_COUPLINGS = "couplings"
_DECIMALS = 5


class Compiled(keras.Model):
    """A function of tensors that uses a model, compiled."""

    def __init__(self, model, function):
        super().__init__()
        self._model = model  # JAX needs to know its weights
        self._function = function

    def call(self, x):
        return self._function(x)


class DemoModel:
    """A trained capsule network, with test images if its data set is there.

    Test images are those of the data set that the settings name. Without
    `dataset` and `data_dir` only the embedded digits have some.

    Args:
      config: `Config` with the checkpoint and the data.

    Attributes:
      description: dict that tells the page what the network is.

    Raises:
      UserError: if the checkpoint cannot be read, has no class capsules, or
        does not fit the data.
    """

    def __init__(self, config):
        checkpoint = open_checkpoint(config.checkpoint)
        evaluator = Evaluator(config)
        settings = evaluator.settings_for(checkpoint)
        dataset = settings.dataset_name
        if config.dataset or config.data_dir or dataset == registry.EMBEDDED:
            model, pipeline = evaluator.load(checkpoint)
            shape, names = pipeline.spec.shape, pipeline.spec.names
        else:
            architecture = checkpoint.architecture
            model, pipeline = architecture.build(), None
            checkpoint.load(model, architecture)
            shape, names = architecture.shape, class_names(checkpoint)
        name = f"{dataset}, {checkpoint.path.name}"
        self._trained = TrainedModel(model, pipeline, name)
        self._num_targets = model.num_targets
        self._num_classes = len(names)
        self._size = shape.height, shape.width
        data_set = registry.find(dataset)
        self._is_centered = data_set.centred and shape.depth == 1
        self._prepare = preparation(
            dataclasses.asdict(settings), shape, data_set, model.num_targets
        )
        # Pixels from the center to each of two objects, at most.
        self._max_offset = (
            PAIR_SHIFT if settings.pairs == "overlap" else max(self._size)
        )
        self._searches = {}
        self._network = Compiled(model, self._outputs_of)
        self._decoder = model.decoder and Compiled(
            model.decoder, lambda x: model.decoder(x["capsules"], x["labels"])
        )
        image = np.zeros((*self._size, shape.depth), "float32")
        coupling_map = None
        routing = model.routing_of(image[None])
        if routing is not None:
            *_, types, classes = routing.couplings.shape
            coupling_map = covered_part(routing.receptive_field, self._size)
            coupling_map["equal"] = types / (classes + routing.leaky)
        self.description = {
            "name": name,
            "classes": list(names),
            "height": shape.height,
            "width": shape.width,
            "views": 1 if shape.depth == 3 else shape.depth,
            "targets": model.num_targets,
            "decoder": model.decoder is not None,
            "test_images": pipeline is not None,
            "centered": self._is_centered,
            "digit_size": DIGIT_SIZE,
            "max_bytes": MAX_FILE_BYTES,
            "map": coupling_map,
        }
        # Compiles everything, so that the first request need not wait.
        self.predict(image)

    def _outputs_of(self, images):
        """Dict from name to output, the first axis that of the images."""
        model = self._trained.model
        outputs = model({keys.IMAGES: images})
        routing = model.routing_of(images)
        values = {name: outputs[name] for name in (keys.LOGITS, keys.CAPSULES)}
        if routing is not None:
            values[_COUPLINGS] = ops.moveaxis(routing.couplings, 0, 1)
        return values

    def predict_drawing(self, content):
        """Predicts a drawing, see `predict`.

        Args:
          content: bytes of a PNG file, drawn on black: one object in white; of
            two the first in magenta, the second in green.
        """
        with reading("the drawing"):
            image = Image.open(io.BytesIO(content), formats=["PNG"])
            drawing = np.asarray(image.convert("RGB"))
        if not self._is_centered:
            gray = _png(drawing.max(axis=-1))
            return self.predict(self._prepare(gray, "drawing", False))
        pixels = 0
        for index in range(self._num_targets):
            ink = drawing[..., index]
            offset = (0, 0)
            if self._num_targets == 2 and ink.any():
                # One of two objects stays near where it was drawn.
                place = center_of_mass(ink) / ink.shape - 0.5
                offset = np.clip(
                    place * self._size, -self._max_offset, self._max_offset
                )
            pixels += center(ink, self._size, offset) / np.float32(255)
        return self.predict(np.minimum(pixels, 1))

    def predict_file(self, content, name, invert):
        """Predicts an image file, see `predict`."""
        return self.predict(self._prepare(content, name, invert))

    def next_test_image(self, correct):
        """Predicts the next test image, searching a batch of them at most.

        Args:
          correct: bool, whether its prediction is to be correct.

        Returns:
          Dict: of `predict`, and `labels`, the true classes; or, if none was
          found yet, `searched`, the number of images searched.

        Raises:
          UserError: if there are no such test images.
        """
        if self._trained.pipeline is None:
            raise UserError("for test images start demo.py with --data_dir")
        # A search that fails is not continued.
        search = self._searches.pop(correct, None) or self._search(correct)
        searched, example = next(search)
        self._searches[correct] = search
        if example is None:
            return {"searched": searched}
        return {**self.predict(example.image), "labels": example.labels}

    def _search(self, correct):
        """Yields numbers of images since the last find, and finds or None."""
        searched = 0
        num_examples = self._trained.pipeline.spec.num_examples
        while searched < num_examples:
            for example in self._trained.examples():
                searched += 1
                if example.is_right == correct:
                    yield searched, example
                    searched = 0
                elif searched % EVAL_BATCH_SIZE == 0:
                    yield searched, None
        kind = "correctly" if correct else "wrongly"
        raise UserError(
            f"none of {num_examples:,} test images is predicted {kind}"
        )

    def predict(self, image):
        """What the page shows of an image.

        Args:
          image: float32 [H, W, C], prepared as in training.

        Returns:
          Dict for JSON: `image`, a data URI; `lengths` and `capsules` by class;
          `predicted`, as many classes as an image has objects, the longest
          capsule first; `couplings` [iterations][h][w][class], summed over
          types, or None; `reconstruction`, see `reconstruct`.
        """
        outputs = self._network.predict_on_batch(image[None])
        outputs = {name: values[0] for name, values in outputs.items()}
        capsules, lengths = outputs[keys.CAPSULES], outputs[keys.LOGITS]
        predicted = predicted_classes(lengths, self._num_targets).tolist()
        couplings = None
        if _COUPLINGS in outputs:
            couplings = _rounded(outputs[_COUPLINGS].sum(axis=-2))
        return {
            "image": _data_uri(to_rgb(image)),
            "lengths": _rounded(lengths),
            "capsules": _rounded(capsules),
            "predicted": predicted,
            "couplings": couplings,
            "reconstruction": self.reconstruct(predicted, capsules[predicted]),
        }

    def reconstruct(self, classes, capsules):
        """The decoder's image, of two objects in two colors.

        Args:
          classes: list of one or two ints.
          capsules: their capsules, floats [len(classes)][atoms].

        Returns:
          Data URI of a picture, or None without a decoder.
        """
        if self._decoder is None:
            return None
        # The decoder masks all capsules of a row but that of its class.
        rows = np.repeat(
            np.array(capsules, "float32")[:, None], self._num_classes, axis=1
        )
        images = self._decoder.predict_on_batch(
            {"capsules": rows, "labels": np.array(classes, "int32")}
        )
        is_pair = len(images) == 2
        return _data_uri(two_colors(*images) if is_pair else to_rgb(images[0]))


def covered_part(receptive_field, size):
    """The part of an image that a map of couplings covers.

    Each value covers as many pixels as there are from one position to the
    next, around the center of its capsules' receptive field.

    Args:
      receptive_field: as of `models.classifier.Routing`.
      size: (height, width) of the image, in pixels.

    Returns:
      Dict with top, left, height and width in pixels.
    """
    if not receptive_field:
        return {"top": 0, "left": 0, "height": size[0], "width": size[1]}
    grid, step = np.array(size), 1
    first = np.full(2, 0.5)  # the center of the first position
    for kernel, strides, padding in receptive_field:
        before, positions = 0, -(-(grid - kernel + 1) // strides)
        if padding.upper() == "SAME":
            positions = -(-grid // strides)
            covered = (positions - 1) * strides + kernel
            before = np.maximum(covered - grid, 0) // 2
        first += step * ((kernel - 1) / 2 - before)
        step *= strides
        grid = positions
    values = [*(first - step / 2).tolist(), *(step * grid).tolist()]
    return dict(zip(("top", "left", "height", "width"), values, strict=True))


def _rounded(values):
    return np.round(values.astype("float64"), _DECIMALS).tolist()


def _data_uri(image):
    """RGB [H, W, 3] in [0, 1] as the address of a PNG picture."""
    png = _png(np.rint(255 * image).astype(np.uint8))
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()

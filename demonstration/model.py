"""The network behind the demo page: images in, values for JSON out."""

import base64
import dataclasses
import functools
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
from visualisation.routing import by_position, map_of
from visualisation.trained_model import TrainedModel

# Of an image file that the page sends.
MAX_FILE_BYTES = 2**28
_COUPLINGS = "couplings"
_DECIMALS = 5


class Predictor(keras.Model):
    """Capsules, their lengths and couplings as one compiled function."""

    def __init__(self, model):
        super().__init__()
        self._model = model

    def call(self, images):
        outputs = self._model({keys.IMAGES: images})
        values = {name: outputs[name] for name in (keys.LOGITS, keys.CAPSULES)}
        routing = self._model.routing_of(images)
        if routing is not None:
            # The batch first: [B, iterations, h, w, types, classes].
            values[_COUPLINGS] = ops.moveaxis(routing.couplings, 0, 1)
        return values


class Decoder(keras.Model):
    """The decoder of a model as a compiled function."""

    def __init__(self, model):
        super().__init__()
        self._decoder = model.decoder

    def call(self, x):
        return self._decoder(x["capsules"], x["labels"])


class _Search:
    """Searches the test images for correct or wrong predictions, in a cycle.

    Args:
      trained: `TrainedModel` with a pipeline.
      correct: bool, which of them to find.
    """

    def __init__(self, trained, correct):
        self._trained = trained
        self._correct = correct
        self._examples = iter(())
        self.searched = 0  # images since the last one that was found

    def next(self):
        """The next `Example` among a batch of images, or None.

        Raises:
          UserError: if none of all test images is such, or one cannot be read.
        """
        num_examples = self._trained.pipeline.spec.num_examples
        for _ in range(EVAL_BATCH_SIZE):
            if self.searched >= num_examples:
                self.searched = 0
                kind = "correctly" if self._correct else "wrongly"
                raise UserError(
                    f"none of {num_examples:,} test images is predicted {kind}"
                )
            example = next(self._examples, None)
            if example is None:  # the end, or an image could not be read
                self._examples = self._trained.examples()
                example = next(self._examples)
            self.searched += 1
            if example.is_right == self._correct:
                self.searched = 0
                return example
        return None


class DemoModel:
    """A trained capsule network, with test images if its data set is there.

    Test images are those of the data set that the settings name. Without
    `dataset` and `data_dir` only the embedded digits have some.

    Args:
      config: `Config` with the checkpoint and the data.

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
            spec = pipeline.spec
            self._shape, self._num_targets = spec.shape, spec.num_targets
            self._class_names = list(spec.names)
        else:
            architecture = checkpoint.architecture
            model, pipeline = architecture.build(), None
            checkpoint.load(model, architecture)
            self._shape = architecture.shape
            self._num_targets = settings.num_targets
            self._class_names = class_names(checkpoint)
        name = f"{dataset}, {checkpoint.path.name}"
        self._trained = TrainedModel(model, pipeline, name)
        self._size = self._shape.height, self._shape.width
        data_set = registry.find(dataset)
        self._is_centered = data_set.centred and self._shape.depth == 1
        self._prepare = preparation(
            dataclasses.asdict(settings),
            self._shape,
            data_set,
            self._num_targets,
        )
        # Pixels from the center to each of two objects, at most.
        self._max_offset = (
            PAIR_SHIFT if settings.pairs == "overlap" else max(self._size)
        )
        self._predictor, self._decoder = Predictor(model), Decoder(model)
        self._searches = {
            correct: _Search(self._trained, correct)
            for correct in (True, False)
        }

    def warm_up(self):
        """Compiles everything, so that the first request need not wait."""
        empty = np.zeros((*self._size, self._shape.depth), "float32")
        prediction = self.predict(empty)
        self.reconstruct([0], prediction["capsules"][:1])
        return self.description

    @functools.cached_property
    def description(self):
        """Dict that tells the page what the network is."""
        depth = self._shape.depth
        return {
            "name": self._trained.name,
            "classes": self._class_names,
            "height": self._shape.height,
            "width": self._shape.width,
            "views": 1 if depth == 3 else depth,
            "targets": self._num_targets,
            "decoder": self._trained.model.decoder is not None,
            "test_images": self._trained.pipeline is not None,
            "centered": self._is_centered,
            "digit_size": DIGIT_SIZE,
            "max_bytes": MAX_FILE_BYTES,
            "map": self._map(),
        }

    def _map(self):
        """Where a map of couplings lies on the image; None without routing."""
        empty = np.zeros((1, *self._size, self._shape.depth), "float32")
        model = self._trained.model
        routing = model.routing_of(empty)
        if routing is None:
            return None
        types, classes = routing.couplings.shape[-2:]
        box = map_of(model.receptive_field(model.hparams), self._size)
        # "equal": the couplings of the first iteration.
        return {
            **dict(zip(("top", "left", "height", "width"), box, strict=True)),
            "equal": types / (classes + routing.leaky),
        }

    def predict_drawing(self, content):
        """Predicts a drawing, see `predict`.

        Args:
          content: bytes of a PNG file, drawn on black: one object in white; of
            two the first in magenta, the second in green.
        """
        with reading("the drawing"):
            image = Image.open(io.BytesIO(content), formats=["PNG"])
            drawing = np.asarray(image.convert("RGB"))
        gray = drawing.max(axis=-1)
        if not self._is_centered:
            return self.predict(self._prepare(_png(gray), "drawing", False))
        is_pair = self._num_targets == 2
        inks = [drawing[..., 0], drawing[..., 1]] if is_pair else [gray]
        pixels = sum(self._centered(ink) for ink in inks)
        return self.predict(np.minimum(pixels, 255) / np.float32(255))

    def _centered(self, ink):
        """One drawn object as uint16 [H, W, 1]."""
        offset = (0, 0)
        if self._num_targets == 2 and ink.any():
            # One of two objects stays near where it was drawn.
            place = center_of_mass(ink) / ink.shape - 0.5
            offset = np.clip(
                place * self._size, -self._max_offset, self._max_offset
            )
        return center(ink, self._size, offset).astype(np.uint16)

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
        search = self._searches[correct]
        example = search.next()
        if example is None:
            return {"searched": search.searched}
        return {**self.predict(example.image), "labels": list(example.labels)}

    def predict(self, image):
        """What the page shows of an image.

        Args:
          image: float32 [H, W, C], prepared as in training.

        Returns:
          Dict for JSON: `image`, a data URI; `lengths` and `capsules` by class;
          `predicted`, as many classes as an image has objects, the longest
          capsule first; `couplings` [iterations][h][w][class], summed over
          types, or None; `reconstruction`, see `reconstruct`.

        Raises:
          UserError: if the outputs are not finite.
        """
        outputs = self._predictor.predict_on_batch(image[None])
        outputs = {name: values[0] for name, values in outputs.items()}
        if not all(np.isfinite(values).all() for values in outputs.values()):
            raise UserError("the outputs of the network are not finite")
        capsules, lengths = outputs[keys.CAPSULES], outputs[keys.LOGITS]
        predicted = predicted_classes(lengths, self._num_targets).tolist()
        couplings = None
        if _COUPLINGS in outputs:
            couplings = _rounded(by_position(outputs[_COUPLINGS]))
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
        if self._trained.model.decoder is None:
            return None
        # The decoder masks all capsules of a row but that of its class.
        rows = np.repeat(
            np.array(capsules, "float32")[:, None], len(self._class_names), 1
        )
        images = self._decoder.predict_on_batch(
            {"capsules": rows, "labels": np.array(classes, "int32")}
        )
        is_pair = len(images) == 2
        return _data_uri(two_colors(*images) if is_pair else to_rgb(images[0]))


def _rounded(values):
    return np.round(values.astype("float64"), _DECIMALS).tolist()


def _data_uri(image):
    """RGB [H, W, 3] in [0, 1] as the address of a PNG picture."""
    png = _png(np.rint(255 * np.asarray(image)).astype(np.uint8))
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()

"""The network behind the demo page; it turns images into JSON values."""

import base64
import io

import keras
import numpy as np
from keras import ops
from PIL import Image

import resolve
from common.errors import UserError, user_errors
from config import EVAL_BATCH_SIZE
from input_data import keys
from input_data.preparation import center, center_of_mass
from input_data.registry import BUNDLED, PAIR_SHIFT, find_data_set
from training import inference
from training.evaluate import Evaluator
from visualization.drawing import to_rgb
from visualization.trained_model import TrainedModel, covered_part, two_colors

_COUPLINGS = "couplings"
# Images of twice as many pixels are refused, as anyone may send them.
Image.MAX_IMAGE_PIXELS = 25_000_000


class Predictor(keras.Model):
    """Computes capsules, lengths and couplings by one compiled function."""

    def __init__(self, model):
        super().__init__()
        self._model = model

    def call(self, images):
        outputs = self._model({keys.IMAGES: images})
        values = {name: outputs[name] for name in (keys.LOGITS, keys.CAPSULES)}
        if not self._model.has_lengths:
            values[keys.LOGITS] = ops.softmax(values[keys.LOGITS], axis=-1)
        routing = self._model.routing_of(images)
        if routing is not None:
            # The batch first: [B, iterations, h, w, types, classes].
            values[_COUPLINGS] = ops.moveaxis(routing.couplings, 0, 1)
        return values


class DemoModel:
    """A trained capsule network, and its test images if there are any.

    Test images of data sets other than `digits` need `config.dataset` or
    `config.data_dir`. The dict `description` describes the network to the page;
    `prepare` is `inference.preparation`.
    """

    def __init__(self, config):
        checkpoint = inference.open_or_pretrained(config)
        is_embedded = checkpoint.run_settings.get("dataset") == BUNDLED
        if config.dataset or config.data_dir or is_embedded:
            config, model, pipeline = Evaluator(config).load(checkpoint)
            shape, names = pipeline.spec.shape, pipeline.spec.names
        else:
            config = resolve.for_evaluation(config, checkpoint)
            model, pipeline = inference.load_network(checkpoint, config), None
            shape = checkpoint.architecture.shape
            names = inference.class_names(checkpoint)
        name = f"{config.dataset}, {checkpoint.path.name}"
        self._trained = TrainedModel(model, pipeline, name, names)
        self._predictor = Predictor(model)
        # Of any number of classes it shows the longest capsule.
        self._num_targets = model.num_targets or 1
        self._size = shape.height, shape.width
        self._digit_size = None
        if shape.depth == 1:
            self._digit_size = find_data_set(config.dataset).digit_size
        self.prepare = inference.preparation(config, shape)
        # Largest distance of each of two objects from the center, in pixels.
        overlap = config.pairs == "overlap"
        self._max_offset = PAIR_SHIFT if overlap else max(self._size)
        self._searches = {}
        image = np.zeros((*self._size, shape.depth), "float32")
        coupling_map, routing = None, model.routing_of(image[None])
        if routing is not None:
            _, _, *grid, types, classes = routing.couplings.shape
            if max(grid) > 1:
                coupling_map = covered_part(model, self._size)
                coupling_map["equal"] = types / (classes + routing.leaky)
        self.description = {
            "name": name,
            "classes": list(names),
            "height": shape.height,
            "width": shape.width,
            "views": 1 if shape.depth == 3 else shape.depth,
            "targets": self._num_targets,
            "decoder": model.decoder is not None,
            "test_images": pipeline is not None and model.num_targets > 0,
            "digit_size": self._digit_size,
            "map": coupling_map,
        }
        # Compiles everything, so that the first request need not wait.
        self.predict(image)

    def predict_drawing(self, content):
        """Returns the prediction of `predict`, or None if nothing is drawn.

        `content` has the bytes of a PNG file, black in the background. A single
        object is white; if there are two, one is magenta and the other green.
        """
        with user_errors("the drawing"):
            image = Image.open(io.BytesIO(content), formats=["PNG"])
            drawing = np.asarray(image.convert("RGB"))
        if not drawing.any():
            return None
        if self._digit_size is None:
            gray = _png(drawing.max(axis=-1))
            return self.predict(self.prepare(gray, "drawing", False))
        objects = np.moveaxis(drawing, -1, 0)[: self._num_targets]
        return self.predict(np.minimum(sum(map(self._centered, objects)), 1))

    def _centered(self, ink):
        offset = (0, 0)
        if self._num_targets == 2 and ink.any():
            # One of two objects stays near where it was drawn.
            place = (center_of_mass(ink) / ink.shape - 0.5) * self._size
            offset = np.clip(place, -self._max_offset, self._max_offset)
        digit = center(ink, self._size, offset, self._digit_size)
        return digit / np.float32(255)

    def next_test_image(self, correct):
        """Finds the next test image predicted right (`correct`) or wrong.

        Returns the dict of `predict`, with the true classes as `labels`. If a
        batch has no such image, returns only `searched`, the number of images
        searched since the last image found.
        """
        if not self.description["test_images"]:
            raise UserError("there are no test images to show")
        # A generator that raised an error cannot continue.
        search = self._searches.pop(correct, None) or self._search(correct)
        answer = next(search)
        self._searches[correct] = search
        return answer

    def _search(self, correct):
        searched, total = 0, self._trained.pipeline.spec.num_examples
        while searched < total:
            for example in self._trained.examples():
                searched += 1
                if example.is_right == correct:
                    searched = 0
                    labels = {"labels": example.labels}
                    yield self.predict(example.image) | labels
                elif searched % EVAL_BATCH_SIZE == 0:
                    yield {"searched": searched}
        kind = "correctly" if correct else "wrongly"
        raise UserError(f"none of {total:,} test images is predicted {kind}")

    def predict(self, image):
        """Classifies an image, float32 [H, W, C], prepared as in training.

        Returns a dict for JSON: `image`, a data URI; `lengths` and `capsules`
        by class; `predicted`, a class for each object, the longest capsule
        first; `couplings` [iterations][h][w][class], summed over capsule types,
        or None without routing; `reconstruction`, see `reconstruct`.
        """
        outputs = self._predictor.predict_on_batch(image[None])
        capsules, lengths = outputs[keys.CAPSULES][0], outputs[keys.LOGITS][0]
        predicted = keys.predicted_classes(lengths, self._num_targets)
        couplings = None
        if _COUPLINGS in outputs:
            couplings = _rounded(outputs[_COUPLINGS][0].sum(axis=-2))
        return {
            "image": _data_uri(to_rgb(image)),
            "lengths": _rounded(lengths),
            "capsules": _rounded(capsules),
            "predicted": predicted,
            "couplings": couplings,
            "reconstruction": self.reconstruct(predicted, capsules[predicted]),
        }

    def reconstruct(self, classes, capsules):
        """The decoder's image as a data URI; None without a decoder.

        `classes` has one or two class indices; two objects have two colors.
        `capsules` has one capsule for each class, floats [classes][atoms].
        """
        if self._trained.model.decoder is None:
            return None
        images = self._trained.reconstruct(np.array(capsules), classes)
        merge = two_colors if len(images) == 2 else to_rgb
        return _data_uri(merge(*images))


def _rounded(values):
    return np.round(values.astype("float64"), decimals=5).tolist()


def _data_uri(image):
    """RGB [H, W, 3] in [0, 1] as the address of a PNG picture."""
    png = _png(np.rint(255 * image).astype(np.uint8))
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()

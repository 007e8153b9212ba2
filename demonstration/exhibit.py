"""A trained capsule network, as the page asks it: images in, JSON out."""

import base64
import dataclasses
import functools
import io
from collections.abc import Callable

import keras
import numpy as np
from keras import ops
from PIL import Image

import checkpoints
from demonstration.examples import ExampleSearch
from evaluation import prediction
from evaluation.counts import predicted_classes
from evaluation.evaluator import Evaluator
from input_data import features as keys
from input_data import registry
from input_data.dataset import DataSet
from input_data.formats import image_file
from input_data.images import PAIR_SHIFT
from input_data.transforms import centring
from old.errors import UserError
from visualisation.drawing import to_rgb, two_colours
from visualisation.routing import by_position, map_of
from visualisation.trained_model import TrainedModel

_COUPLINGS = "couplings"
# Of what JSON tells; lengths and couplings are shown with fewer.
_DECIMALS = 5


class CapsulesAndCouplings(keras.Model):
    """What the page shows of an image, as one function to compile."""

    def __init__(self, model):
        super().__init__()
        self._model = model

    def call(self, images):
        outputs = self._model({keys.IMAGES: images})
        shown = {name: outputs[name] for name in (keys.LOGITS, keys.CAPSULES)}
        routing = self._model.routing_of(images)
        if routing is not None:
            # The batch first: [B, iterations, h, w, types, classes].
            shown[_COUPLINGS] = ops.moveaxis(routing.couplings, 0, 1)
        return shown


class Decoder(keras.Model):
    """The decoder of a model, as a function to compile."""

    def __init__(self, model):
        super().__init__()
        self._decoder = model.decoder

    def call(self, x):
        return self._decoder(x["capsules"], x["labels"])


@dataclasses.dataclass(frozen=True)
class Exhibit:
    """A network to look at.

    Attributes:
      subject: `TrainedModel`, without a pipeline if there are no test images.
      shape: `features.ImageShape`.
      num_targets: int.
      class_names: list of strings.
      data_set: `DataSet` that it was trained on.
      prepare: function of a file, as `prediction.preparation` gives it.
      most_offset: pixels that each of two drawn objects is from the middle at
        most.
    """

    subject: TrainedModel
    shape: keys.ImageShape
    num_targets: int
    class_names: list
    data_set: DataSet
    prepare: Callable
    most_offset: int

    @property
    def is_centred(self):
        """Whether drawings are prepared as MNIST prepared its digits."""
        return self.data_set.centred and self.shape.depth == 1

    @functools.cached_property
    def _network(self):
        return CapsulesAndCouplings(self.subject.model)

    @functools.cached_property
    def _decoder(self):
        return Decoder(self.subject.model)

    @functools.cached_property
    def _search(self):
        return ExampleSearch(self.subject)

    @functools.cached_property
    def description(self):
        """What the page must know before it shows an image: a dict."""
        shape = self.shape
        return {
            "name": self.subject.name,
            "classes": self.class_names,
            "height": shape.height,
            "width": shape.width,
            "views": 1 if shape.depth == 3 else shape.depth,
            "targets": self.num_targets,
            "decoder": self.subject.model.decoder is not None,
            "test_images": self.subject.pipeline is not None,
            "centred": self.is_centred,
            "digit_size": centring.DIGIT_SIZE,
            "most_bytes": image_file.MAX_BYTES,
            "map": self._map(),
        }

    def _map(self):
        """Where couplings stand on the image, in its pixels; None without."""
        empty = np.zeros((1, *self._size, self.shape.depth), "float32")
        routing = self.subject.model.routing_of(empty)
        if routing is None:
            return None
        types, classes = routing.couplings.shape[-2:]
        top, left, height, width = map_of(routing.receptive_field, self._size)
        return {
            "top": top,
            "left": left,
            "height": height,
            "width": width,
            # A capsule's couplings before the routing knows anything.
            "equal": types / (classes + routing.leaky),
        }

    @property
    def _size(self):
        return self.shape.height, self.shape.width

    def look_at_drawing(self, content):
        """What `look` says of a drawing.

        Args:
          content: bytes of a PNG file, drawn on black: one object in white;
            of two the first in magenta, the second in green.

        Raises:
          UserError: if it is not a sound image, or too large.
        """
        if not self.is_centred:
            return self.look(self.prepare(_merged(content), "drawing", False))
        with image_file.decoded(content, "the drawing", color=True) as drawing:
            inks = [drawing.max(axis=-1)]
            if self.num_targets == 2:
                inks = [drawing[..., 0], drawing[..., 1]]
            objects = [self._centred(ink) for ink in inks]
        return self.look(np.minimum(sum(objects), 255) / np.float32(255))

    def _centred(self, ink):
        """One drawn object as uint16 [H, W, 1]."""
        offset = (0, 0)
        if self.num_targets == 2 and ink.any():
            # Where it was drawn, as far as the data set has any.
            place = centring.centre_of_mass(ink) / ink.shape - 0.5
            offset = np.clip(
                place * self._size, -self.most_offset, self.most_offset
            )
        return centring.centre(ink, self._size, offset).astype(np.uint16)

    def look_at_file(self, content, name, invert):
        """What `look` says of an image file; raises as `look_at_drawing`."""
        return self.look(self.prepare(content, name, invert))

    def look_at_test_image(self, is_right):
        """What `look` says of the next test image predicted right, or wrong.

        Looks for it among as many test images as a batch has.

        Returns:
          Dict: of `look`, and `labels`, the true classes; or, if none was
          found yet, `searched`, how many images were looked at.

        Raises:
          UserError: if there are no such test images.
        """
        if self.subject.pipeline is None:
            raise UserError(
                "there are no test images: start demo.py with --data_dir (and "
                "--dataset) for those of the data set"
            )
        example, searched = self._search.next(is_right)
        if example is None:
            return {"searched": searched}
        return {**self.look(example.image), "labels": list(example.labels)}

    def look(self, image):
        """What the network makes of an image.

        Args:
          image: float32 [H, W, C], prepared as in training.

        Returns:
          Dict for JSON: `image`, as a data URI; `lengths` and `capsules` by
          class; `predicted`, as many classes as an image has objects, that of
          the longest capsule first; `couplings` [iterations][h][w][class]
          summed over types, or None; `remake`, see `redraw`.

        Raises:
          UserError: if the network's numbers are not finite.
        """
        outputs = {
            name: values[0]
            for name, values in self._network.predict_on_batch(
                image[None]
            ).items()
        }
        for values in outputs.values():
            prediction.require_finite(values)
        capsules, lengths = outputs[keys.CAPSULES], outputs[keys.LOGITS]
        predicted = predicted_classes(lengths, self.num_targets).tolist()
        couplings = None
        if _COUPLINGS in outputs:
            couplings = _rounded(by_position(outputs[_COUPLINGS]))
        return {
            "image": _data_uri(to_rgb(image)),
            "lengths": _rounded(lengths),
            "capsules": _rounded(capsules),
            "predicted": predicted,
            "couplings": couplings,
            "remake": self.redraw(predicted, capsules[predicted]),
        }

    def redraw(self, classes, capsules):
        """The picture that the decoder draws, two objects in two colours.

        Args:
          classes: list of one or two different ints.
          capsules: their capsules, floats [len(classes)][atoms].

        Returns:
          Data URI of a picture, or None without a decoder.

        Raises:
          UserError: for arguments that are not as they should be.
        """
        if self.subject.model.decoder is None:
            return None
        vectors = self._checked(classes, capsules)
        # The decoder masks all of a row's but that of its class.
        rows = np.repeat(vectors[:, None], len(self.class_names), axis=1)
        images = self._decoder.predict_on_batch(
            {"capsules": rows, "labels": np.array(classes, "int32")}
        )
        if len(images) == 2:
            return _data_uri(two_colours(*images))
        return _data_uri(to_rgb(images[0]))

    def _checked(self, classes, capsules):
        known = range(len(self.class_names))
        try:
            vectors = np.array(capsules, "float32")
            is_sound = (
                1 <= len(classes) <= 2
                and len(set(classes)) == len(classes)
                and all(type(c) is int and c in known for c in classes)
                and vectors.shape == (len(classes), self._num_atoms)
                and np.isfinite(vectors).all()
            )
        except (TypeError, ValueError, OverflowError):
            is_sound = False
        if not is_sound:
            raise UserError(
                "what to redraw is one or two classes by number, and their "
                f"capsules of {self._num_atoms} numbers"
            )
        return vectors

    @functools.cached_property
    def _num_atoms(self):
        empty = np.zeros((1, *self._size, self.shape.depth), "float32")
        outputs = self._network.predict_on_batch(empty)
        return outputs[keys.CAPSULES].shape[-1]

    def warm_up(self):
        """Compiles what the first stroke and slider would else wait for."""
        found = self.look(np.zeros((*self._size, self.shape.depth), "float32"))
        self.redraw([0], found["capsules"][:1])
        return self.description


def load(config):
    """The `Exhibit` of a checkpoint.

    Test images are those of the data set that the settings name; without any
    there are none, unless it is the data set that comes with the project.

    Args:
      config: `Config` with the checkpoint and the data.

    Raises:
      UserError: if there is no such checkpoint, it is damaged, of a network
        without capsules, or does not fit the data.
    """
    checkpoint = checkpoints.open(config.checkpoint)
    architecture = checkpoint.architecture
    known = checkpoint.training.get("dataset")
    evaluator = Evaluator(config)
    if config.dataset or config.data_dir or known in (None, registry.EMBEDDED):
        model, pipeline = evaluator.load(checkpoint)
        settings = evaluator.settings_for(checkpoint)
        dataset, looks = settings.dataset_name, dataclasses.asdict(settings)
        spec = pipeline.spec
        shape, num_targets = spec.shape, spec.num_targets
        prepared_targets = num_targets
        names = spec.names
    else:
        _refuse_looks(config)
        evaluator.refuse_contradictions(checkpoint)
        model, pipeline = architecture.build(), None
        checkpoint.load(model, architecture)
        dataset, looks = known, checkpoint.training
        shape = architecture.shape
        prepared_targets = architecture.num_targets
        num_targets = config.num_targets or prepared_targets
        names = prediction.class_names_of(checkpoint, None)
    data_set = registry.find(dataset)
    return Exhibit(
        TrainedModel(model, pipeline, f"{dataset}, {checkpoint.path.name}"),
        shape,
        num_targets,
        list(names),
        data_set,
        prediction.preparation(looks, shape, data_set, prepared_targets),
        # Pairs that do not overlap fill their image.
        PAIR_SHIFT
        if config.pairs == "overlap"
        else max(shape.height, shape.width),
    )


def _refuse_looks(config):
    """Refuses flags that say how images of a data set look, without one."""
    for name in ("color", "distort", "image_size", "pad", "pairs"):
        if getattr(config, name) != getattr(type(config), name):
            raise UserError(
                f"--{name} says how the images of a data set look: name their "
                "folder by --data_dir, or leave it out"
            )


def _merged(content):
    """A drawing in colours as a PNG file in white."""
    with image_file.decoded(content, "the drawing", color=True) as drawing:
        return _png(drawing.max(axis=-1))


def _rounded(values):
    return np.round(values.astype("float64"), _DECIMALS).tolist()


def _data_uri(image):
    """RGB [H, W, 3] in [0, 1] as an address of a PNG picture."""
    png = _png(np.rint(255 * np.asarray(image)).astype(np.uint8))
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()

"""The table of all models: network, loss, decoder and defaults of each."""

import dataclasses
import functools
from collections.abc import Callable

import layers
from common.errors import UserError
from common.flags import field, import_named, is_external, require_known
from layers import networks
from models import losses
from models.classifier import Classifier
from models.hparams import DECODER_FIELDS, SIZES, hparams_class, network_fields
from models.inverted_attention_model import InvertedAttentionModel
from models.photo_model import PhotoModel


def by_loss_type(labels, scores, step, hparams, **options):
    """The loss that `loss_type` names; `options` go to this loss."""
    if hparams.loss_type == "spread":
        schedule = hparams.margin_steps, hparams.margin_schedule
        margin = layers.spread_margin(step, *schedule)
        return layers.spread_loss(labels, scores, margin)
    loss = layers.CLASSIFICATION_LOSSES[hparams.loss_type]
    return loss(labels, scores, **options)


@dataclasses.dataclass(frozen=True)
class Model:
    """What `--model` trains. Your own: --model=MODULE:NAME of such an object.

    Attributes:
      network: function of symbolic images [B, H, W, C] and the number of
        classes. It returns a dict: "logits", the scores of the classes,
        float32 [B, classes]; "capsules", the class capsules, if there are any;
        and the outputs of layers by name. Its keyword-only arguments become
        hyper-parameters.
      loss: function of k-hot labels [B, classes], scores [B, classes], the
        number of previous steps (int64 [B], or None outside of training) and
        the hyper-parameters. It returns the loss of each example, [B].
      loss_types: values of a hyper-parameter `loss_type`, if there are any.
      several_labels: bool, whether `loss` suits images of several classes. With
        `loss_types`, only the margin loss does. For --class_weight, such a
        loss also takes `present_weight`, see `layers.margin_loss`.
      decoder: function of (height, width, depth) that returns a layer from
        capsules and labels to images; None: no decoder.
      reconstruction_loss: function of images, reconstructions [B, H, W, C] and
        a weight that returns the loss of each example, [B].
      fields: dict from name to a `field`: further hyper-parameters, or other
        fields for the network's arguments.
      bounds: dict from hyper-parameter to arguments of `field`.
      defaults: dict from shared hyper-parameters to other defaults.
      presets, unused: see `BaseHParams`.
      schedule: dict of the options of `FlooredExponentialDecay`.
      adam_epsilon: float, epsilon of Adam.
      decayed_axes: int, fewest axes of weights that `weight_decay` applies to.
      routed_layer: name of the layer whose couplings figures show, or None.
      grid: name of the output of `network` with the capsules that it routes,
        [B, h, w, atoms] or [B, h, w, types, atoms]; None: its first input.
      has_lengths: bool, whether the scores of a network with capsules are
        lengths or activations of capsules.
      any_size: bool, whether the same weights fit images of every size, unless
        a hyper-parameter `share_weights` is False or `remake` is True.
      xla: bool, whether TensorFlow uses XLA even on CPUs.
      full_float32: bool, whether GPUs compute float32 products exactly.
      pretrained: bool, whether `classifier` has the methods of `PhotoModel` for
        pretrained weights.
      classifier: class, a subclass of `Classifier` for what is no graph.
    """

    network: Callable
    loss: Callable = losses.cross_entropy
    loss_types: tuple = ()
    several_labels: bool = False
    decoder: Callable | None = None
    reconstruction_loss: Callable = layers.reconstruction_loss
    fields: dict = dataclasses.field(default_factory=dict)
    bounds: dict = dataclasses.field(default_factory=dict)
    defaults: dict = dataclasses.field(default_factory=dict)
    presets: dict = dataclasses.field(default_factory=dict)
    unused: tuple = ()
    schedule: dict = dataclasses.field(default_factory=dict)
    adam_epsilon: float = 1e-8
    decayed_axes: int = 2
    routed_layer: str | None = None
    grid: str | None = None
    has_lengths: bool = True
    any_size: bool = False
    xla: bool = False
    full_float32: bool = False
    pretrained: bool = False
    classifier: type = Classifier

    @functools.cached_property
    def hparams(self):
        """The dataclass of the hyper-parameters, see `BaseHParams`."""
        fields = {}
        if self.loss_types:
            text = "classification loss"
            default, choices = self.loss_types[0], self.loss_types
            fields["loss_type"] = field(default, text, choices=choices)
        if self.decoder:
            fields |= DECODER_FIELDS
        fields |= network_fields(self.network, self.bounds)
        return hparams_class(
            {**fields, **self.fields},
            self.defaults,
            PRESETS=self.presets,
            UNUSED=self.unused,
        )

    def fits_any_size(self, hparams):
        """Whether the same weights fit images of every size."""
        is_shared = getattr(hparams, "share_weights", True)
        has_decoder = getattr(hparams, "remake", False)
        return self.any_size and is_shared and not has_decoder


def find_model(name):
    """The `Model` of a name: a key of `MODELS`, or MODULE:NAME.

    MODULE is in the working directory or on PYTHONPATH. Raises UserError.
    """
    if not is_external(name):
        require_known("model", name, sorted(MODELS))
        return MODELS[name]
    found = import_named("--model", name)
    if not isinstance(found, Model):
        raise UserError(f"--model={name} is not a models.table.Model")
    return found


def weight_decay(default, weights="kernels"):
    """A field: the factor of a loss of squared weights."""
    text = f"factor of a loss term, half the sum of squared {weights}"
    return {"weight_decay": field(default, text, at_least=0)}


# The default, the first one, is margin.
REFERENCE_LOSSES = tuple(layers.CLASSIFICATION_LOSSES)
NO_DECAY = {"decay_rate": 1.0}
KERAS_EPSILON = 1e-7  # Keras' default, which many authors use

MODELS = {
    "baseline": Model(
        networks.baseline,
        by_loss_type,
        REFERENCE_LOSSES,
        unused=("leaky", "num_prime_capsules", "remake", "routing"),
    ),
    "capsule": Model(
        networks.capsule,
        by_loss_type,
        REFERENCE_LOSSES,
        decoder=layers.Reconstruction,
        bounds={"kernel_size": {"at_most": 64}},
        # The paper's section 7: the smaller network for SVHN.
        presets={
            "svhn": {
                "conv_channels": 64,
                "num_prime_capsules": 16,
                "primary_atoms": 6,
                "class_atoms": 8,
            }
        },
        routed_layer="capsule2",
        grid="conv_capsule1",
    ),
    "deepcaps": Model(
        networks.deepcaps,
        losses.deepcaps_margins,
        several_labels=True,
        decoder=layers.ConvReconstruction,
        reconstruction_loss=losses.mean_squared_error,
        fields={
            "hard_margins": field(
                False,
                "for a second training: margins 0.95, 0.05; "
                "absent classes' weight 0.8",
            ),
            "remake_weight": field(
                0.4, "weight of the mean squared pixel error", at_least=0
            ),
        },
        # The authors' values, for batches of 128: 10 epochs of MNIST.
        defaults={"decay_rate": 0.5, "decay_steps": 4690},
        schedule={"staircase": True},
        adam_epsilon=KERAS_EPSILON,
        routed_layer="classes",
        grid="cell3",  # cell 4 has a smaller map
    ),
    "efficient_capsule": Model(
        networks.efficient_capsule,
        losses.summed_margins,
        several_labels=True,
        decoder=functools.partial(layers.Reconstruction, he_normal=True),
        reconstruction_loss=losses.squared_error_like_mnist,
        # decay_steps: an epoch of 60,000 images in batches of 16.
        defaults={
            "decay_rate": 0.97,
            "decay_steps": 3750,
            "learning_rate": 5e-4,
        },
        schedule={"smallest": 5e-5, "staircase": True},
        adam_epsilon=KERAS_EPSILON,
        routed_layer="class_capsule",
    ),
    "homogeneous_capsule": Model(
        networks.homogeneous_capsule,
        by_loss_type,
        ("softmax", "margin", "sigmoid"),
        bounds={
            "momentum": {
                "above": None,
                "at_least": 0,
                "below": 1,
                "defines_network": False,
            }
        },
        # The authors' values, except `ema` and `momentum`. decay_steps: an
        # epoch of 60,000 images in batches of 120.
        defaults={"decay_rate": 0.98, "decay_steps": 500, "ema": 0.99},
        # The authors' values of these two, for 10,000 or more steps.
        presets={"long": {"ema": 0.999, "momentum": 0.9997}},
        schedule={"smallest": 1e-7, "staircase": True},
        adam_epsilon=KERAS_EPSILON,
        has_lengths=False,
    ),
    "inverted_attention": Model(
        networks.inverted_attention,
        routed_layer="classes",
        xla=True,
        classifier=InvertedAttentionModel,
    ),
    "matrix_capsule": Model(
        networks.matrix_capsule,
        by_loss_type,
        ("spread", *REFERENCE_LOSSES),
        fields={
            "margin_schedule": field(
                "linear",
                "growth of the spread loss's margin: linear from 0.2 to 0.9, "
                "or sigmoid, as in the authors' code, from 0.21 to 0.99",
                choices=tuple(layers.MARGIN_SCHEDULES),
            ),
            "margin_steps": field(
                20_000,
                "steps until the full margin; authors' code: 700000",
                at_least=1,
            ),
            **weight_decay(2e-7),
        },
        bounds={
            "conv_stddev": {"defines_network": False},
            "damping": {"above": None, "at_least": 0, "at_most": 0.99},
            "kernel_stddev": {"defines_network": False},
            "min_variance": {"above": None, "at_least": 1e-6},
        },
        defaults={"decay_steps": 20_000, "learning_rate": 0.003},
        # The paper's table 1: 68 thousand weights with five classes.
        presets={
            "small": {
                "conv_channels": 64,
                "primary_types": 8,
                "first_types": 16,
                "second_types": 16,
            }
        },
        routed_layer="class_capsules",
        xla=True,  # halves the time of a step
        full_float32=True,  # variances are small differences of sums
    ),
    "photo_capsule": Model(
        networks.photo_capsule,
        by_loss_type,
        REFERENCE_LOSSES,
        decoder=layers.ConvReconstruction,
        fields={
            "backbone_weights": field(
                "imagenet",
                "initial weights of backbone: imagenet (downloaded), none, or "
                "a file",
            ),
            "remake_scale": field(
                1,
                "rows and columns that a decoded pixel fills",
                defines_network=True,
                **SIZES,
            ),
            "train_backbone": field(
                False,
                "whether to train the backbone; if not, features can be stored",
            ),
            "views": field(
                1,
                "random variants of each image to store features of",
                defines_network=True,
                **SIZES,
            ),
        },
        defaults={"remake": False},
        routed_layer="classes",
        grid="primary",
        any_size=True,
        pretrained=True,
        classifier=PhotoModel,
    ),
    "pooling": Model(
        networks.pooling,
        losses.su_margins,
        several_labels=True,
        defaults=NO_DECAY,
        adam_epsilon=KERAS_EPSILON,
        any_size=True,
    ),
    "self_routing": Model(
        networks.self_routing,
        fields=weight_decay(1e-4, "weights"),
        # The authors use SGD and twice as many types of capsules.
        defaults={"learning_rate": 3e-3},
        decayed_axes=1,
        routed_layer="class_capsules",
    ),
    "shared_capsule": Model(
        networks.shared_capsule,
        losses.su_margins,
        several_labels=True,
        defaults=NO_DECAY,
        adam_epsilon=KERAS_EPSILON,
        routed_layer="capsule",
        grid="conv4",
        any_size=True,
    ),
    "vb_capsule": Model(
        networks.vb_capsule,
        by_loss_type,
        ("softmax", "margin", "sigmoid"),
        fields=weight_decay(0.0),
        defaults=NO_DECAY,
        routed_layer="class_capsules",
        xla=True,
        full_float32=True,
    ),
}

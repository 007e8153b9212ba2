"""Base class of all models: losses, metrics, optimizer."""

import contextvars
import typing

import keras
from keras import backend, ops
from keras.optimizers import schedules

import layers
from common.errors import UserError
from input_data import keys
from layers.backends import is_mirrored, is_on_cpu
from layers.losses import MeanOverBatch
from models import graph, optimizer
from models.hparams import BaseHParams


class Classifier(keras.Model):
    """A model with logits and, if it has a decoder, reconstructions.

    The loss is the sum of `classification_loss`, regularizers, `add_loss` of
    layers and, with a decoder, one `reconstruction_loss` for each target.
    `fit` reports running means: loss, batch_classification_cost,
    reconstruction_error (with a decoder), accuracy and almost_accuracy.

    A subclass defines `network`, or `call` and, for verbose summaries,
    `activations`.

    Call arguments:
      x: dict with `images` [B, H, W, C] and, optionally, the classes to decode,
        [B] or k-hot [B, classes]: `recons_label` and, with two targets,
        `spare_label`. Default: the `num_targets` longest capsules or, if
        `num_targets` is `SEVERAL_LABELS`, all longer than `PRESENT_LENGTH`.

    Returns (from a call) a dict:
      logits: float32 [B, classes].
      capsules: [B, classes, atoms], the class capsules, if there are any.
      recons: [B, H, W, C], with a decoder; for two targets also `spare_recons`.

    Attributes:
      HParams: class of the hyper-parameters, a subclass of `BaseHParams`.
      tensors: `keras.Model` from images to the dict of `network`, or None.
      routed_layer: name of the layer whose couplings figures show, or None.
      grid: name of the tensor of `network` with the capsules that it routes,
        [B, h, w, atoms] or [B, h, w, types, atoms]; None: its first input.
      has_class_capsules: bool, whether the outputs have `capsules`.
      has_lengths: bool, whether logits are lengths or activations of capsules;
        by default equal to `has_class_capsules`.
      compile_with_xla: bool, whether TensorFlow uses XLA even on CPUs. XLA is
        faster for networks of many small operations.
      decoder: layer that maps capsules and labels to an image, or None.
      adam_epsilon: float, epsilon of Adam.
      schedule_options: dict, options of `FlooredExponentialDecay`.

    Args:
      shape: `keys.ImageShape`.
      num_targets: int, see `keys.Spec`; `SEVERAL_LABELS` needs the margin loss.
      hparams: instance of `HParams`; with a decoder also of `DecoderHParams`.
      **kwargs: keyword arguments of `keras.Model`.
    """

    HParams = BaseHParams
    routed_layer = grid = None
    has_class_capsules = False
    compile_with_xla = False
    adam_epsilon = 1e-8
    schedule_options: typing.ClassVar = {}

    def __init__(self, shape, num_targets, hparams, **kwargs):
        super().__init__(**kwargs)
        if num_targets == keys.SEVERAL_LABELS and hparams.loss_type != "margin":
            raise UserError("images of several classes need the margin loss")
        self.num_targets = num_targets
        self.hparams = hparams
        # Attributes of the class would hide the modules of torch.
        self.tensors = self.decoder = None
        self._mean_over_batch = MeanOverBatch(name="mean_over_batch")
        self._cost = keras.metrics.Mean(name="batch_classification_cost")
        mean = keras.metrics.MeanMetricWrapper
        options = {"num_targets": num_targets}
        self._accuracy = mean(layers.correct, "accuracy", **options)
        self._almost = mean(layers.almost_correct, "almost_accuracy", **options)
        images = keras.Input(graph.image_size(shape), name=keys.IMAGES)
        with keras.name_scope(self.name):  # begins the paths of the weights
            run = contextvars.Context().run  # with the same names each time
            outputs = run(self.network, images, shape.num_classes)
        if outputs is not None:
            network = keras.Model(images, outputs)
            for name, found in graph.saved_attributes(self, network):
                setattr(self, name, found)
            self.tensors = network
            self.has_class_capsules = keys.CAPSULES in outputs

    @property
    def has_lengths(self):
        return self.has_class_capsules

    def add_decoder(self, shape, kind=layers.Reconstruction, **options):
        """If `hparams.remake`, adds a decoder of class `kind` and a metric."""
        if self.hparams.remake:
            size = graph.image_size(shape)
            self.decoder = kind(*size, **options, name="recons")
            error = keras.metrics.Mean(name="reconstruction_error")
            self._reconstruction_error = error

    @property
    def xla(self):
        """The `jit_compile` argument of `compile`: a bool, or "auto"."""
        if backend.backend() != "tensorflow":
            return "auto"
        # XLA does not compile mirrored variables.
        if self.compile_with_xla and not is_mirrored():
            return True
        # Keras' "auto" would also consider hidden GPUs.
        return False if is_on_cpu() else "auto"

    def create_weights(self, shape):
        """Creates every weight by one symbolic call, which computes nothing."""
        with keras.name_scope(self.name):  # begins the paths of the weights
            graph.functional(self, shape)
        self.built = True

    def network(self, images, num_classes):
        """The network as one function, of symbolic images [B, H, W, C].

        Returns a dict: "logits", float32 [B, classes]; "capsules", the class
        capsules, if there are any; and the outputs of layers by name. Default:
        the `architecture` of the hyper-parameters.
        """
        if (build := self.hparams.architecture) is None:
            return None
        return build(images, num_classes, **self.hparams.options())

    def call(self, x, training=None):  # the layers see `training`
        return self.outputs(x, self.tensors(x[keys.IMAGES]))

    def load_initial_weights(self):
        """Loads pretrained weights before a new training; by default none."""

    def training_data(self, pipeline, seed, folder):
        """The `Pipeline` to train with; `folder` keeps files for later runs."""
        return pipeline

    def activations(self, images):
        """Dict of the outputs of layers by name, for verbose summaries."""
        outputs = self.tensors(images) if self.tensors else {}
        others = keys.LOGITS, keys.CAPSULES
        return {name: x for name, x in outputs.items() if name not in others}

    def outputs(self, x, tensors):
        """Outputs of a call on `x`, from logits and any class capsules."""
        names = keys.LOGITS, keys.CAPSULES
        outputs = {name: tensors[name] for name in names if name in tensors}
        if self.decoder is not None:
            logits, capsules = outputs.values()
            if self.num_targets == keys.SEVERAL_LABELS:
                labels = [logits > keys.PRESENT_LENGTH]
            else:
                longest = ops.argsort(-logits, axis=-1)
                labels = [longest[:, n] for n in range(self.num_targets)]
            for n, label in enumerate(labels):
                label = x.get(keys.LABEL_BY_TARGET[n], label)
                name = keys.RECONS_BY_TARGET[n]
                outputs[name] = self.decoder(capsules, label)
        return outputs

    def classification_loss(self, labels, outputs, step):
        """The classification loss of each example: [B].

        If `loss_type` is None, it is the cross-entropy, and `logits` must be
        probabilities. `labels` are k-hot, float32 [B, classes]. `step` is the
        number of previous steps, int64 [B], or None outside of training.
        """
        logits = outputs[keys.LOGITS]
        if loss := layers.CLASSIFICATION_LOSSES.get(self.hparams.loss_type):
            return loss(labels, logits)
        # The bound keeps the loss finite where probabilities underflow.
        logarithms = ops.log(ops.maximum(logits, 1e-30))
        return -ops.sum(labels * logarithms, axis=-1)

    def reconstruction_loss(self, images, reconstructions):
        """The reconstruction loss [B] for one target."""
        weight = self.hparams.remake_weight
        return layers.reconstruction_loss(images, reconstructions, weight)

    def example_losses(self, x, y, outputs):
        """Losses [B]: classification, reconstruction (or 0), and their sum."""
        # The batch has the step: JAX would trace `iterations` as a constant.
        step = x.get(keys.STEP)
        cost = self.classification_loss(y[keys.LABELS], outputs, step)
        if self.decoder is None:
            return cost, 0, cost
        error = sum(
            self.reconstruction_loss(y[name], outputs[name])
            for name in keys.RECONS_BY_TARGET
            if name in outputs
        )
        return cost, error, cost + error

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        cost, error, total = self.example_losses(x, y, y_pred)
        self._cost.update_state(cost)
        if self.decoder is not None:
            self._reconstruction_error.update_state(error)
        loss = self._mean_over_batch(cost, total)
        if self.losses:  # regularizers and `add_loss` of layers
            loss = loss + super().compute_loss()
        return loss

    def logits_and_losses(self, x, y, outputs):
        """Logits [B, classes]; losses [B, 2], see `scores.Predictions`."""
        cost, _, total = self.example_losses(x, y, outputs)
        return outputs[keys.LOGITS], ops.stack([total, cost], axis=-1)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        for metric in (self._accuracy, self._almost):
            metric.update_state(y[keys.LABELS], y_pred[keys.LOGITS])
        return self.get_metrics_result()

    def routing_of(self, images):
        """The `Routing` of images [B, H, W, C]; None if nothing is routed."""
        return self.routed_layer and graph.routing_of(self, images)

    @classmethod
    def make_schedule(cls, hparams, max_steps=None):
        """The learning-rate schedule that `hparams.schedule` names.

        "exponential" is max(1e-6, learning_rate * decay_rate^(step /
        decay_steps)), as in the reference; `schedule_options` can change it.
        "cosine" and "linear" require `max_steps` and reach 0 at this step.
        """
        rate = hparams.learning_rate
        if hparams.schedule == "exponential":
            decay = rate, hparams.decay_steps, hparams.decay_rate
            options = cls.schedule_options
            return optimizer.FlooredExponentialDecay(*decay, **options)
        if hparams.schedule == "cosine":
            return schedules.CosineDecay(rate, max_steps)
        return schedules.PolynomialDecay(rate, max_steps, 0.0)

    @classmethod
    def make_optimizer(cls, hparams, max_steps=None):
        """The `hparams.optimizer`; Adam has the betas of the reference."""
        is_float16 = keras.config.dtype_policy().compute_dtype == "float16"
        scale = optimizer.FLOAT16_LOSS_SCALE if is_float16 else None
        options = {"epsilon": cls.adam_epsilon, "loss_scale_factor": scale}
        schedule = cls.make_schedule(hparams, max_steps)
        return optimizer.OPTIMIZERS[hparams.optimizer](schedule, **options)

    def receptive_field(self, hparams):
        """The layers between the image and the h x w grid of `Routing`.

        Returns a tuple of triples (size, strides, padding), one for each layer.
        The tuple is empty if one position sees the whole image.
        """
        return graph.receptive_field(self) if self.routed_layer else ()

    @classmethod
    def takes_any_size(cls, hparams):
        """Whether the same weights fit images of every size."""
        is_shared = getattr(hparams, "share_weights", False)
        return is_shared and not getattr(hparams, "remake", False)

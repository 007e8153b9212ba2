"""Matrix capsules with inverted dot-product attention routing.

Source: Y.-H. H. Tsai, N. Srivastava, H. Goh, R. Salakhutdinov, "Capsules with
Inverted Dot-Product Attention Routing", ICLR 2020,
https://arxiv.org/abs/2002.04764. Unlike in the authors' first code the entries
of neighbouring poses are not mixed.
"""

import math

import keras
from keras import ops

from .em_routing import (
    POSE_ENTRIES,
    POSE_SIZE,
    OverTypes,
    _over_children,
    _over_entries,
    matrix_votes,
)
from .utils import Layer, Window, block_size, by_blocks, positions_of


@keras.saving.register_keras_serializable(package="capsules")
class InvertedAttentionCapsules(Layer):
    """Layers of matrix capsules without activations, routed together.

    Child i with the pose M_i votes V_ij = M_i W_ij for parent j. An update of
    the poses p of one layer is

      c_ij = softmax over the O types j at one position of <p_j, V_ij> / 4
      p_j = LayerNorm(sum over i of c_ij V_ij)

    where the softmax takes p_j of the iteration before. The first iteration has
    c_ij = 1 / O and goes from layer to layer. Each further one updates all
    layers at once, from the poses of the iteration before.

    Weights of layer n = 1, 2, ..: `weights{n}` [k, k, I, O, 4, 4], initially
    normal with standard deviation sqrt(O / (4 k k I)); `scale{n}` [16] and
    `shift{n}` [16] of the normalization (epsilon 1e-5), initially 1 and 0.

    Args:
      num_capsules: sequence of ints, O of each layer, its number of types.
      kernel_sizes: sequence of ints, k; None is the whole grid, for classes.
      strides: sequence of ints. Padding is VALID.
      num_routing: int, the number of iterations.

    Input: poses [B, H, W, I, 16], matrices row by row. Output: a tuple of the
    poses of each layer, [B, h, w, O, 16].
    """

    def __init__(
        self, num_capsules, kernel_sizes, strides, num_routing=2, **kwargs
    ):
        super().__init__(**kwargs)
        self.num_capsules = list(num_capsules)
        self.kernel_sizes = list(kernel_sizes)
        self.strides = list(strides)
        self.num_routing = num_routing

    def build(self, input_shape):
        self.input_spec = keras.layers.InputSpec(shape=(None, *input_shape[1:]))
        self._shapes = [input_shape, *self.compute_output_shape(input_shape)]
        self._windows, self._num_votes = [], 0
        for n, size in enumerate(self.kernel_sizes):
            height, width, inputs = self._shapes[n][1:4]
            window = size and Window(
                height, width, size, self.strides[n], "VALID"
            )
            self._windows.append(window)
            field = (size or height, size or width, inputs)
            types = self.num_capsules[n]
            stddev = math.sqrt(types / (POSE_SIZE * math.prod(field)))
            self.add_weight(
                (*field, types, POSE_SIZE, POSE_SIZE),
                keras.initializers.RandomNormal(stddev=stddev),
                name=f"weights{n + 1}",
            )
            for name, value in (("scale", "ones"), ("shift", "zeros")):
                self.add_weight((POSE_ENTRIES,), value, name=f"{name}{n + 1}")
            self._num_votes += math.prod((*self._shapes[n + 1][1:4], *field))
        # About two tensors have the size of all votes.
        self._block_size = block_size(2 * self._num_votes * POSE_ENTRIES)

    def call(self, inputs):
        *poses, _ = self._by_blocks(inputs)
        return tuple(ops.cast(each, self.compute_dtype) for each in poses)

    def couplings(self, inputs):
        """Couplings c of the last layer: float32 [num_routing, B, n, K, O].

        n is the position of a parent, K the child in its receptive field.
        """
        return ops.moveaxis(self._by_blocks(inputs)[-1], 1, 0)

    def _by_blocks(self, inputs):
        inputs, *weights = (
            ops.cast(each, "float32") for each in (inputs, *self.weights)
        )
        return by_blocks(self._route, [inputs], weights, self._block_size)

    def _route(self, inputs, *weights):
        """Poses [b, h, w, O, 16] of all layers, couplings [b, T, n, K, O]."""
        poses, votes, history = {0: inputs}, {}, []
        for iteration in range(self.num_routing):
            old = dict(poses)
            for n in range(len(self._windows)):
                kernel, scale, shift = weights[3 * n : 3 * n + 3]
                if iteration != 1:  # in 1 children are those of the first pass
                    children = (old if iteration else poses)[n]
                    votes[n] = self._votes(n, children, kernel)
                *grid, types, entries = self._shapes[n + 1][1:]
                if not iteration:
                    couplings = ops.full_like(votes[n][:, :, 0], 1 / types)
                    sums = ops.sum(votes[n], axis=-1) / types
                else:
                    parents = ops.reshape(old[n + 1], (-1, types, entries))
                    parents = ops.swapaxes(parents, 0, 1) / POSE_SIZE
                    agreement = _over_entries(votes[n], parents)
                    couplings = OverTypes(types).normalise(agreement)
                    sums = _over_children(votes[n], couplings)
                sums = ops.swapaxes(sums, 0, 1)
                centered = sums - ops.mean(sums, axis=-1, keepdims=True)
                variance = ops.mean(ops.square(centered), -1, keepdims=True)
                normed = centered * ops.rsqrt(variance + 1e-5) * scale + shift
                poses[n + 1] = ops.reshape(normed, (-1, *grid, types, entries))
            history.append(couplings)
        shape = (len(history), types, -1, math.prod(grid), couplings.shape[-1])
        couplings = ops.reshape(ops.stack(history), shape)
        outputs = [poses[n] for n in range(1, len(poses))]
        return (*outputs, ops.transpose(couplings, (2, 0, 3, 4, 1)))

    def _votes(self, n, children, kernel):
        """[b, H, W, I, 16] and weights -> [O, N, 16, K]."""
        if self._windows[n]:
            children = self._windows[n].patches(children)
        kernel = ops.reshape(kernel, (-1, *kernel.shape[-3:]))
        poses = ops.reshape(children, (-1, kernel.shape[0], POSE_ENTRIES))
        shape = (-1, POSE_SIZE, POSE_SIZE, 1, kernel.shape[0])
        poses = ops.reshape(ops.swapaxes(poses, 1, 2), shape)
        return matrix_votes(poses, ops.transpose(kernel, (1, 2, 3, 0)))

    def compute_output_shape(self, input_shape):
        batch, *grid = input_shape[:3]
        shapes = []
        for types, size, stride in zip(
            self.num_capsules, self.kernel_sizes, self.strides, strict=True
        ):
            grid = [positions_of(n, size or n, stride, "VALID") for n in grid]
            shapes.append((batch, *grid, types, POSE_ENTRIES))
        return tuple(shapes)

    def compute_output_spec(self, inputs):
        # Keras cannot infer shapes through blocks of an unknown batch.
        return tuple(
            keras.KerasTensor(shape, self.compute_dtype)
            for shape in self.compute_output_shape(inputs.shape)
        )

    def multiply_adds(self, input_shape):
        return self._num_votes * POSE_SIZE**3

    def get_config(self):
        names = ("num_capsules", "kernel_sizes", "strides", "num_routing")
        return {**super().get_config(), **{n: getattr(self, n) for n in names}}

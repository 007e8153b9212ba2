"""Convolution by Toom and Cook's algorithm, in plain matrix products.

A convolution of one image with strides s, along one axis (both are alike),

  o[i] = sum over channels c and taps y of x[s * i + y, c] * w[y, c]

is computed as follows:

1. Phases. With y = s * j + p it is the sum over the phases p < s of plain
   convolutions of the pixels s * i + p with the taps s * j + p. A kernel of
   k taps has ceil(k / s) taps in each phase, with zeros for those it lacks.
2. Tiles. T outputs need n = T + taps - 1 pixels of a phase. Longer rows of
   outputs are cut into tiles, whose pixels overlap by taps - 1.
3. Spectra. Polynomials with the coefficients a[T] and w[taps] have a product
   of n coefficients, which its values at n points determine. V_j a are the
   values of a polynomial of j coefficients: the m-th row of V_j has the powers
   0 to j - 1 of the m-th point, or at infinity, where the value is the highest
   coefficient, zeros and a last one. Values multiply point by point:

     a w = V_n^-1 ((V_T a) (V_taps w))

   The convolution above is the transpose (') of this multiplication by w:

     o = V_T' ((V_n^-1' x) (V_taps w))

   V_n^-1' x is called the spectrum of the pixels, V_taps w that of the taps,
   and V_T' the synthesis. For images the matrices are the Kronecker products of
   those of rows and columns.
4. Products. At each point this is a product [B * tiles, s * s * C] x
   [s * s * C, O], of which the sum over phases and channels is part. Complex
   points come in conjugate pairs, of which one is kept. A complex product X W
   is made of three real ones,

     k1 = Re W (Re X + Im X)  k2 = Re X (Im W - Re W)  k3 = Im X (Re W + Im W)
     Re X W = k1 - k3         Im X W = k1 + k2

   so that what stands for the rows of the three matrices V_n^-1', V_taps and
   V_T (whose transpose is the synthesis) is

                 real points   k1            k2        k3
     pixels      re            re + im       re        im
     taps        re            re            im - re   re + im
     synthesis   re            2 (re - im)   -2 im     -2 re

All gradients are those of matrix products and transpositions. A row of a
spectrum is one point of all examples (of all channels, of a kernel). Rows
a power of two apart in memory share few places of the caches, and on processors
with small ones take nearly twice as long: there a spare example and a few spare
channels of zeros, where sizes are such, move them apart.

Which points (`points`) decides how many products there are and how exact they
are. On the unit circle errors are least (at the n-th roots of unity spectra are
discrete Fourier transforms); 0 and infinity are as good; other real points need
fewer products and add errors. For n = 10 and both axes, the paper's primary
capsules, float32 and bfloat16, errors of outputs relative to float64:

  points                                products    float32    bfloat16
  roots of unity                             148     6.4e-7      5.6e-3
  0, infinity, 8 on the circle               142     6.4e-7      5.0e-3
  0, infinity, 4 real, 4 on the circle       132     8.2e-7      7.5e-3
  0, infinity, +-1, +-1.81^+-1, +-i          118     2.4e-6      2.0e-2
  (the direct convolution                            9.2e-7      2.9e-3)

The second is used for bfloat16, the third for other types.

References: A. Toom, "The complexity of a scheme of functional elements
realizing the multiplication of integers", 1963; S. Cook, "On the minimum
computation time of functions", 1966; for convolutional networks A. Lavin,
S. Gray, "Fast algorithms for convolutional neural networks",
https://arxiv.org/abs/1509.09308, section 4.
"""

import dataclasses
import functools
import math

import numpy as np
from keras import ops

from .utils import (
    cpu_has_bfloat16_products,
    positions_of,
    slice_axis,
    zeros_around,
)

# Numbers of examples and channels that this divides have some to spare.
_SPARED = 32


@dataclasses.dataclass(frozen=True)
class Axis:
    """How the rows, or the columns, of a convolution are cut.

    Attributes:
      size: pixels of the image.
      kernel: pixels of the kernel.
      strides: the stride.
      positions: outputs.
      before: zeros before the first pixel.
      tile: outputs of a tile, at least `taps - 1` if there are several.
    """

    size: int
    kernel: int
    strides: int
    positions: int
    before: int
    tile: int

    @property
    def taps(self) -> int:
        """Of each phase of the kernel."""
        return math.ceil(self.kernel / self.strides)

    @property
    def tiles(self) -> int:
        return math.ceil(self.positions / self.tile)

    @property
    def length(self) -> int:
        """Pixels of each phase of a tile."""
        return self.tile + self.taps - 1

    @property
    def needed(self) -> int:
        """Pixels, with zeros around them, of which the tiles are made."""
        phase = self.length
        if self.tiles > 1:  # the last tile also ends in the next one
            phase = (self.tiles + 1) * self.tile
        return self.strides * phase

    @property
    def padding(self) -> tuple[int, int]:
        """Zeros before and after the pixels."""
        return self.before, max(self.needed - self.before - self.size, 0)


def axes(size: int, kernel: int, strides: int, padding: str) -> list[Axis]:
    """All ways to cut an axis, the longest tile first.

    Args:
      size: int, pixels of the image.
      kernel: int, pixels of the kernel.
      strides: int.
      padding: "valid" or "same".
    """
    positions = positions_of(size, kernel, strides, padding)
    before, _ = zeros_around(size, kernel, strides, padding)
    tiles = (math.ceil(positions / n) for n in range(1, positions + 1))
    found = [
        Axis(size, kernel, strides, positions, before, tile)
        for tile in dict.fromkeys(tiles)
    ]
    return [a for a in found if a.tiles == 1 or a.tile >= a.taps - 1]


@functools.cache
def points(length: int, dtype: str) -> np.ndarray:
    """The points at which a polynomial's values are taken.

    They are infinity, where the value is the highest coefficient, 0 if the
    length is even, and an even number m of others. For bfloat16, or if m is at
    most 4, these are the m-th roots of unity. Else they are the m-th roots of
    -1, but for those next to 1 and to -1, pi / m away, in whose places are r,
    1 / r, -r and -1 / r with log r = 0.7 pi / m (by which 10 points give about
    the least error).

    Args:
      length: int, how many points.
      dtype: string, the type of the numbers.

    Returns:
      complex128 array [length], real points first, conjugates side by side.
    """
    real = [np.inf] if length % 2 else [0, np.inf]
    others = length - len(real)
    if others <= 4 or dtype == "bfloat16":
        real += [1, -1] if others else []
        turns = np.arange(1, others // 2) / others
    else:
        near = np.exp(0.7 * np.pi / others)
        real += [near, 1 / near, -near, -1 / near]
        turns = (np.arange(1, others // 2 - 1) + 0.5) / others
    upper = np.exp(2j * np.pi * turns)
    pairs = np.stack([upper, upper.conj()], axis=1)
    found = np.concatenate([real, pairs.ravel()])
    found.setflags(write=False)  # it is kept for later calls
    return found


@dataclasses.dataclass(frozen=True)
class Plan:
    """How the rows and the columns of a convolution are cut.

    Attributes:
      rows: `Axis`.
      columns: `Axis`.
      dtype: string, the type of the numbers that are multiplied.
    """

    rows: Axis
    columns: Axis
    dtype: str = "float32"

    @property
    def tiles(self) -> int:
        return self.rows.tiles * self.columns.tiles

    @property
    def phases(self) -> int:
        return self.rows.strides * self.columns.strides

    @property
    def products(self) -> int:
        """Real ones for each tile, phase, channel and filter.

        So many rows have the matrices of the transforms.
        """
        lengths = self.rows.length, self.columns.length
        real = math.prod(
            int(np.sum(points(n, self.dtype).imag == 0)) for n in lengths
        )
        return real + 3 * (math.prod(lengths) - real) // 2

    def cost(
        self,
        channels: int,
        filters: int,
        batch: int,
        transformed: float,
        moved: float,
    ) -> float:
        """What an example costs, counted in multiply-adds of a product.

        Args:
          channels: int, C.
          filters: int, O.
          batch: int, B: the examples for which the kernel is transformed once.
          transformed: float, what a multiply-add of a transform costs.
          moved: float, how many multiply-adds take as long as to write and to
            read a number of a spectrum.
        """

        def transforms(spectra, axes_length):
            return spectra * (transformed * math.prod(axes_length) + moved)

        rows, columns = self.rows, self.columns
        inputs = self.products * self.phases * channels
        return (
            self.tiles * inputs * filters
            + transforms(self.tiles * inputs, (rows.length, columns.length))
            + transforms(inputs * filters, (rows.taps, columns.taps)) / batch
            + transforms(
                self.tiles * self.products * filters,
                (rows.tile, columns.tile),
            )
        )


def toom_cook_convolution(images, kernel, plan: Plan):
    """The convolution of images with a kernel, as `ops.conv` computes it.

    Args:
      images: tensor [B, H, W, C].
      kernel: tensor [k, k, C, O].
      plan: `Plan`, of the type of both.

    Returns:
      Tensor [B, h, w, O].
    """
    return convolution_by_spectrum(images, kernel_spectrum(kernel, plan), plan)


def kernel_spectrum(kernel, plan: Plan):
    """The spectra of a kernel, for `convolution_by_spectrum`.

    Args:
      kernel: tensor [k, k, C, O].
      plan: `Plan`, of the kernel's type.

    Returns:
      Tensor [products, s * s * C, O], C with the spare channels.
    """
    _, of_kernel, _ = _matrices(plan)
    spare = _spare_channels(kernel.shape[2])
    return _transform(of_kernel, _taps(kernel, plan, spare))


def convolution_by_spectrum(images, taps, plan: Plan):
    """`toom_cook_convolution`, of a kernel that is transformed already.

    Args:
      images: tensor [B, H, W, C].
      taps: tensor of the same type, the `kernel_spectrum` by the same plan.
      plan: `Plan`, of the type of both.

    Returns:
      Tensor [B, h, w, O].
    """
    rows, columns = plan.rows, plan.columns
    of_images, _, synthesis = _matrices(plan)
    batch, *_, channels = images.shape
    filters = taps.shape[-1]
    examples = _spare_examples(batch)
    images = _pixels(images, plan, examples, _spare_channels(channels))
    pixels = _transform(of_images, images)
    outputs = ops.reshape(
        _transform(synthesis, ops.matmul(pixels, taps)),
        (rows.tile, columns.tile, -1, rows.tiles, columns.tiles, filters),
    )
    outputs = ops.transpose(outputs, (2, 3, 0, 4, 1, 5))
    outputs = slice_axis(outputs, 0, stop=-examples) if examples else outputs
    outputs = ops.reshape(
        outputs,
        (-1, rows.tiles * rows.tile, columns.tiles * columns.tile, filters),
    )
    outputs = slice_axis(outputs, 1, stop=rows.positions)
    return slice_axis(outputs, 2, stop=columns.positions)


def _spare_examples(batch):
    """How many examples of zeros there are to spare."""
    return 1 if _spares() and (batch is None or batch % _SPARED == 0) else 0


def _spare_channels(channels):
    """How many channels of zeros there are to spare."""
    return 4 if _spares() and channels % _SPARED == 0 else 0


def _spares():
    """Whether there is anything to spare.

    Not where processors multiply bfloat16: the step of the default network
    took 3% longer with it in float32, 10% in bfloat16, on one with 2 MB of
    second cache. One with AVX2 alone needs it.
    """
    return not cpu_has_bfloat16_products()


def _transform(matrix, numbers):
    """[M, n] @ [n, rows, columns] -> [M, rows, columns]."""
    rows, size = matrix.shape
    flat = ops.reshape(numbers, (size, -1))
    shape = rows, -1, numbers.shape[-1]
    return ops.reshape(ops.matmul(matrix, flat), shape)


def _pixels(images, plan, examples, spare):
    """[B, H, W, C] -> the phases of tiles [n * n, B * tiles, s * s * C].

    With `examples` more images and `spare` more channels, of zeros.
    """
    rows, columns = plan.rows, plan.columns
    channels = images.shape[-1] + spare
    images = ops.pad(
        images, [(0, examples), rows.padding, columns.padding, (0, spare)]
    )
    images = slice_axis(images, 1, stop=rows.needed)
    images = slice_axis(images, 2, stop=columns.needed)
    images = _tiles(images, rows, columns.needed * channels)
    images = _tiles(images, columns, channels)
    images = ops.reshape(
        images,
        (
            *(-1, rows.tiles, rows.length, rows.strides),
            *(columns.tiles, columns.length, columns.strides, channels),
        ),
    )
    return ops.reshape(
        ops.transpose(images, (2, 5, 0, 1, 4, 3, 6, 7)),
        (rows.length * columns.length, -1, plan.phases * channels),
    )


def _tiles(pixels, axis, rest):
    """[..., axis.needed, rest] -> tiles with what overlaps [..., tiles, ...].

    A tile is a part of the axis and the beginning of the next part.
    """
    if axis.tiles == 1:
        return pixels
    parts = ops.reshape(
        pixels, (-1, axis.tiles + 1, axis.strides * axis.tile, rest)
    )
    overlap = axis.strides * (axis.taps - 1)
    following = slice_axis(slice_axis(parts, 1, start=1), 2, stop=overlap)
    return ops.concatenate([slice_axis(parts, 1, stop=-1), following], axis=2)


def _taps(kernel, plan, spare):
    """[k, k, C, O] -> its phases [taps * taps, s * s * C, O].

    With `spare` more channels, of zeros.
    """
    rows, columns = plan.rows, plan.columns
    channels, filters = kernel.shape[2:]
    missing = [(0, a.taps * a.strides - a.kernel) for a in (rows, columns)]
    kernel = ops.reshape(
        ops.pad(kernel, [*missing, (0, spare), (0, 0)]),
        (
            *(rows.taps, rows.strides, columns.taps, columns.strides),
            *(channels + spare, filters),
        ),
    )
    return ops.reshape(
        ops.transpose(kernel, (0, 2, 1, 3, 4, 5)),
        (rows.taps * columns.taps, -1, filters),
    )


def _matrices(plan):
    """The matrices of pixels and taps, and that of the synthesis."""
    numbers = "float64" if plan.dtype == "float64" else "float32"
    return [
        ops.convert_to_tensor(matrix.astype(numbers), plan.dtype)
        for matrix in _float64_matrices(plan)
    ]


@functools.lru_cache(maxsize=64)
def _float64_matrices(plan):
    by_axis = plan.rows, plan.columns
    found = [points(axis.length, plan.dtype) for axis in by_axis]
    # Of a row's and a column's point: 0 if both are real; of conjugates the
    # signs are opposite.
    row_sign, column_sign = (np.sign(p.imag) for p in found)
    sign = np.add.outer(2 * row_sign, column_sign).ravel()
    is_real, is_first = sign == 0, sign > 0

    def matrix(of_pair, of_rows, of_columns):
        plane = np.kron(of_rows, of_columns)
        pair = plane[is_first]
        return np.concatenate(
            [plane[is_real].real, *of_pair(pair.real, pair.imag)]
        )

    def of_axes(function):
        return map(function, found, by_axis)

    return (
        matrix(
            lambda re, im: (re + im, re, im),
            *of_axes(lambda p, axis: np.linalg.inv(_powers(p, axis.length)).T),
        ),
        matrix(
            lambda re, im: (re, im - re, re + im),
            *of_axes(lambda p, axis: _powers(p, axis.taps)),
        ),
        matrix(
            lambda re, im: (2 * (re - im), -2 * im, -2 * re),
            *of_axes(lambda p, axis: _powers(p, axis.tile)),
        ).T,
    )


def _powers(found, count):
    """The first `count` powers of points [n], [n, count]."""
    is_infinite = np.isinf(found.real)
    powers = np.vander(np.where(is_infinite, 0, found), count, increasing=True)
    powers[is_infinite] = np.arange(count) == count - 1
    return powers

"""Convolution by the Toom-Cook algorithm, written as plain matrix products.

Along one axis, rows or columns, the convolution with k taps and strides s is

  o[i] = sum over channels c and taps y of x[s * i + y, c] * w[y, c]

1. Phases. With y = s * j + p the sum splits into the phases p < s: stride-1
   convolutions of the pixels s * i + p with the taps s * j + p. Each phase has
   `taps` = ceil(k / s) taps; those beyond the k taps of the kernel are zero.
2. Tiles. An axis is cut into tiles of T outputs. A tile needs n = T + taps - 1
   pixels of a phase, so neighboring tiles share `taps` - 1 pixels.
3. Spectra. The product of polynomials u and w with T and `taps` coefficients
   has n coefficients, which its values at n points determine. Let V_d be the
   Vandermonde matrix that maps d coefficients to values at the n points: row m
   has the powers 0 to d - 1 of point m; at infinity the value is the highest
   coefficient. Values are multiplied point by point:

     u w = V_n^-1 ((V_T u) (V_taps w))

   The transpose (') of this linear map of u convolves n pixels x with the taps:

     o = V_T' ((V_n^-1' x) (V_taps w))

   V_n^-1' x is called the spectrum of the pixels, V_taps w that of the taps,
   and V_T' the synthesis. In two dimensions the matrices are the Kronecker
   products of the matrices of rows and columns.
4. Products. At each point, channels and phases are summed by a matrix product
   [B * tiles, s * s * C] @ [s * s * C, O]. Complex points come in conjugate
   pairs, of which one is kept. A complex product X W takes three real products:

     k1 = Re W (Re X + Im X)  k2 = Re X (Im W - Re W)  k3 = Im X (Re W + Im W)
     Re X W = k1 - k3         Im X W = k1 + k2

   So a row re + i im of V_n^-1', V_taps or V_T becomes one or three real rows:

                 real points   k1            k2        k3
     pixels      re            re + im       re        im
     taps        re            re            im - re   re + im
     synthesis   re            2 (re - im)   -2 im     -2 re

Points on the unit circle have the smallest rounding errors, real points need
fewer products. Relative to float64, for n = 10 on both axes (primary capsules
of the paper), besides 0 and infinity:

  points                  products    float32    bfloat16
  8 on the circle              142     6.4e-7      5.0e-3    used for bfloat16
  4 on it, 4 real              132     8.2e-7      7.5e-3    for other dtypes
  (direct convolution                  9.2e-7      2.9e-3)

References: A. Toom, 1963; S. Cook, "On the minimum computation time of
functions", 1966; A. Lavin, S. Gray, "Fast algorithms for convolutional neural
networks", https://arxiv.org/abs/1509.09308, section 4.
"""

import dataclasses
import functools
import math

import numpy as np
from keras import ops

from ..backends import cpu_has_bfloat16_products
from ..base_layers import Tensor, slice_axis
from ..windows import positions_of, zeros_around


@dataclasses.dataclass(frozen=True)
class Axis:
    """Tiling of one axis of a convolution, either the rows or the columns."""

    size: int  # pixels of the image
    kernel: int  # pixels of the kernel
    strides: int
    positions: int  # outputs
    before: int  # zeros before the first pixel
    tile: int  # outputs per tile; at least `taps - 1` with several tiles

    @property
    def taps(self) -> int:
        """Number of kernel taps in each phase, including padding zeros."""
        return math.ceil(self.kernel / self.strides)

    @property
    def tiles(self) -> int:
        return math.ceil(self.positions / self.tile)

    @property
    def length(self) -> int:
        """Number of pixels that a tile needs from each phase."""
        return self.tile + self.taps - 1

    @property
    def padded_size(self) -> int:
        """Pixels of the padded or cropped axis, before tiles are cut."""
        phase = self.length
        if self.tiles > 1:  # pixels of a tile may end in the next one
            phase = (self.tiles + 1) * self.tile
        return self.strides * phase

    @property
    def padding(self) -> tuple[int, int]:
        """Numbers of zeros before and after the pixels of the image."""
        return self.before, max(self.padded_size - self.before - self.size, 0)


def axes(size: int, kernel: int, strides: int, padding: str) -> list[Axis]:
    """Candidate tilings of one axis, the one with the longest tile first."""
    positions = positions_of(size, kernel, strides, padding)
    before, _ = zeros_around(size, kernel, strides, padding)
    tiles = (math.ceil(positions / n) for n in range(1, positions + 1))
    candidates = [
        Axis(size, kernel, strides, positions, before, tile)
        for tile in dict.fromkeys(tiles)
    ]
    return [a for a in candidates if a.tiles == 1 or a.tile >= a.taps - 1]


@functools.cache
def points(length: int, dtype: str) -> np.ndarray:
    """Complex points [length]: first real ones, then conjugate pairs.

    They are infinity, 0 if `length` is even, and an even number m of others.
    For bfloat16 or m <= 4, the others are the m-th roots of unity. Otherwise,
    they are the m-th roots of -1, but the real points r, 1 / r, -r and -1 / r
    replace the two roots nearest to 1 and the two nearest to -1. Here log r is
    0.7 pi / m, which gives nearly the smallest error for 10 points.
    """
    real = [np.inf] if length % 2 else [0, np.inf]
    others = length - len(real)
    if others <= 4 or dtype == "bfloat16":
        real += [1, -1] if others else []
        turns = np.arange(1, others // 2) / others
    else:
        r = np.exp(0.7 * np.pi / others)
        real += [r, 1 / r, -r, -1 / r]
        turns = (np.arange(1, others // 2 - 1) + 0.5) / others
    upper = np.exp(2j * np.pi * turns)
    pairs = np.stack([upper, upper.conj()], axis=1)
    return np.concatenate([real, pairs.ravel()])


@dataclasses.dataclass(frozen=True)
class Plan:
    """Tiling of both axes of a convolution, and the dtype of its products."""

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
        """Number of real products per tile, phase, channel and filter."""
        lengths = self.rows.length, self.columns.length
        is_real = [points(n, self.dtype).imag == 0 for n in lengths]
        real = int(math.prod(map(np.sum, is_real)))
        return real + 3 * (math.prod(lengths) - real) // 2


def kernel_spectrum(kernel: Tensor, plan: Plan) -> Tensor:
    """Kernel spectrum [plan.products, plan.phases * padded channels, O]."""
    _, channel_padding = _cache_padding(None, kernel.shape[2])
    phases = kernel_phases(kernel, plan.rows, plan.columns, channel_padding)
    _, kernel_matrix, _ = _matrices(plan)
    return _transform(kernel_matrix, phases)


def kernel_phases(kernel, rows: Axis, columns: Axis, channel_padding: int = 0):
    """Splits a kernel by phases: [taps^2, s^2 * (C + channel_padding), O]."""
    pads = [(0, a.taps * a.strides - a.kernel) for a in (rows, columns)]
    kernel = ops.pad(kernel, [*pads, (0, channel_padding), (0, 0)])
    sizes = rows.taps, rows.strides, columns.taps, columns.strides
    # [taps, s, taps, s, C, O]
    kernel = ops.reshape(kernel, (*sizes, *kernel.shape[2:]))
    kernel = ops.transpose(kernel, (0, 2, 1, 3, 4, 5))
    return ops.reshape(kernel, (rows.taps * columns.taps, -1, kernel.shape[-1]))


def convolution_by_spectrum(images, spectrum, plan: Plan):
    """Convolves images with a kernel, given as its `kernel_spectrum`."""
    rows, columns = plan.rows, plan.columns
    image_matrix, _, synthesis = _matrices(plan)
    filters = spectrum.shape[-1]
    padding = _cache_padding(images.shape[0], images.shape[-1])
    tiles = _image_tiles(images, plan, padding)
    # [products, B * tiles, s * s * C] @ [products, s * s * C, O]
    outputs = ops.matmul(_transform(image_matrix, tiles), spectrum)
    outputs = _transform(synthesis, outputs)
    sizes = rows.tile, columns.tile, -1, rows.tiles, columns.tiles, filters
    outputs = ops.transpose(ops.reshape(outputs, sizes), (2, 3, 0, 4, 1, 5))
    if padding[0]:
        outputs = slice_axis(outputs, 0, stop=ops.shape(images)[0])
    size = rows.tiles * rows.tile, columns.tiles * columns.tile
    outputs = ops.reshape(outputs, (-1, *size, filters))
    outputs = slice_axis(outputs, 1, stop=rows.positions)
    return slice_axis(outputs, 2, stop=columns.positions)


def _cache_padding(batch, channels):
    """How many all-zero images and channels to append to multiples of 32.

    Rows of a spectrum that are a power of two apart in memory share few cache
    sets, which nearly doubles the time of a product on CPUs with small caches.
    On a CPU with bfloat16 products padding made a training step slower.
    """
    if cpu_has_bfloat16_products():
        return 0, 0
    is_aligned = batch is None or batch % 32 == 0
    return int(is_aligned), 4 if channels % 32 == 0 else 0


def _transform(matrix, tensor):
    """[M, n] @ [n, rows, columns] -> [M, rows, columns]."""
    rows, size = matrix.shape
    matrix = ops.convert_to_tensor(matrix, tensor.dtype)
    product = ops.matmul(matrix, ops.reshape(tensor, (size, -1)))
    return ops.reshape(product, (rows, -1, tensor.shape[-1]))


def _image_tiles(images, plan, padding):
    """[B, H, W, C] -> phases of all tiles [n * n, B * tiles, s * s * C]."""
    rows, columns = plan.rows, plan.columns
    batch_padding, channel_padding = padding
    channels = images.shape[-1] + channel_padding
    pads = rows.padding, columns.padding, (0, channel_padding)
    images = ops.pad(images, [(0, batch_padding), *pads])
    images = slice_axis(images, 1, stop=rows.padded_size)
    images = slice_axis(images, 2, stop=columns.padded_size)
    images = _overlapping_tiles(images, rows, columns.padded_size * channels)
    images = _overlapping_tiles(images, columns, channels)
    sizes = [(a.tiles, a.length, a.strides) for a in (rows, columns)]
    # [B, tiles, n, s, tiles, n, s, C]
    images = ops.reshape(images, (-1, *sizes[0], *sizes[1], channels))
    images = ops.transpose(images, (2, 5, 0, 1, 4, 3, 6, 7))
    tile = rows.length * columns.length
    return ops.reshape(images, (tile, -1, plan.phases * channels))


def _overlapping_tiles(pixels, axis, rest):
    """[..., axis.padded_size, rest] -> [..., tiles, pixels of a tile, rest].

    Each tile is one part of the axis and the beginning of the next part.
    """
    if axis.tiles == 1:
        return pixels
    shape = -1, axis.tiles + 1, axis.strides * axis.tile, rest
    parts = ops.reshape(pixels, shape)
    overlap = axis.strides * (axis.taps - 1)
    following = slice_axis(slice_axis(parts, 1, start=1), 2, stop=overlap)
    current = slice_axis(parts, 1, stop=axis.tiles)
    return ops.concatenate([current, following], axis=2)


@functools.lru_cache(maxsize=64)
def _matrices(plan):
    """The matrices of pixels, of taps and of the synthesis."""
    both = plan.rows, plan.columns
    axis_points = [points(axis.length, plan.dtype) for axis in both]
    # A row's and a column's point together: the sign is 0 if both are real
    # and opposite for the two points of a conjugate pair.
    row_sign, column_sign = (np.sign(p.imag) for p in axis_points)
    sign = np.add.outer(2 * row_sign, column_sign).ravel()
    is_real, is_first = sign == 0, sign > 0

    def matrix(complex_rows, axis_matrix):
        kronecker = np.kron(*map(axis_matrix, axis_points, both))
        first = kronecker[is_first]
        pairs = complex_rows(first.real, first.imag)
        return np.concatenate([kronecker[is_real].real, *pairs])

    return (
        matrix(
            lambda re, im: (re + im, re, im),
            lambda p, axis: np.linalg.inv(_powers(p, axis.length)).T,
        ),
        matrix(
            lambda re, im: (re, im - re, re + im),
            lambda p, axis: _powers(p, axis.taps),
        ),
        matrix(
            lambda re, im: (2 * (re - im), -2 * im, -2 * re),
            lambda p, axis: _powers(p, axis.tile),
        ).T,
    )


def _powers(evaluation_points, count):
    """The Vandermonde matrix V_count [points, count]."""
    is_infinite = np.isinf(evaluation_points.real)
    finite = np.where(is_infinite, 0, evaluation_points)
    powers = np.vander(finite, count, increasing=True)
    powers[is_infinite] = np.arange(count) == count - 1
    return powers

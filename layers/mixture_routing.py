"""Routing that fits a mixture of normal distributions to votes.

EM routing and variational Bayes routing differ in how they fit a parent to the
votes. matrix_votes.py names the axes. All computations are in float32.
"""

from keras import ops

from .matrix_votes import over_children, over_entries
from .routing import softmax
from .tensors import Tensor, largest

# Added to sums of assignments. A parent whose children are all inactive then
# has mean 0 and the minimum variance.
EPSILON = 1e-7


def fit_mixture(
    votes, activations, fit, parents, num_routing, damping=0.0, prior=EPSILON
):
    """Fits a normal distribution to the votes for each parent.

    M-steps and E-steps alternate as in `em_routing`. All sums are matrix
    products, and no tensor is larger than the votes, since squared distances
    to a mean m are expanded:

      sum r (V - m)^2 = sum r V^2 - 2 m sum r V + m^2 sum r

    To avoid cancellation, the first mean is subtracted from the votes before.

    Args:
      votes: float32 tensor [O, N, 16, K].
      activations: tensor [N, K]; 0 for padding.
      fit: function of total weights S [O, N, 1], means and scatters sum r
        (V - mean)^2 [O, N, 16], and the iteration. It returns precisions [O, N,
        16], terms [O, N] and logits of the activations [O, N]. Then R is the
        softmax of term - sum precision (V - mean)^2.
      parents: `OverTypes` or `OverPositions`.
      num_routing: int, number of M-steps.
      damping: float in [0, 1), weight of the previous mean in each mean.
      prior: float, the weight of an additional vote of 0 in each mean.

    Returns:
      Tuple of float32 poses [O, N, 16], logits of the activations [O, N], and
      a list of the assignments [O, N, K] of each iteration.
    """
    types, _, _, children = votes.shape
    activations = ops.cast(activations, "float32")
    uniform = ops.full_like(activations, 1 / types)[None]
    assignments = ops.broadcast_to(
        parents.start(uniform), (types, ops.shape(votes)[1], children)
    )
    weights = assignments * activations
    center = ops.stop_gradient(
        over_children(votes, weights)
        / (ops.sum(weights, axis=-1, keepdims=True) + EPSILON)
    )
    votes = votes - center[..., None]
    squares = ops.square(votes)

    mean = 0.0
    all_assignments = []
    for iteration in range(num_routing):
        all_assignments.append(assignments)
        # M-step.
        weights = assignments * activations
        total = ops.sum(weights, axis=-1, keepdims=True)  # S, [O, N, 1]
        first_moment = over_children(votes, weights)  # [O, N, 16]
        second_moment = over_children(squares, weights)
        undamped = (first_moment + center * total) / (total + prior)
        mean = (1 - damping) * undamped + damping * mean
        shift = mean - center
        scatter = (
            second_moment - 2 * shift * first_moment + ops.square(shift) * total
        )
        precision, terms, logits = fit(
            total, mean, ops.maximum(scatter, 0.0), iteration
        )
        if iteration == num_routing - 1:
            break
        # E-step.
        distances = over_entries(squares, precision) - 2 * over_entries(
            votes, precision * shift
        )  # [O, N, K]
        terms = terms - ops.sum(precision * ops.square(shift), axis=-1)
        assignments = parents.normalize(terms[..., None] - distances)
    return mean, logits, all_assignments


class OverTypes:
    """Assignments that sum to 1 over the types at each parent position."""

    def start(self, uniform: Tensor) -> Tensor:
        """The initial assignments [1, N, K], given 1 / O in this shape."""
        return uniform

    def normalize(self, log_densities: Tensor) -> Tensor:
        """log(a_j p_ij) -> R_ij, both float32 [O, N, K]."""
        return softmax(log_densities, axis=0)


class OverPositions:
    """Assignments of a child that sum to 1 over all windows that contain it.

    With `by_type` each sum is over one type of parents, else over all types.
    Initially they are 1 / O; `divide` divides that by the number of windows.
    """

    def __init__(self, window, by_type=False, divide=True):
        self._window = window
        self._by_type = by_type
        self._divide = divide and not by_type

    def start(self, uniform: Tensor) -> Tensor:
        """The initial assignments [1, N, K], given 1 / O in this shape."""
        if not self._divide:
            return uniform
        # The same numbers of parents for each image of the batch.
        height, width = self._window.positions
        ones = ops.ones((1, height * width, uniform.shape[-1]), "float32")
        shares = 1 / self._window.over_windows(ones, ops.add)
        uniform_by_image = ops.reshape(uniform, (-1, *ones.shape[1:]))
        return ops.reshape(uniform_by_image * shares, ops.shape(uniform))

    def normalize(self, log_densities: Tensor) -> Tensor:
        """log(a_j p_ij) -> R_ij, both float32 [O, N, K]."""
        maxima = ops.stop_gradient(log_densities)
        if not self._by_type:
            maxima = largest(maxima, axis=0)
        maxima = self._window.over_windows(maxima, ops.maximum)
        total = exponentials = ops.exp(log_densities - maxima)
        if not self._by_type:
            total = ops.sum(exponentials, axis=0, keepdims=True)
        return exponentials / self._window.over_windows(total, ops.add)

"""The orthogonal matrix nearest to another one, for Muon."""

from keras import ops


def orthogonalize(matrix, scale):
    """Approximates the orthogonal matrix nearest to `matrix`, times `scale`.

    For a float32 `matrix` M = U S V' (singular value decomposition) it returns
    scale * U f(S) V'. f divides S by the Frobenius norm of M; then five
    Newton-Schulz iterations (https://kellerjordan.github.io/posts/muon, Jordan
    2024) map all but the smallest values to between 0.7 and 1.2. They update
    the smaller one of M M' and M' M: only two products have the factor M.
    Products in TF32 would give a relative error of about 0.1.
    """
    rows, columns = matrix.shape
    product = "ri,rj->ij" if rows >= columns else "ir,jr->ij"
    square = ops.einsum(product, matrix, matrix)
    norm = ops.sqrt(ops.trace(square)) + 5e-9  # zeros stay zeros
    square = square / norm**2
    # Five times, the polynomial a x + b x^3 + c x^5 maps (0, 1] close to 1.
    a, b, c = 3.4445, -4.7750, 2.0315
    identity = polynomial = ops.eye(min(rows, columns))
    for _ in range(5):
        factor = a * identity + b * square + c * ops.matmul(square, square)
        polynomial = ops.matmul(polynomial, factor)
        square = ops.matmul(factor, ops.matmul(square, factor))
    polynomial = polynomial * (scale / norm)
    if rows >= columns:
        return ops.matmul(matrix, polynomial)
    return ops.matmul(polynomial, matrix)

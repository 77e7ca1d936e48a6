"""The paper's formulas in NumPy, written from the paper and sharing nothing with the package."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: Array = powers / powers.sum(axis=-1, keepdims=True)
    return weights


def attention(q: Array, k: Array, v: Array, allowed: NDArray[np.bool_] | None = None) -> Array:
    """§3.2.1, eq. 1."""
    scores = np.einsum("...tk,...sk->...ts", q, k) / np.sqrt(q.shape[-1])
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    output: Array = np.einsum("...ts,...sv->...tv", softmax(scores), v)
    return output


def positional_encoding(pos: int, d_model: int) -> Array:
    """§3.5, one position at a time, as printed."""
    encoding = np.zeros(d_model)
    for i in range(d_model // 2):
        angle = pos / 10000 ** (2 * i / d_model)
        encoding[2 * i] = np.sin(angle)
        encoding[2 * i + 1] = np.cos(angle)
    return encoding


def layer_norm(x: Array, epsilon: float = 1e-6) -> Array:
    """With gain 1 and bias 0."""
    centred = x - x.mean(-1, keepdims=True)
    normalised: Array = centred / np.sqrt(x.var(-1, keepdims=True) + epsilon)
    return normalised

"""Positional encodings, the model's only information about the order of tokens.

Paper: §3.5.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from headwise.errors import DataError

_FIRST_LENGTH = 256


def sinusoids(length: int, d_model: int) -> Tensor:
    """Tabulate PE(pos, 2i) = sin(pos / 10000^(2i/d)) and PE(pos, 2i+1) = cos of the same.

    Sines and cosines are interleaved as printed. Angles are taken in double precision: at
    position 10,000 a single-precision angle is already off in the fourth digit.

    Paper: §3.5.
    """
    positions = torch.arange(length, dtype=torch.float64)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angles = torch.outer(positions, 10000.0 ** (-even / d_model))  # [T, D/2]
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)  # [T, D]


def rotations(length: int, d_k: int) -> Tensor:
    """Tabulate what `rotate` needs: cosines, then signed sines, of the angles of `sinusoids`.

    Departs from the paper: §3.5 adds positions to the embeddings (Su et al., 2021).
    """
    sines, cosines = sinusoids(length, d_k).unflatten(1, (-1, 2)).unbind(2)  # [T, K/2] each
    return torch.cat((cosines, cosines, -sines, sines), dim=1)  # [T, 2*K]


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Turn each pair of components i and i + K/2 of queries or keys by its position's angle.

    `x` is [B, H, T, K]. `rotation` has the rows of `rotations` for its positions: [T, 2*K], or
    [B, T, 2*K] where they differ between sequences. The product of a query and a key then depends
    on the difference of their positions alone.
    """
    if rotation.dim() == 3:
        rotation = rotation[:, None]  # [B, 1, T, 2*K]
    cosines, sines = rotation.chunk(2, dim=-1)
    return torch.addcmul(x * cosines, x.roll(x.shape[-1] // 2, -1), sines)


class SinusoidalPositions(nn.Module):
    """Look up the fixed encoding of any position; the table grows as needed.

    Paper: §3.5.
    """

    table: Tensor

    def __init__(self, width: int, tabulate: Callable[[int, int], Tensor] = sinusoids) -> None:
        super().__init__()
        self._width, self._tabulate = width, tabulate
        table = tabulate(_FIRST_LENGTH, width).to(torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """Return the encodings of the positions start .. start+length-1."""
        table = self.table  # Read once: another thread may replace it with one of another length.
        if start + length > table.shape[0]:
            table = self._tabulate(2 * (start + length), self._width).to(table)
            self.table = table
        return table[start : start + length]  # [T, D], or as wide as what is tabulated


class LearnedPositions(nn.Module):
    """Look up a learned vector for each position.

    Paper: §3.5 and Table 3 (E).
    """

    def __init__(self, d_model: int, max_positions: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))

    def forward(self, start: int, length: int) -> Tensor:
        """Return the vectors of the positions start .. start+length-1."""
        if start + length > self.weight.shape[0]:
            raise DataError(
                f"a sequence of {start + length} tokens is longer than the "
                f"{self.weight.shape[0]} positions this model has learned: split it, or train "
                "with a larger model.max_positions or with sinusoidal positions"
            )
        return self.weight[start : start + length]  # [T, D]

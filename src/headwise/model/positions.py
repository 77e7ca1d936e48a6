"""Positional encodings, the model's only information about the order of tokens.

Paper: §3.5.
"""

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


class SinusoidalPositions(nn.Module):
    """Look up the fixed encoding of any position; the table grows as needed.

    Paper: §3.5.
    """

    table: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        table = sinusoids(_FIRST_LENGTH, d_model).to(torch.get_default_dtype())
        self.register_buffer("table", table, persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """Return the encodings of the positions start .. start+length-1."""
        table = self.table  # Read once: another thread may replace it with one of another length.
        if start + length > table.shape[0]:
            table = sinusoids(2 * (start + length), table.shape[1]).to(table)
            self.table = table
        return table[start : start + length]  # [T, D]


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

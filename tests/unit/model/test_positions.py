import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.errors import DataError
from headwise.model.positions import LearnedPositions, SinusoidalPositions, sinusoids
from tests import reference


@pytest.mark.parametrize("d_model", [2, 14, 512])
def test_sinusoids_are_the_papers_interleaved(d_model: int) -> None:
    expected = np.stack([reference.positional_encoding(pos, d_model) for pos in range(101)])
    np.testing.assert_allclose(sinusoids(101, d_model).numpy(), expected, atol=1e-12)


def test_a_shift_is_a_linear_function_of_the_encoding() -> None:
    """PE(pos+k) = R(k) PE(pos) with the same R(k), a rotation of each pair, for every pos."""
    d_model = 14
    table = sinusoids(200, d_model)
    for k in (1, 5, 31):
        rotation = torch.zeros(d_model, d_model, dtype=torch.float64)
        for i in range(0, d_model, 2):
            angle = torch.tensor(k * 10000 ** (-i / d_model), dtype=torch.float64)
            rotation[i, i] = rotation[i + 1, i + 1] = angle.cos()
            rotation[i, i + 1], rotation[i + 1, i] = angle.sin(), -angle.sin()
        torch.testing.assert_close(table[k:], table[:-k] @ rotation.T, rtol=0, atol=1e-11)


def test_another_thread_may_replace_the_table_by_a_shorter_one() -> None:
    class Overtaken(SinusoidalPositions):
        def __setattr__(self, name: str, value: Tensor | nn.Module) -> None:
            if name == "table":
                value = self.table  # Another thread's.
            super().__setattr__(name, value)

    torch.testing.assert_close(Overtaken(14)(0, 700), sinusoids(700, 14).float())


def test_any_length_works_after_any_other() -> None:
    positions = SinusoidalPositions(14)
    expected = sinusoids(10_007, 14).float()
    for start, length in ((0, 3), (250, 11), (10_000, 7), (0, 10_007), (5, 1)):
        torch.testing.assert_close(
            positions(start, length), expected[start : start + length], rtol=0, atol=0
        )


def test_the_table_follows_the_models_precision_and_stays_out_of_its_weights() -> None:
    positions = SinusoidalPositions(14).double()
    assert positions(0, 3000).dtype == torch.float64
    assert positions.state_dict() == {}


def test_learned_positions_say_where_they_end() -> None:
    positions = LearnedPositions(6, max_positions=5)
    torch.nn.init.normal_(positions.weight)
    torch.testing.assert_close(positions(2, 3), positions.weight[2:5])
    with pytest.raises(DataError, match="a sequence of 6 tokens is longer than the 5 positions"):
        positions(5, 1)

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.errors import DataError
from headwise.model.positions import (
    LearnedPositions,
    SinusoidalPositions,
    rotate,
    rotations,
    sinusoids,
)
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


def test_a_rotation_is_a_product_of_complex_numbers() -> None:
    """Components i and i + K/2 are the real and imaginary part of one number."""
    d_k, length = 14, 101
    x = torch.randn(2, 3, length, d_k, generator=torch.Generator().manual_seed(1)).double()
    positions = torch.arange(length, dtype=torch.float64)
    angles = positions[:, None] * 10000.0 ** (-torch.arange(0, d_k, 2).double() / d_k)
    numbers = torch.complex(x[..., : d_k // 2], x[..., d_k // 2 :])
    turned = numbers * torch.polar(torch.ones_like(angles), angles)
    expected = torch.cat((turned.real, turned.imag), -1)
    torch.testing.assert_close(rotate(x, rotations(length, d_k)), expected, rtol=0, atol=1e-12)


def test_rotated_products_depend_on_the_difference_of_positions_alone() -> None:
    generator = torch.Generator().manual_seed(2)
    query, key = torch.randn(2, 1, 1, 1, 6, generator=generator).double()
    table = rotations(300, 6)

    def product(query_at: int, key_at: int) -> float:
        turned = rotate(query, table[[query_at]]), rotate(key, table[[key_at]])
        return float((turned[0] * turned[1]).sum())

    assert product(7, 3) == pytest.approx(product(207, 203), abs=1e-12)
    assert product(7, 3) != pytest.approx(product(3, 7), abs=1e-3)


def test_sequences_may_be_at_different_positions() -> None:
    x = torch.randn(3, 2, 1, 6, generator=torch.Generator().manual_seed(3)).double()
    table, at = rotations(20, 6), [5, 0, 19]
    expected = torch.cat([rotate(x[[row]], table[[at[row]]]) for row in range(3)])
    torch.testing.assert_close(rotate(x, table[at][:, None]), expected, rtol=0, atol=0)


def test_learned_positions_say_where_they_end() -> None:
    positions = LearnedPositions(6, max_positions=5)
    torch.nn.init.normal_(positions.weight)
    torch.testing.assert_close(positions(2, 3), positions.weight[2:5])
    with pytest.raises(DataError, match="a sequence of 6 tokens is longer than the 5 positions"):
        positions(5, 1)

import pytest
import torch

from headwise.model.dropout import _native_is_better, add_dropped, dropout
from headwise.training import keyed_dropout

COUNT = 4_000_000


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.999])
def test_the_rate_holds_in_every_lane(rate: float) -> None:
    torch.manual_seed(0)
    dropped = (dropout(torch.ones(COUNT), rate) == 0).view(-1, 4).double().mean(0)
    # Five standard deviations of a mean over a million draws.
    tolerance = 5 * (rate * (1 - rate) / (COUNT / 4)) ** 0.5
    assert ((dropped - rate).abs() < tolerance).all(), dropped


def test_lanes_do_not_depend_on_each_other() -> None:
    torch.manual_seed(0)
    lanes = (dropout(torch.ones(COUNT), 0.5) == 0).view(-1, 4).T.double()
    correlation = torch.corrcoef(lanes) - torch.eye(4)
    assert correlation.abs().max() < 0.005


def test_what_is_kept_is_scaled_by_the_rate_really_applied() -> None:
    torch.manual_seed(0)
    for rate in (0.1, 0.3, 1e-5):
        values = dropout(torch.ones(1001), rate).unique().tolist()
        kept = max(values)
        applied = round(rate * 2**16) / 2**16
        assert kept == pytest.approx(1 / (1 - applied), rel=1e-6)
        assert abs(applied - rate) <= 2**-17
        assert set(values) <= {0.0, kept}


def test_a_rate_next_to_one_keeps_something_now_and_then() -> None:
    torch.manual_seed(0)
    kept = dropout(torch.ones(COUNT), 0.9999999) > 0
    assert 0 < kept.sum() < COUNT / 1000


def test_a_rate_of_zero_changes_nothing_and_draws_nothing() -> None:
    x = torch.randn(7, 5)
    state = torch.get_rng_state()
    assert dropout(x, 0.0) is x
    torch.testing.assert_close(add_dropped(x, x, 0.0), 2 * x)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("shape", [(1,), (3,), (5, 7), (2, 3, 11)])
def test_the_gradient_goes_where_values_went(shape: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    update = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(4)
    mask = dropout(torch.ones(shape, dtype=torch.float64), 0.4)
    torch.manual_seed(4)
    output = add_dropped(x, update, 0.4)
    torch.testing.assert_close(output, x + update * mask)
    grad = torch.randn(shape, dtype=torch.float64)
    to_x, to_update = torch.autograd.grad(output, (x, update), grad)
    torch.testing.assert_close(to_x, grad)
    torch.testing.assert_close(to_update, grad * mask)
    torch.manual_seed(4)
    (alone,) = torch.autograd.grad(dropout(x, 0.4), x, grad)
    torch.testing.assert_close(alone, grad * mask)


def test_transposed_input_is_dropped_element_by_element() -> None:
    x = torch.ones(50, 70).T
    torch.manual_seed(0)
    dropped = dropout(x, 0.5)
    assert dropped.shape == (70, 50)
    assert 0.4 < (dropped == 0).double().mean() < 0.6


def test_masks_are_reproducible_by_key_and_by_nothing_else() -> None:
    x = torch.ones(100, 64)

    def drawn(*key: int) -> torch.Tensor:
        with keyed_dropout(*key):
            return dropout(x, 0.5)

    first = drawn(1, 2, 3)
    torch.rand(17)
    assert torch.equal(first, drawn(1, 2, 3))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 23, 0)):
        assert 0.4 < (first != drawn(*other)).double().mean() < 0.6


def test_a_key_leaves_the_callers_random_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with keyed_dropout(1, 1, 1):
        torch.rand(11)
    assert torch.equal(torch.rand(3), expected)


def test_an_accelerator_uses_its_own_dropout() -> None:
    assert _native_is_better(torch.empty(3, device="meta"))
    assert not _native_is_better(torch.empty(3))

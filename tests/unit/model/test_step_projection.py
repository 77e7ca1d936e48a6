"""Products of a search's steps: packed after some steps, they are the same products."""

import pytest
import torch
import torch.nn.functional as F

from headwise.config import ModelConfig, Vocab
from headwise.model import LanguageModel
from headwise.model import step_projection as module
from headwise.model.activations import ACTIVATIONS, FUSED
from headwise.model.step_projection import StepProjection, packs_weights


@pytest.mark.parametrize("rows", [4, 5, 16, 65])
def test_packed_products_equal_torchs(rows: int) -> None:
    torch.manual_seed(5)
    weight = torch.randn(4001, 96)
    step = StepProjection(weight)
    with torch.inference_mode():
        for _ in range(20):
            x = torch.randn(rows, 96)
            expected = F.linear(x.double(), weight.double())
            torch.testing.assert_close(step(x).double(), expected, rtol=0, atol=1e-4)
        other = torch.randn(rows + 3, 96)  # Rows may come and leave.
        torch.testing.assert_close(step(other), F.linear(other, weight), rtol=0, atol=1e-4)
    assert step.is_packed == packs_weights()


@pytest.mark.parametrize(
    ("rows", "outputs", "dtype"),
    [(3, 4001, torch.float32), (8, 100, torch.float32), (8, 4001, torch.float64)],
)
def test_what_does_not_pay_is_not_packed(rows: int, outputs: int, dtype: torch.dtype) -> None:
    weight, x = torch.randn(outputs, 96, dtype=dtype), torch.randn(rows, 96, dtype=dtype)
    step = StepProjection(weight)
    with torch.inference_mode():
        for _ in range(20):
            torch.testing.assert_close(step(x), F.linear(x, weight), rtol=0, atol=1e-4)
    assert not step.is_packed


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("outputs", [101, 4001])
def test_an_activation_is_that_of_the_product(activation: str, outputs: int) -> None:
    torch.manual_seed(5)
    weight, bias = torch.randn(outputs, 96), torch.randn(outputs)
    step = StepProjection(weight, bias, activation)
    with torch.inference_mode():
        for _ in range(20):
            x = torch.randn(16, 96)
            expected = ACTIVATIONS[activation](F.linear(x.double(), weight.double(), bias.double()))
            torch.testing.assert_close(step(x).double(), expected, rtol=0, atol=1e-4)
    assert step.is_packed == packs_weights()
    assert set(FUSED) == set(ACTIVATIONS)


@pytest.mark.parametrize("rows", [7, 65])
def test_few_and_many_rows_with_an_activation_are_not_packed(rows: int) -> None:
    step = StepProjection(torch.randn(101, 96), None, "gelu_tanh")
    with torch.inference_mode():
        for _ in range(20):
            step(torch.randn(rows, 96))
    assert not step.is_packed


def test_a_torch_without_the_operators_packs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "packs_weights", lambda: False)
    weight, x = torch.randn(4001, 96), torch.randn(8, 96)
    step = StepProjection(weight)
    with torch.inference_mode():
        for _ in range(20):
            torch.testing.assert_close(step(x), F.linear(x, weight), rtol=0, atol=1e-4)
    assert not step.is_packed


def test_each_search_has_the_weights_of_its_time() -> None:
    torch.manual_seed(6)
    config = ModelConfig(d_model=96, d_ff=64, num_layers=1, num_heads=2, dropout=0.0)
    model = LanguageModel(config, Vocab.shared(4001)).eval()
    ids = torch.randint(4, 4001, (5, 24))
    for _ in range(2):
        with torch.no_grad():
            expected, state = model(ids), model.start(ids[:, :1])
            for position in range(24):
                logits, state = model.step(ids[:, position], state)
                torch.testing.assert_close(logits, expected[:, position], rtol=0, atol=1e-4)
                state = state.select(torch.arange(5))
            assert state.output is not None
            assert state.output.is_packed == packs_weights()
            model.output.weight.mul_(0.5)

"""Products of few rows: split into parts, they are the same products."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from headwise.config import ModelConfig, Vocab
from headwise.model import LanguageModel
from headwise.model.linear import few_rows_linear, linear


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """Compute with one thread and with two, which take different paths."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 64, 65])
@pytest.mark.parametrize("outputs", [1024, 1025, 1026, 16_324])
@pytest.mark.parametrize("has_bias", [True, False])
def test_products_of_few_rows_equal_torchs(
    rows: int, outputs: int, has_bias: bool, threads: int
) -> None:
    torch.manual_seed(5)
    weight, bias = torch.randn(outputs, 257), torch.randn(outputs) if has_bias else None
    x = torch.randn(rows, 257)
    with torch.inference_mode():
        expected = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
        found = few_rows_linear(x, weight, bias)
    assert found.shape == (rows, outputs)
    assert found.is_contiguous()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-4)


def test_a_slice_of_the_weights_is_enough() -> None:
    torch.manual_seed(5)
    weight, bias, x = torch.randn(1536, 512), torch.randn(1536), torch.randn(3, 512)
    with torch.no_grad():
        found = few_rows_linear(x, weight[:512], bias[:512])
    torch.testing.assert_close(found, F.linear(x, weight[:512], bias[:512]), rtol=0, atol=1e-4)


def test_float64_and_gradients_take_the_usual_path() -> None:
    torch.manual_seed(5)
    weight = torch.randn(1024, 256, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 256, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(linear(x, weight, None), F.linear(x, weight))
    linear(x, weight, None).sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize("rows", [1, 3, 9])
def test_steps_of_a_wide_model_equal_full_recomputation(rows: int, threads: int) -> None:
    torch.manual_seed(6)
    config = ModelConfig(d_model=512, d_ff=600, num_layers=2, num_heads=4, dropout=0.0)
    model = LanguageModel(config, Vocab.shared(1000)).eval()
    ids = torch.randint(4, 1000, (rows, 5))
    with torch.inference_mode():
        expected = model(ids)
        state = model.start(ids[:, :1])
        for position in range(5):
            logits, state = model.step(ids[:, position], state)
            torch.testing.assert_close(logits, expected[:, position], rtol=0, atol=1e-4)

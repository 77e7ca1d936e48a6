from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from headwise.model import Transformer
from headwise.runs.weights import model_weights
from headwise.training.distributed import World
from headwise.training.loop import TrainingLoop
from headwise.training.step import TrainingStep
from tests.small_runs import small_config


class Validation:
    """Remembers the weights that it was asked to measure."""

    score = ""

    def __init__(self, error: Exception | None = None) -> None:
        self.measured: list[torch.Tensor] = []
        self._error = error

    def measure(self, step: torch.nn.Module, *_: object) -> str:
        self.measured = [parameter.detach().clone() for parameter in step.parameters()]
        if self._error is not None:
            raise self._error
        return "a result"


@pytest.mark.parametrize("error", [None, RuntimeError("no memory left")])
def test_measuring_other_weights_restores_the_model_s_own(
    build: Callable[..., Transformer], error: Exception | None
) -> None:
    model, other = build(seed=1), build(seed=2)
    valid: Any = Validation(error)
    unused: Any = None
    world = World(rank=0, size=1, device=torch.device("cpu"))
    objective, data = TrainingStep(model, label_smoothing=0.1), SimpleNamespace(batches=None)
    loop = TrainingLoop(
        model, objective, small_config(), cast("Any", data), valid, unused, world, lambda _: None
    )
    own = [parameter.detach().clone() for parameter in model.parameters()]
    if error is None:
        result: object = loop.measure(model_weights(other))
        assert result == "a result"
    else:
        with pytest.raises(RuntimeError, match="^no memory left$"):
            loop.measure(model_weights(other))
    assert all(map(torch.equal, valid.measured, other.parameters()))
    assert all(map(torch.equal, model.parameters(), own))
    assert not all(map(torch.equal, own, other.parameters()))

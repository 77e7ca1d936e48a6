"""Between a model in memory and its tensors by name."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from headwise.errors import CheckpointError

P = TypeVar("P", bound=Tensor)


def model_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters by name; a matrix that is used in several places comes once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_weights(
    model: nn.Module,
    weights: Mapping[str, Tensor],
    source: str,
    *,
    but_for: tuple[str, ...] | None = None,
) -> None:
    """Copy tensors into a model; `source` is how error messages call where they come from.

    With `but_for`, the weights are another kind of model's: parameters whose names begin in one of
    these ways are left as they are, and its output layer is not loaded.
    """
    parameters = dict(model.named_parameters())
    if but_for is not None:
        parameters, weights = shared_parameters(parameters, weights, but_for)
    check_names(parameters, weights, source)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def shared_parameters(
    parameters: Mapping[str, P], weights: Mapping[str, Tensor], but_for: tuple[str, ...]
) -> tuple[dict[str, P], dict[str, Tensor]]:
    """Return the parameters that are to come from another kind of model, and those found of it.

    Its output layer is not loaded. Anything else that the new model lacks, such as
    the norm of its embeddings, is left among those found, for `check_names` to refuse.
    """
    wanted = {name: each for name, each in parameters.items() if not name.startswith(but_for)}
    unused = ("output.", *but_for)
    return wanted, {name: each for name, each in weights.items() if not name.startswith(unused)}


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Adam) -> dict[str, Tensor]:
    """Return Adam's tensors by parameter name and by what they are."""
    return {
        f"{name}.{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }


def load_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Adam,
    tensors: Mapping[str, Tensor],
    source: str,
) -> None:
    """Put Adam's tensors back."""
    expected: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        expected |= {f"{name}.exp_avg": parameter, f"{name}.exp_avg_sq": parameter}
        expected[f"{name}.step"] = torch.zeros((), dtype=torch.float32)
    check_names(expected, tensors, source)
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            key: tensors[f"{name}.{key}"].to(parameter.device, expected[f"{name}.{key}"].dtype)
            for key in ("step", "exp_avg", "exp_avg_sq")
        }


def check_names(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], source: str) -> None:
    """Raise CheckpointError unless the tensors found have the names and shapes expected.

    Numbers of another floating-point type are taken if the expected type holds all of them
    exactly, as float32 does those of bfloat16.
    """
    for name in expected.keys() - found.keys():
        raise CheckpointError(f"{source}: has no tensor {name!r}: it is of another model")
    for name in found.keys() - expected.keys():
        raise CheckpointError(f"{source}: tensor {name!r:.100} is of another model")
    for name, tensor in expected.items():
        if found[name].shape != tensor.shape:
            raise CheckpointError(
                f"{source}: tensor {name!r} has shape {tuple(found[name].shape)}, "
                f"not {tuple(tensor.shape)}: it is of another model"
            )
        if not _fits(found[name].dtype, tensor.dtype):
            raise CheckpointError(
                f"{source}: tensor {name!r} is of type {_name(found[name].dtype)}, "
                f"not {_name(tensor.dtype)}"
            )


def _fits(found: torch.dtype, expected: torch.dtype) -> bool:
    return found.is_floating_point and torch.promote_types(found, expected) == expected


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")

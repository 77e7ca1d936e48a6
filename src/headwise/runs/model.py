"""A run's weights in a model that can be used."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from torch import Tensor, nn

from headwise.errors import CheckpointError, HeadwiseError, UnsafeFileError
from headwise.runs.checkpoint import describe_weights, read_weights
from headwise.runs.checkpoints import choose
from headwise.runs.directory import RunDirectory
from headwise.runs.weights import load_weights

M = TypeVar("M", bound=nn.Module)


def load_trained(
    run: RunDirectory, which: str | None, *, parameters: int, build: Callable[[], M]
) -> tuple[M, Path]:
    """Build a model and load "averaged", "best", "last" or a step; return it and what was loaded.

    By default it is the first of these that there is. `parameters` is how many the config
    describes: the model is built only if the weights are as many.
    """
    weights = choose(run, which)
    try:
        _check_size(run, parameters, weights, describe_weights(run.inside(weights)))
        model = build()
    except CheckpointError:
        raise
    except HeadwiseError as error:
        raise CheckpointError(f"{run.path}: {error}") from error
    load_weights(model, read_weights(run.inside(weights)), str(weights))
    return model.eval(), weights


def check_last_checkpoint(run: RunDirectory, parameters: int) -> None:
    """Compare the config with the last checkpoint that is not damaged, before a model is built."""
    for step in reversed(run.steps()):
        weights = run.step_directory(step)
        try:
            found = describe_weights(run.inside(weights))
        except UnsafeFileError:
            raise
        except CheckpointError:
            continue
        _check_size(run, parameters, weights, found)
        return


def _check_size(run: RunDirectory, described: int, weights: Path, found: dict[str, Tensor]) -> None:
    """Compare the config with the weights before a model of its size is built.

    By the number of parameters, which the file's header tells. Names and shapes are compared when
    the weights are loaded: to build the model on the device "meta" for it took 1.3 s, more than all
    the rest of loading a small one.
    """
    held = sum(tensor.numel() for tensor in found.values())
    if described != held:
        raise CheckpointError(
            f"{weights}: has {held:,} parameters, and {run.config_file} with the run's tokenizer "
            f"describes {described:,}: they are of different models"
        )

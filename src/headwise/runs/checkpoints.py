"""The checkpoints of a run together: which to go on from, which to use, which to keep."""

import math
from pathlib import Path

import torch

from headwise.errors import CheckpointError, UnsafeFileError
from headwise.files import remove_directory, replaced_directory
from headwise.runs.checkpoint import (
    WEIGHTS,
    Checkpoint,
    read_checkpoint,
    read_state,
    read_weights,
    verify,
    write_weights,
)
from headwise.runs.directory import RunDirectory
from headwise.runs.state import TrainingState


def last_good(run: RunDirectory, *, set_aside: bool = True) -> tuple[Checkpoint | None, list[str]]:
    """Read the last checkpoint that is whole; say what is wrong with each later one.

    A later one that is damaged is set aside under another name, to be looked at and out of the
    way. Where there are checkpoints and none is whole, CheckpointError says so; where there are
    none, there is nothing to read.
    """
    problems: list[str] = []
    damaged: list[Path] = []
    for step in reversed(run.steps()):
        directory = run.step_directory(step)
        try:
            checkpoint = read_checkpoint(run.inside(directory))
            if checkpoint.state.step != step:
                raise CheckpointError(f"{directory}: holds step {checkpoint.state.step}")
        except UnsafeFileError:
            raise
        except CheckpointError as error:
            problems.append(str(error))
            damaged.append(directory)
            continue
        for path in damaged if set_aside else ():
            _set_aside(path)
        return checkpoint, problems
    if problems:
        raise CheckpointError(
            f"{run.checkpoints}: no checkpoint can be used: {'; '.join(problems)}. "
            "Restore one from a copy, or remove the folder to start over"
        )
    return None, []


def choose(run: RunDirectory, which: str | None = None) -> Path:
    """Find the weights to use: "averaged", "best", "last", or a step; by default in that order."""
    steps = run.steps()
    if which is None:
        if run.inside(run.averaged).exists():
            return run.averaged
        which = "best" if steps else "last"
    if which == "averaged":
        if not run.inside(run.averaged).exists():
            raise CheckpointError(f"{run.averaged} does not exist: `headwise average` makes it")
        return run.averaged
    if which.isdecimal():
        # Of a number as long as a book, Python does not know the value.
        if len(which) > 20 or int(which) not in steps:
            known = ", ".join(map(str, steps)) or "none"
            raise CheckpointError(
                f"{run.path} has no checkpoint of step {which[:20]}, but: {known}"
            )
        return run.step_directory(int(which))
    if which not in ("best", "last"):
        raise CheckpointError(
            f"no checkpoint {which!r}: it is averaged, best, last or the number of a step"
        )
    if not steps:
        raise CheckpointError(f"{run.path} has no checkpoint yet")
    step = _best_step(run, steps) if which == "best" else steps[-1]
    return run.step_directory(step)


def average(run: RunDirectory, last: int) -> tuple[list[int], list[str]]:
    """Average the weights of the last checkpoints into RUN/averaged.

    Return their steps, and what is wrong with those that were passed over. Checkpoints saved
    because training was told to stop are not among them: the average is the one that an
    undisturbed run would have.

    Paper: §6.1, the last 5 checkpoints (base) or 20 (big), written at 10-minute intervals.
    """
    steps: list[int] = []
    problems: list[str] = []
    for step in reversed(due_steps(run)):
        if len(steps) == last:
            break
        try:
            verify(run.inside(run.step_directory(step)), (WEIGHTS,))
        except UnsafeFileError:
            raise
        except CheckpointError as error:
            problems.append(str(error))
            continue
        steps.insert(0, step)
    if not steps:
        why = f": {'; '.join(problems)}" if problems else ""
        raise CheckpointError(f"{run.path} has no checkpoint to average yet{why}")
    sums: dict[str, torch.Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for step in steps:
        weights = read_weights(run.inside(run.step_directory(step)))
        if sums and {name: w.shape for name, w in weights.items()} != {
            name: total.shape for name, total in sums.items()
        }:
            raise CheckpointError(f"{run.step_directory(step)}: not of the same model")
        for name, weight in weights.items():
            dtypes[name] = weight.dtype
            # In double precision, so that the order of the checkpoints leaves no trace.
            sums[name] = sums[name] + weight if name in sums else weight.double()
    averaged = {name: (total / len(steps)).to(dtypes[name]) for name, total in sums.items()}
    with replaced_directory(run.averaged) as directory:
        write_weights(directory, averaged, {"steps": steps})
    return steps, problems


def due_steps(run: RunDirectory) -> list[int]:
    """List the steps of the checkpoints that were due, not saved on being told to stop.

    One that is damaged is not among them.
    """
    return [step for step, state in _states(run).items() if not state.interrupted]


def prune(run: RunDirectory, *, keep: int, best: int) -> None:
    """Remove checkpoints but for the last `keep` that were due, the best and the last.

    One that was saved on being told to stop goes as soon as a later one exists. A damaged one
    neither counts nor goes: it is for whoever resumes to find.
    """
    states = _states(run)
    due = [step for step, state in states.items() if not state.interrupted]
    kept = {*due[-keep:], best, *run.steps()[-1:]}
    for step in states.keys() - kept:
        remove_directory(run.step_directory(step))


def _states(run: RunDirectory) -> dict[int, TrainingState]:
    """Read the states of all checkpoints whose state can be read."""
    states = {}
    for step in run.steps():
        try:
            states[step] = read_state(run.inside(run.step_directory(step)))
        except UnsafeFileError:
            raise
        except CheckpointError:
            continue
    return states


def _best_step(run: RunDirectory, steps: list[int]) -> int:
    """Return the step with the highest score, else the lowest loss; the last if none has either."""
    states = _states(run)
    for scores in (
        {step: -state.valid_score for step, state in states.items()},
        {step: state.valid_loss for step, state in states.items()},
    ):
        known = {step: score for step, score in scores.items() if math.isfinite(score)}
        if known:
            return min(reversed(known), key=lambda step: known[step])
    return steps[-1]


def _set_aside(directory: Path) -> None:
    target = directory.with_name(f"damaged-{directory.name}")
    if target.exists():
        remove_directory(target)
    directory.rename(target)

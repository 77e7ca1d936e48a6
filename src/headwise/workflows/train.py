"""From text, or from prepared data, to a trained run directory."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from headwise.config import AnyConfig
from headwise.data.batches import Batches, Indices, Rows
from headwise.errors import CheckpointError
from headwise.model.build import build_model
from headwise.runs.checkpoint import read_manifest, read_weights
from headwise.runs.checkpoints import average, choose, due_steps, last_good
from headwise.runs.directory import RunDirectory
from headwise.runs.environment import describe, record_session
from headwise.runs.model import check_last_checkpoint
from headwise.runs.state import TrainingState
from headwise.runs.weights import load_weights
from headwise.seeding import keyed_seed
from headwise.training.distributed import World
from headwise.training.estimate import estimate, small_batch
from headwise.training.events import Event, Note
from headwise.training.loop import TrainingLoop, TrainingSet
from headwise.training.stops import stop_signals
from headwise.training.task import (
    AugmentsTraining,
    PreparedReport,
    Progress,
    Source,
    ValidationData,
)
from headwise.training.validation import Collate, Validation, ValidationResult
from headwise.workflows.runs import (
    Inputs,
    Run,
    fresh_parameters,
    open_or_create,
    training_batches,
)


@dataclass(frozen=True, kw_only=True)
class TrainReport:
    """How a training session ended."""

    run: Path
    is_first: bool
    """Whether this process is the one to speak, of those that train together."""
    state: TrainingState
    reason: str
    """Which limit was reached, or that training was told to stop."""
    signal: int = 0
    """The signal that told it, if one did."""
    averaged_steps: tuple[int, ...] = ()
    """The checkpoints that the final model is the average of."""
    averaged: ValidationResult | None = None
    """How well that average does on the validation text."""


def train(
    config: AnyConfig,
    run: str | Path,
    *,
    text: Source | None = None,
    valid: Source | None = None,
    data: str | Path | None = None,
    init_from: str | Path | None = None,
    device: str | None = None,
    lenient: bool = False,
    processes: int | None = None,
    on_event: Callable[[Event], None] = lambda _: None,
    on_progress: Progress = lambda *_: None,
    on_prepared: Callable[[PreparedReport], None] = lambda _: None,
) -> TrainReport:
    """Train a model in a run directory, or go on with the training begun there.

    A new run takes its files as `text` (what kind of files, the config's task says), which are
    encoded first, or prepared `data`. Without validation files, some examples are held out.
    `init_from` is a run whose weights, and tokenizer, this one starts from. A run that exists is
    resumed if the config is the same, and is a ConfigError listing the differences if not. SIGTERM
    and SIGINT save the last whole update and return.
    """
    world = World.join(device)
    try:
        inputs = Inputs(
            source=text,
            valid=valid,
            data=None if data is None else Path(data),
            init_from=None if init_from is None else RunDirectory(Path(init_from)),
            lenient=lenient,
            processes=processes,
        )

        def open_run() -> Run:
            return open_or_create(
                Path(run),
                config,
                inputs,
                may_create=world.is_first,
                on_progress=on_progress,
                on_prepared=on_prepared,
            )

        opened = open_run() if world.is_first else None
        world.wait()
        opened = opened or open_run()
        with opened.directory.locked() if world.is_first else nullcontext():
            tell = on_event if world.is_first else (lambda _: None)
            return _train(opened, world, tell)
    finally:
        world.leave()


def _train(run: Run, world: World, tell: Callable[[Event], None]) -> TrainReport:
    # A function of its own, so that nothing of the loop is left when the processes part: taking
    # leave while DistributedDataParallel is still held would hang now and then.
    loop = _loop(run, world, tell)
    with stop_signals() as wish:
        ending = loop.run(wish)
    directory = run.directory
    steps: list[int] = []
    if not ending.signal:
        steps = _average(directory, run.config.train.average_last, world, tell)
    return TrainReport(
        run=directory.path,
        is_first=world.is_first,
        state=ending.state,
        reason=ending.reason,
        signal=ending.signal,
        averaged_steps=tuple(steps),
        averaged=loop.measure(read_weights(directory.inside(directory.averaged)))
        if steps
        else None,
    )


def _loop(run: Run, world: World, tell: Callable[[Event], None]) -> TrainingLoop:
    """Put the loop together, where the last good checkpoint left it."""
    config, task, directory = run.config, run.task, run.directory
    if run.data.root != directory.path:
        tell(Note(text=f"the run's data is in {run.data.path}"))
    train, valid = run.shards("train"), run.shards("valid")
    if world.is_first:
        sizes = {f.name: run.vocab.size(f.vocab) for f in task.fields if f.vocab}
        for part in (train, valid):
            part.verify(sizes)
    batches, valid_batches = (training_batches(part, config, task) for part in (train, valid))
    for part, cut in ((train, batches), (valid, valid_batches)):
        if count := len(cut.too_long):
            what = f"{count:,} of {len(part):,} {task.unit} in {part.directory}"
            text = f"{what} are longer than a batch or than the model's positions: left out"
            tell(Note(text=text, is_warning=True))

    def collate(of: Batches) -> Collate:
        def read(examples: Indices, epoch: int) -> tuple[Tensor, ...]:
            key = config.train.seed, epoch
            rows: Rows = of.read(examples)
            if of is batches and isinstance(task, AugmentsTraining):
                rows = task.augment(rows, config, key)
            return task.collate(rows, run.vocab, key)

        return read

    validation = None
    if len(valid_batches):
        data = ValidationData(shards=valid, batches=valid_batches, folder=directory.folder)
        evaluator = task.evaluator(data, config)
        validation = Validation(valid_batches, collate(valid_batches), evaluator)
    else:
        tell(Note(text=f"there are no {task.unit} to validate on", is_warning=True))
    check_last_checkpoint(directory, config.model.count_parameters(run.vocab, run.assembly))
    model = _new_model(run)
    objective = task.objective(model, config)
    training_set = TrainingSet(batches=batches, collate=collate(batches), unit=task.unit)
    loop = TrainingLoop(model, objective, config, training_set, validation, directory, world, tell)
    checkpoint, problems = last_good(directory, set_aside=world.is_first)
    for problem in problems:
        tell(Note(text=problem, is_warning=True))
    if checkpoint is not None:
        loop.resume(checkpoint)
        tell(Note(text=f"going on from step {checkpoint.state.step:,} of {directory.path}"))
    elif origin := directory.origin().get("init_from"):
        first = RunDirectory(Path(origin))
        chosen = choose(first)
        fresh = fresh_parameters(task, first, directory.folder)
        load_weights(model, read_weights(first.inside(chosen)), str(chosen), but_for=fresh)
        text = f"starting from the weights of {chosen}"
        if fresh is not None:
            text += f", but for {', '.join(f'{name}*' for name in fresh)}"
        tell(Note(text=text))
    step = 0 if checkpoint is None else checkpoint.state.step
    if world.is_first:
        for warning in record_session(directory, describe(world.device, world.size), step):
            text = f"{warning}: the run goes on, but not bit for bit as it would have"
            tell(Note(text=text, is_warning=True))
        if checkpoint is None:
            tell(
                estimate(
                    objective,
                    config,
                    training_set.collate(small_batch(batches), 0),
                    epoch_tokens=batches.target_tokens,
                    targets_each=batches.targets_each(),
                    processes=world.size,
                    device=world.device,
                )
            )
    return loop


def _new_model(run: Run) -> nn.Module:
    """Draw the first weights, by the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed("weights", run.config.train.seed))
        return build_model(run.config.model, run.vocab, run.assembly)


def _average(
    run: RunDirectory, last: int, world: World, tell: Callable[[Event], None]
) -> list[int]:
    """Average the last checkpoints, unless there is an average that ends with the last of them."""
    due = due_steps(run) if last > 1 else []
    if not due:
        return []
    if world.is_first and _averaged_steps(run)[-1:] != due[-1:]:
        _, problems = average(run, last)
        for problem in problems:
            tell(Note(text=problem, is_warning=True))
    world.wait()
    return _averaged_steps(run)


def _averaged_steps(run: RunDirectory) -> list[int]:
    try:
        steps = read_manifest(run.inside(run.averaged)).notes.get("steps")
    except CheckpointError:
        return []
    return steps if isinstance(steps, list) else []

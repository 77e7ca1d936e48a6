"""From text, or from prepared data, to a trained run directory."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from headwise.config import Config, Vocab
from headwise.data import PreparedReport, Text, TokenShards
from headwise.data.prepare import Progress
from headwise.errors import CheckpointError
from headwise.model import Transformer
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
from headwise.training.loop import TrainingLoop
from headwise.training.stops import stop_signals
from headwise.training.validation import ValidationResult, ValidationText
from headwise.training.validation_bleu import ValidationBleu
from headwise.workflows.new_run import check_run, data_folder, make_run, training_batches


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
    config: Config,
    run: str | Path,
    *,
    text: Text | None = None,
    valid: Text | None = None,
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

    A new run takes its text, which is cut into subwords and encoded first, or `data` that
    `headwise.data.prepare` made. Without validation text, some pairs are held out. `init_from` is a
    run whose weights, and subwords, this one starts from. A run that exists is gone on with if the
    config is the same, and is a ConfigError listing the differences if not. SIGTERM and SIGINT
    save the last whole update and return.
    """
    world = World.join(device)
    try:
        path, prepared = Path(run), None if data is None else Path(data)
        first = None if init_from is None else RunDirectory(Path(init_from))
        if world.is_first and not (path / "config.toml").exists():
            report = make_run(
                path,
                config,
                text=text,
                valid=valid,
                data=prepared,
                init_from=first,
                lenient=lenient,
                processes=processes,
                on_progress=on_progress,
            )
            if report is not None:
                on_prepared(report)
        world.wait()
        directory = RunDirectory(path)
        check_run(directory, config, text=text, valid=valid, data=prepared, init_from=first)
        with directory.locked() if world.is_first else nullcontext():
            tell = on_event if world.is_first else (lambda _: None)
            return _train(directory, config, prepared, world, tell)
    finally:
        world.leave()


def _train(
    run: RunDirectory,
    config: Config,
    data: Path | None,
    world: World,
    tell: Callable[[Event], None],
) -> TrainReport:
    # A function of its own, so that nothing of the loop is left when the processes part: taking
    # leave while DistributedDataParallel is still held would hang now and then.
    loop = _loop(run, config, data, world, tell)
    with stop_signals() as wish:
        ending = loop.run(wish)
    steps = [] if ending.signal else _average(run, config.train.average_last, world, tell)
    return TrainReport(
        run=run.path,
        is_first=world.is_first,
        state=ending.state,
        reason=ending.reason,
        signal=ending.signal,
        averaged_steps=tuple(steps),
        averaged=loop.measure(read_weights(run.inside(run.averaged))) if steps else None,
    )


def _loop(
    run: RunDirectory,
    config: Config,
    data: Path | None,
    world: World,
    tell: Callable[[Event], None],
) -> TrainingLoop:
    """Put the loop together, where the last good checkpoint left it."""
    source, target = run.subwords()
    vocab = Vocab(source_size=len(source), target_size=len(target))
    folder = data_folder(run, data)
    if data is None and folder.root != run.path:
        tell(Note(text=f"the run's text is in {folder.path}, as its origin.json says"))
    shards = TokenShards(folder / "train"), TokenShards(folder / "valid")
    if world.is_first:
        for part in shards:
            part.verify({"source": len(source), "target": len(target)})
    batches, valid_batches = (training_batches(part, config) for part in shards)
    for part, cut in zip(shards, (batches, valid_batches), strict=True):
        if count := len(cut.too_long):
            what = f"{count:,} of {len(part):,} pairs in {part.directory} are longer than a batch"
            tell(Note(text=f"{what} or than the model's positions: left out", is_warning=True))
    valid, bleu = None, None
    if len(valid_batches):
        valid = ValidationText(valid_batches, shards[1], target)
        if config.train.bleu_pairs:
            bleu = ValidationBleu(valid_batches, shards[1], target, config)
    else:
        tell(Note(text="there are no pairs to validate on", is_warning=True))
    check_last_checkpoint(run, config, vocab)
    model = _new_model(config, vocab)
    loop = TrainingLoop(model, config, batches, valid, bleu, run, world, tell)
    checkpoint, problems = last_good(run, set_aside=world.is_first)
    for problem in problems:
        tell(Note(text=problem, is_warning=True))
    if checkpoint is not None:
        loop.resume(checkpoint)
        tell(Note(text=f"going on from step {checkpoint.state.step:,} of {run.path}"))
    elif origin := run.origin().get("init_from"):
        first = RunDirectory(Path(origin))
        chosen = choose(first)
        load_weights(model, read_weights(first.inside(chosen)), str(chosen))
        tell(Note(text=f"starting from the weights of {chosen}"))
    step = 0 if checkpoint is None else checkpoint.state.step
    if world.is_first:
        for warning in record_session(run, describe(world.device, world.size), step):
            text = f"{warning}: the run goes on, but not bit for bit as it would have"
            tell(Note(text=text, is_warning=True))
        if checkpoint is None:
            tell(
                estimate(
                    loop.plain_step,
                    config,
                    small_batch(batches),
                    epoch_tokens=batches.target_tokens,
                    processes=world.size,
                    device=world.device,
                )
            )
    return loop


def _new_model(config: Config, vocab: Vocab) -> Transformer:
    """Draw the first weights, by the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed("weights", config.train.seed))
        return Transformer(config.model, vocab)


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

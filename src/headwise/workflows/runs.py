"""Open a run to train it, or create it from a task's files or from prepared data."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headwise.config import AnyConfig, Assembly, Vocab
from headwise.data import TokenShards
from headwise.data.batches import Batches
from headwise.data.shards import MANIFEST, MOST_MANIFEST_BYTES
from headwise.data.tokenizer import copy_tokenizer, same_tokenizer
from headwise.errors import ConfigError, DataError
from headwise.files import Folder, new_directory, sync_directory, write_file
from headwise.model.build import build_model
from headwise.runs.checkpoint import describe_weights
from headwise.runs.checkpoints import choose
from headwise.runs.directory import RunDirectory, differences
from headwise.runs.weights import check_names, shared_parameters
from headwise.tasks.table import load_task, task_inputs
from headwise.training.task import (
    CompletesConfig,
    PreparedReport,
    Progress,
    RecordsOrigin,
    RenewsOutputs,
    Source,
    StartsFromOthers,
    Task,
)

_SHARDS = ("train", "valid")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run is made from: files or prepared data, and the run whose weights it starts from."""

    source: Source | None = None
    valid: Source | None = None
    data: Path | None = None
    """Prepared data, instead of files."""
    init_from: RunDirectory | None = None
    lenient: bool = False
    """Whether to leave out lines that cannot be read, and count them."""
    processes: int | None = None
    """How many encode; by default one for each core."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run directory and everything that training needs of it but the weights."""

    directory: RunDirectory
    config: AnyConfig
    task: Task
    vocab: Vocab
    data: Folder
    """Where the training data is."""

    @property
    def assembly(self) -> Assembly:
        """What its model is built of."""
        return self.config.row.assembly

    def shards(self, part: str) -> TokenShards:
        """Open the "train" or "valid" part of the data."""
        return TokenShards(self.data / part)


def open_or_create(
    path: Path,
    config: AnyConfig,
    inputs: Inputs,
    *,
    may_create: bool = True,
    on_progress: Progress = lambda *_: None,
    on_prepared: Callable[[PreparedReport], None] = lambda _: None,
) -> Run:
    """Open a run, which must be the one asked for; where there is none, create it first.

    A run with another config, or made from other files, is a ConfigError that lists the
    differences. Of processes that train together, one creates it: the others call this after it.
    """
    task = load_task(config)
    if may_create and not (path / "config.toml").exists():
        report = create(path, config, task, inputs, on_progress)
        if report is not None:
            on_prepared(report)
    directory = RunDirectory(path)
    check_same(directory, config, task, inputs)
    return Run(
        directory=directory,
        config=config,
        task=task,
        vocab=task.vocab(config, directory.folder),
        data=_data_folder(directory, inputs.data),
    )


def create(
    path: Path, config: AnyConfig, task: Task, inputs: Inputs, on_progress: Progress
) -> PreparedReport | None:
    """Make a run directory, whole or not at all; return what became of its files, if any."""
    if not path.name:
        raise ConfigError(f"--run {path}: give the run a directory of its own, as in runs/ende")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{path} exists and is not a run: choose another name for --run")
    if path.is_symlink() or path.is_mount():
        # What is made aside could not take its place.
        raise ConfigError(f"{path} is a link or a mount: name a new directory inside it")
    if (inputs.source is None) == (inputs.data is None):
        from_files = task_inputs(config.row).needed
        raise ConfigError(f"{path} is a new run: give its {from_files}, or prepared --data")
    report, first = None, inputs.init_from
    with new_directory(path) as temporary:
        if inputs.source is not None:
            report = task.prepare(
                inputs.source,
                config,
                temporary / "data",
                valid=inputs.valid,
                lenient=inputs.lenient,
                processes=inputs.processes,
                tokenizer_from=None if first is None else first.folder,
                on_progress=on_progress,
            )
        prepared = Folder.of(inputs.data or temporary / "data")
        fresh = None if first is None else fresh_parameters(task, first, prepared)
        if first is not None and fresh is None and not same_tokenizer(prepared, first.folder):
            raise ConfigError(
                f"{prepared.path} was made with another tokenizer than {first.path}: "
                "give its files instead of --data, and they are encoded as that run's were"
            )
        copy_tokenizer(prepared, temporary)
        _check_trainable(prepared, config, task, first)
        if inputs.data is not None:
            # For `report` and `export`, which do not look for data outside the run.
            (temporary / "data").mkdir()
            TokenShards(prepared / "valid").copy_to(temporary / "data" / "valid")
            sync_directory(temporary / "data")
        origin = {
            "text": None if inputs.source is None else inputs.source.describe(),
            "valid": None if inputs.valid is None else inputs.valid.describe(),
            "data": None if inputs.data is None else str(inputs.data.resolve()),
            "data_sha256": fingerprint(prepared.path),
            "init_from": None if first is None else str(first.path.resolve()),
            **_origin(task, prepared),
        }
        write_file(temporary / "origin.json", json.dumps(origin, indent=1).encode())
        (temporary / "checkpoints").mkdir()
        complete = _completed(task, config, inputs.source, None)
        write_file(temporary / "config.toml", complete.to_toml().encode())
    return report


def fresh_parameters(task: Task, first: RunDirectory, own: Folder) -> tuple[str, ...] | None:
    """Return how the names of the parameters begin that are not taken from a run to start from.

    None if all of them are, as from a run of the same task, unless that has other outputs than the
    new run or prepared data, `own`. A run of a task that has no part in common is a ConfigError.
    """
    other = first.config().task
    if other == task.name:
        renewed = task.renewed(first.folder, own) if isinstance(task, RenewsOutputs) else ()
        return renewed or None
    if not isinstance(task, StartsFromOthers) or other not in task.starts_from:
        raise ConfigError(f"--init-from {first.path} is a run of {other}, not of {task.name}")
    return task.starts_from[other]


def check_same(run: RunDirectory, config: AnyConfig, task: Task, inputs: Inputs) -> None:
    """Raise ConfigError, listing the differences, unless a run is the one that is asked for."""
    before = run.config()
    if before.task != config.task:
        found = [f"task is {before.task!r} there and {config.task!r} here"]
    elif before.row.input != config.row.input:
        found = [f"data.input is {before.row.input!r} there and {config.row.input!r} here"]
    else:
        found = differences(before, _completed(task, config, None, before))
    origin = run.origin()
    for name, given in (("text", inputs.source), ("valid", inputs.valid)):
        if given is not None and given.describe() != origin.get(name):
            found.append(f"the {name} files are {_names(origin.get(name))} there")
    if inputs.data is not None and fingerprint(inputs.data) != origin.get("data_sha256"):
        found.append(f"--data {inputs.data} is not what the run was made from")
    first = inputs.init_from
    if first is not None and str(first.path.resolve()) != origin.get("init_from"):
        found.append(f"--init-from is {origin.get('init_from')!r} there")
    if found:
        raise ConfigError(
            f"{run.path} is another run: {'; '.join(found)}. "
            "Choose another name for --run, or give the same settings to go on with this one"
        )


def training_batches(shards: TokenShards, config: AnyConfig, task: Task) -> Batches:
    """Cut examples into batches, without those that the model cannot take."""
    train = config.train
    return Batches(
        shards,
        task.fields,
        batch_tokens=train.batch_tokens,
        seed=train.seed,
        longest=config.model.longest,
    )


def fingerprint(data: Path) -> dict[str, str]:
    """Return the digests of prepared data's manifests, which hold those of everything else."""
    digests = {}
    for name in _SHARDS:
        path = data / name / MANIFEST
        try:
            content = (Folder.of(data) / name).read(MANIFEST, MOST_MANIFEST_BYTES)
            digests[name] = hashlib.sha256(content).hexdigest()
        except OSError as error:
            raise DataError(
                f"{path}: cannot be read: {error.strerror}: is {data} prepared data?"
            ) from error
    return digests


def _check_trainable(
    prepared: Folder, config: AnyConfig, task: Task, init_from: RunDirectory | None
) -> None:
    """Find what would stop training before its first update, while there is no run yet."""
    shards = TokenShards(prepared / "train")
    if not len(training_batches(shards, config, task)):
        raise DataError(
            f"none of {len(shards):,} {task.unit} fits a batch: raise train.batch_tokens, or "
            "model.max_positions where positions are learned"
        )
    assembly = config.row.assembly
    with torch.device("meta"):
        model = build_model(config.model, task.vocab(config, prepared), assembly)
    if init_from is not None:
        chosen = choose(init_from)
        found = describe_weights(init_from.inside(chosen))
        parameters: dict[str, Tensor] = dict(model.named_parameters())
        fresh = fresh_parameters(task, init_from, prepared)
        if fresh is not None:
            parameters, found = shared_parameters(parameters, found, fresh)
        check_names(parameters, found, str(chosen))


def _data_folder(run: RunDirectory, data: Path | None) -> Folder:
    """Find the data of a run: its own, the one given, or the one it was made from.

    Only for training: where the last of these is, origin.json says, and a stranger may have
    written that.
    """
    own, elsewhere = run.folder / "data", run.origin().get("data")
    if (own / "train").exists() or (data is None and elsewhere is None):
        return own
    directory = data or Path(str(elsewhere))
    if not directory.is_dir():
        raise DataError(f"{directory}: the run's data is no longer there: give it with --data")
    if fingerprint(directory) != run.origin().get("data_sha256"):
        raise DataError(
            f"{directory}: not the data that the run was made from: give it with --data"
        )
    return Folder.of(directory)


def _completed(
    task: Task, config: AnyConfig, source: Source | None, before: AnyConfig | None
) -> AnyConfig:
    return task.complete(config, source, before) if isinstance(task, CompletesConfig) else config


def _origin(task: Task, prepared: Folder) -> dict[str, Any]:
    if not isinstance(task, RecordsOrigin):
        return {}
    return task.origin(TokenShards(prepared / "train"))


def _names(files: Any) -> str:
    if not files:
        return "none"
    if not isinstance(files, list) or not all(isinstance(file, list) for file in files):
        return "unknown"
    return ", ".join(f"{file[0]} ({file[1]} bytes)" for file in files if len(file) > 1)

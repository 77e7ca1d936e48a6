"""Make a run directory, or make sure that the one that is there is the run that is asked for."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headwise.config import Config, Vocab
from headwise.data import (
    ParallelFiles,
    PreparedReport,
    Subwords,
    Text,
    TokenShards,
    TsvFile,
    load_subwords,
    prepare,
    save_subwords,
)
from headwise.data.batches import Batches
from headwise.data.prepare import Progress
from headwise.data.shards import MANIFEST, MOST_MANIFEST_BYTES
from headwise.errors import ConfigError, DataError
from headwise.files import Folder, new_directory, sync_directory, write_file
from headwise.languages import is_known
from headwise.model import Transformer
from headwise.runs.checkpoint import describe_weights
from headwise.runs.checkpoints import choose
from headwise.runs.directory import RunDirectory, differences
from headwise.runs.weights import check_names

_SHARDS = ("train", "valid")


def make_run(
    path: Path,
    config: Config,
    *,
    text: Text | None,
    valid: Text | None,
    data: Path | None,
    init_from: RunDirectory | None,
    lenient: bool,
    processes: int | None,
    on_progress: Progress,
) -> PreparedReport | None:
    """Make a run directory, whole or not at all; return what became of its text, if it had any."""
    if not path.name:
        raise ConfigError(f"--run {path}: give the run a directory of its own, as in runs/ende")
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{path} exists and is not a run: choose another name for --run")
    if path.is_symlink() or path.is_mount():
        # What is made aside could not take its place.
        raise ConfigError(f"{path} is a link or a mount: name a new directory inside it")
    if (text is None) == (data is None):
        raise ConfigError(
            f"{path} is a new run: give its text (--src and --tgt, or --tsv), or prepared --data"
        )
    report = None
    with new_directory(path) as temporary:
        if text is not None:
            report = prepare(
                text,
                config,
                temporary / "data",
                valid=valid,
                lenient=lenient,
                processes=processes,
                subwords=None if init_from is None else init_from.subwords(),
                on_progress=on_progress,
            )
        prepared = temporary / "data" if data is None else data
        cut_by = load_subwords(prepared)
        if init_from is not None and cut_by != init_from.subwords():
            raise ConfigError(
                f"{prepared} was cut into other subwords than {init_from.path}: "
                "give its text instead of --data, and it is cut as that run's was"
            )
        save_subwords(temporary, *cut_by)
        _check_trainable(prepared, config, cut_by, init_from)
        if data is not None:
            # For `report` and `export`, which do not look for text outside the run.
            (temporary / "data").mkdir()
            TokenShards(Folder.of(data) / "valid").copy_to(temporary / "data" / "valid")
            sync_directory(temporary / "data")
        shards = TokenShards(Folder.of(prepared) / "train")
        origin = {
            "text": describe_text(text),
            "valid": describe_text(valid),
            "data": None if data is None else str(data.resolve()),
            "data_sha256": fingerprint(prepared),
            "init_from": None if init_from is None else str(init_from.path.resolve()),
            "longest_source": int(shards.lengths("source").max(initial=0)),
            "train_pairs": len(shards),
        }
        write_file(temporary / "origin.json", json.dumps(origin, indent=1).encode())
        (temporary / "checkpoints").mkdir()
        spoken = with_languages(config, _languages_of(text))
        write_file(temporary / "config.toml", spoken.to_toml().encode())
    return report


def with_languages(config: Config, languages: tuple[str, str]) -> Config:
    """Return a config with its languages or, where it says nothing of them, with these."""
    if config.data.source_language or config.data.target_language:
        return config
    source, target = languages
    data = replace(config.data, source_language=source, target_language=target)
    return replace(config, data=data)


def _languages_of(text: Text | None) -> tuple[str, str]:
    """Return the languages that files have in their names, as train.en and train.de.gz do."""
    if not isinstance(text, ParallelFiles):
        return "", ""
    source, target = ({_ending(path) for path in paths} for paths in (text.sources, text.targets))
    found = {*source, *target}
    if len(source) == len(target) == 1 and len(found) == 2 and all(map(is_known, found)):
        return source.pop(), target.pop()
    return "", ""


def _ending(path: Path) -> str:
    """Return what a file's name ends with, not counting how it is compressed."""
    name = path.with_suffix("") if path.suffix in (".gz", ".xz", ".zst") else path
    return name.suffix.removeprefix(".")


def training_batches(shards: TokenShards, config: Config) -> Batches:
    """Cut pairs into batches, without those that the model cannot take."""
    model, train = config.model, config.train
    longest = model.max_positions if model.positions == "learned" else None
    return Batches(shards, batch_tokens=train.batch_tokens, seed=train.seed, longest=longest)


def _check_trainable(
    prepared: Path,
    config: Config,
    subwords: tuple[Subwords, Subwords],
    init_from: RunDirectory | None,
) -> None:
    """Find what would stop training before its first update, while there is no run yet."""
    shards = TokenShards(Folder.of(prepared) / "train")
    if not len(training_batches(shards, config)):
        raise DataError(
            f"none of {len(shards):,} pairs fits a batch: raise train.batch_tokens, or "
            "model.max_positions where positions are learned"
        )
    source, target = subwords
    with torch.device("meta"):
        vocab = Vocab(source_size=len(source), target_size=len(target))
        model = Transformer(config.model, vocab)
    if init_from is not None:
        chosen = choose(init_from)
        found = describe_weights(init_from.inside(chosen))
        check_names(dict(model.named_parameters()), found, str(chosen))


def check_run(
    run: RunDirectory,
    config: Config,
    *,
    text: Text | None,
    valid: Text | None,
    data: Path | None,
    init_from: RunDirectory | None,
) -> None:
    """Raise ConfigError, listing the differences, unless a run is the one that is asked for."""
    before = run.config()
    languages = before.data.source_language, before.data.target_language
    found = differences(before, with_languages(config, languages))
    origin = run.origin()
    for name, given in (("text", text), ("valid", valid)):
        if given is not None and describe_text(given) != origin.get(name):
            found.append(f"the {name} files are {_names(origin.get(name))} there")
    if data is not None and fingerprint(data) != origin.get("data_sha256"):
        found.append(f"--data {data} is not what the run was made from")
    if init_from is not None and str(init_from.path.resolve()) != origin.get("init_from"):
        found.append(f"--init-from is {origin.get('init_from')!r} there")
    if found:
        raise ConfigError(
            f"{run.path} is another run: {'; '.join(found)}. "
            "Choose another name for --run, or give the same settings to go on with this one"
        )


def data_folder(run: RunDirectory, data: Path | None) -> Folder:
    """Find the encoded text of a run: its own, the one given, or the one it was made from.

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


def describe_text(text: Text | None) -> list[Any] | None:
    """Return the names and sizes of a text's files, by which it is known again."""
    match text:
        case ParallelFiles(sources=sources, targets=targets):
            return [[path.name, _size(path)] for path in (*sources, *targets)]
        case TsvFile(path=path, source_column=source, target_column=target):
            return [[path.name, _size(path), source, target]]
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def _names(files: object) -> str:
    if not files:
        return "none"
    if not isinstance(files, list) or not all(isinstance(file, list) for file in files):
        return "unknown"
    return ", ".join(f"{file[0]} ({file[1]} bytes)" for file in files if len(file) > 1)

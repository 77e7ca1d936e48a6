"""The layout of a run directory.

config.toml                   the resolved recipe; itself a recipe
origin.json                   which text, prepared data and first weights the run was made from
tokenizer/                    the subword model, or one for each side
data/train/, data/valid/      the encoded text; train/ may be elsewhere, where origin.json says
checkpoints/step-00001000/    see checkpoint.py
averaged/                     the weights of several checkpoints, averaged
exports/                      the model in other programs' formats (headwise.interop)
metrics.jsonl                 see metrics.py
environment.json              what each session ran on
report.html                   all of it on one page (headwise.workflows.report)
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from headwise.config import Config
from headwise.data import Subwords, load_subwords
from headwise.errors import CheckpointError, ConfigError
from headwise.files import Folder, open_in_place, remove_abandoned, restore_replaced, try_lock
from headwise.recipes import parse_recipe

CONFIG = "config.toml"
ORIGIN = "origin.json"

_STEP_NAME = re.compile(r"step-(\d{8,15})", re.ASCII)

_MOST_CONFIG_BYTES = 1 << 20
_LONGEST_MESSAGE = 1000
_MOST_ORIGIN_BYTES = 4 << 20
"""It lists the files of the text, of which there may be thousands."""


@dataclass(frozen=True)
class RunDirectory:
    """A run that exists, by its path."""

    path: Path

    def __post_init__(self) -> None:
        if not self.path.is_dir() or not self.folder.has(CONFIG):
            what = "is not a run directory" if self.path.exists() else "does not exist"
            raise CheckpointError(
                f"{self.path} {what}: `headwise train … --run {self.path}` makes one"
            )

    @property
    def folder(self) -> Folder:
        """The directory to read from: its path may be a symlink, what is beneath may not."""
        return Folder.of(self.path)

    def inside(self, directory: Path) -> Folder:
        """Return a directory of the run to read from, through no symlink."""
        return Folder(directory, self.path)

    @property
    def config_file(self) -> Path:
        return self.path / CONFIG

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def averaged(self) -> Path:
        return self.path / "averaged"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def scores_file(self) -> Path:
        """How the run does on its test text, where that was kept."""
        return self.path / "scores.json"

    @property
    def environment_file(self) -> Path:
        return self.path / "environment.json"

    @property
    def exports(self) -> Path:
        return self.path / "exports"

    def config(self, overrides: Sequence[str] = ()) -> Config:
        """Return the resolved config, with overrides laid over it."""
        path = self.config_file
        try:
            text = self.folder.read(CONFIG, _MOST_CONFIG_BYTES).decode("utf-8-sig")
            return parse_recipe(text, str(path), overrides)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise CheckpointError(
                f"{path}: not UTF-8 text: {error.reason} at byte {error.start}"
            ) from error
        except ConfigError as error:
            # It quotes the value that is wrong, which may fill the file.
            raise CheckpointError(f"{error!s:.{_LONGEST_MESSAGE}}") from error

    def origin(self) -> dict[str, Any]:
        """Return what the run was made from.

        The paths in it were written by the one who trained. Only training opens them.
        """
        path = self.path / ORIGIN
        try:
            origin = self.folder.read_json(ORIGIN, _MOST_ORIGIN_BYTES)
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise CheckpointError(f"{path}: not JSON: {error}") from error
        if not isinstance(origin, dict):
            raise CheckpointError(f"{path}: not the origin of a run")
        for key in ("data", "init_from"):
            if not isinstance(origin.get(key), str | None):
                raise CheckpointError(f"{path}: {key} is not a path")
        return origin

    def subwords(self) -> tuple[Subwords, Subwords]:
        """Load the source's and the target's subwords; they may be one."""
        return load_subwords(self.folder)

    def longest_source(self) -> int:
        """Return how many tokens the longest source has that training may have seen."""
        longest = self.origin().get("longest_source")
        config = self.config()
        limit = config.model.fitting(config.train.batch_tokens - 1)
        return min(limit, longest) if type(longest) is int and longest > 0 else limit

    def step_directory(self, step: int) -> Path:
        """Return where the checkpoint of a step is, or would be."""
        return self.checkpoints / f"step-{step:08}"

    def steps(self) -> list[int]:
        """List the steps that have a checkpoint, from the first to the last."""
        matches = map(_STEP_NAME.fullmatch, self.inside(self.checkpoints).names())
        steps = ((int(match[1]), match[0]) for match in matches if match)
        # Not step-0000000012, which is no name that `step_directory` gives.
        return sorted(step for step, name in steps if self.step_directory(step).name == name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing to the run, and clear away what killed ones left."""
        with _opened_to_lock(self.path / ".lock") as lock:
            match try_lock(lock.fileno()):
                case "busy":
                    raise CheckpointError(
                        f"{self.path}: another process is writing to this run: "
                        "wait for it, or stop it"
                    )
                case "unsupported":
                    raise CheckpointError(
                        f"{self.path}: its file system cannot lock files: keep the run on a local "
                        "disk, or mount the network file system with support for flock"
                    )
            for name in ("checkpoints", "averaged", "exports", "tensorboard"):
                (self.folder / name).exists()  # Nothing is written through a symlink.
            for directory in (self.path, self.checkpoints, self.exports):
                # Only a process that has the lock makes directories in there; files, such as a
                # report, can be locked wherever the lock itself can be.
                remove_abandoned(directory, alone=True)
            restore_replaced(self.averaged)
            yield


def _opened_to_lock(path: Path) -> BinaryIO:
    try:
        return open(open_in_place(path, os.O_RDWR | os.O_CREAT), "rb")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be locked: {error.strerror}") from error


def differences(theirs: Config, ours: Config) -> list[str]:
    """Describe every setting in which two configs differ.

    Settings that only one of them has follow from another that differs, such as `model.kind`.
    """
    found = []
    before, now = theirs.to_dict(), ours.to_dict()
    for section, values in before.items():
        if not isinstance(values, dict):
            if now[section] != values:
                found.append(f"{section} is {values!r} there and {now[section]!r} here")
            continue
        found += [
            f"{section}.{key} is {value!r} there and {now[section][key]!r} here"
            for key, value in values.items()
            if now[section].get(key, value) != value
        ]
    return found

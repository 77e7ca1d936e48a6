"""The layout of a run directory.

config.toml                   the resolved recipe; itself a recipe
origin.json                   which text, prepared data and first weights the run was made from
tokenizer/                    the subword model, or one for each side
data/                         the encoded text, unless origin.json points elsewhere
checkpoints/step-00001000/    see checkpoint.py
averaged/                     the weights of several checkpoints, averaged
exports/                      the model in other programs' formats (headwise.interop)
metrics.jsonl                 see metrics.py
environment.json              what each session ran on
report.html                   all of it on one page (headwise.workflows.report)
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from headwise.config import Config
from headwise.data import Subwords, load_subwords
from headwise.errors import CheckpointError, ConfigError
from headwise.files import open_in_place, remove_abandoned, restore_replaced
from headwise.recipes import load_recipe

_STEP_NAME = re.compile(r"step-(\d{8,15})")


@dataclass(frozen=True)
class RunDirectory:
    """A run that exists, by its path."""

    path: Path

    def __post_init__(self) -> None:
        if not self.config_file.is_file():
            what = "is not a run directory" if self.path.exists() else "does not exist"
            raise CheckpointError(
                f"{self.path} {what}: `headwise train … --run {self.path}` makes one"
            )

    @property
    def config_file(self) -> Path:
        return self.path / "config.toml"

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
        """How the run does on its test text, where somebody has kept that."""
        return self.path / "scores.json"

    @property
    def environment_file(self) -> Path:
        return self.path / "environment.json"

    def config(self) -> Config:
        """Return the resolved config."""
        try:
            return load_recipe(self.config_file)
        except ConfigError as error:
            raise CheckpointError(str(error)) from error

    def origin(self) -> dict[str, Any]:
        """Return what the run was made from."""
        path = self.path / "origin.json"
        try:
            origin = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{path}: not JSON: {error}") from error
        if not isinstance(origin, dict):
            raise CheckpointError(f"{path}: not the origin of a run")
        return origin

    def subwords(self) -> tuple[Subwords, Subwords]:
        """Load the source's and the target's subwords; they may be one."""
        return load_subwords(self.path)

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
        if not self.checkpoints.is_dir():
            return []
        matches = (_STEP_NAME.fullmatch(path.name) for path in self.checkpoints.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from writing to the run, and clear away what killed ones left."""
        with _opened_to_lock(self.path / ".lock") as lock:
            try:
                # The kernel lets go of it with the process, however that ends.
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise CheckpointError(
                    f"{self.path}: another process is writing to this run: wait for it, or stop it"
                ) from error
            remove_abandoned(self.path, whoever_wrote=True)
            remove_abandoned(self.checkpoints, whoever_wrote=True)
            restore_replaced(self.averaged)
            yield


def _opened_to_lock(path: Path) -> BinaryIO:
    try:
        return open(open_in_place(path, os.O_RDWR | os.O_CREAT), "rb")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be locked: {error.strerror}") from error


def differences(theirs: Config, ours: Config) -> list[str]:
    """Describe every setting in which two configs differ."""
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
            if now[section][key] != value
        ]
    return found

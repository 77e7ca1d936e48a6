"""The cells of a table that have been measured, in a file that is complete at any moment."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.errors import CheckpointError, ConfigError
from headwise.files import make_directories, open_in_place, parse_json, replace_file, try_lock

_MOST_BYTES = 64 << 20


class CellStore:
    """Results by the name of their cell, with the conditions that all of them were measured under.

    Cells that were measured under other conditions do not belong into one table: then the file is
    refused, with what differs.
    """

    def __init__(self, path: Path, conditions: Mapping[str, Any]) -> None:
        self.path = path
        self._conditions = dict(conditions)
        self._cells: dict[str, Any] = {}
        make_directories(path.parent)
        if path.exists():
            self._load()

    def __getitem__(self, name: str) -> Any:
        return self._cells[name]

    def __contains__(self, name: str) -> bool:
        return name in self._cells

    @property
    def conditions(self) -> dict[str, Any]:
        """What the cells have in common: the machine, the budget, the data."""
        return self._conditions

    def cell(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return a cell's result, measured now if it is not stored."""
        if name not in self._cells:
            self._cells[name] = measure()
            self.save()
        return self._cells[name]

    def save(self, **more: Any) -> None:
        """Write all cells, and what is computed from them."""
        content = {"conditions": self._conditions, "cells": self._cells, **more}
        replace_file(self.path, (json.dumps(content, indent=1) + "\n").encode())

    def _load(self) -> None:
        content = self.path.read_bytes()
        try:
            values: Any = parse_json(content) if len(content) <= _MOST_BYTES else None
            conditions, cells = dict(values["conditions"]), dict(values["cells"])
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(
                f"{self.path}: not the results of `headwise reproduce`: remove it, or choose "
                "another --out"
            ) from error
        differing = [
            f"{key} was {conditions.get(key)!r} and is {value!r}"
            for key, value in self._conditions.items()
            if conditions.get(key) != value
        ]
        if differing:
            raise ConfigError(
                f"{self.path} was measured under other conditions: {'; '.join(differing)}. Choose "
                "another --out, or the same conditions to go on with this one"
            )
        self._cells = cells


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Keep other commands from writing the same results, each with what it knows of them."""
    make_directories(path.parent)
    try:
        lock = open_in_place(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise CheckpointError(f"{path.parent}: cannot be written to: {error.strerror}") from error
    try:
        if try_lock(lock) == "busy":
            raise ConfigError(
                f"{path}: another command is writing to it: wait for it, or choose another --out"
            )
        yield
    finally:
        os.close(lock)

"""The run's diary: one JSON object on each line of metrics.jsonl.

A line's `kind` is "train" (means over the updates since the last such line, or since the session
began) or "valid" (the whole validation text). Both have `step`, `epoch` (a fraction: 1.5 is the
middle of the second) and `minutes` of training.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headwise.errors import CheckpointError
from headwise.files import Folder, open_in_place, parse_json, replacing

_MOST_BYTES = 1 << 30
"""Of the whole file: a line for each of some three million updates."""

_LONGEST_LINE = 1 << 12
"""Bytes of a line; ours have less than a thousand."""

_MOST_KEYS = 30

_LONGEST_TEXT = 100

_MOST_LINES = 20_000
"""Held in memory at once; of a longer file, every second, fourth, ... line is left out."""


class MetricsFile:
    """Append to a run's metrics.jsonl, from a step on."""

    def __init__(self, path: Path, *, step: int) -> None:
        """Open the file to go on after `step`; lines of later steps, which never were, go.

        So do lines that cannot be read: `unreadable` says how many.
        """
        self._path = path
        self.unreadable = 0
        if os.path.lexists(path):
            with replacing(path) as file:
                for line in _parsed(path):
                    if isinstance(line, CheckpointError):
                        self.unreadable += 1
                    elif line["step"] <= step:
                        file.write(_as_line(line).encode())
        try:
            self._file = open(path, "a", encoding="utf-8", opener=open_in_place)  # noqa: SIM115
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be written: {error.strerror}") from error

    def add(self, values: Mapping[str, object]) -> None:
        """Append one line; readers see it at once."""
        try:
            self._file.write(_as_line(values))
            self._file.flush()
        except OSError as error:
            raise CheckpointError(f"{self._path}: cannot be written: {error.strerror}") from error

    def sync(self) -> None:
        """Flush to disk what has been appended."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """End writing."""
        # What a full disk refused has been told already.
        with suppress(OSError):
            self._file.close()


def iterate_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a metrics.jsonl, without holding more than one in memory.

    A last line that was cut short by the end of its writer is left out.
    """
    for line in _parsed(path):
        if isinstance(line, CheckpointError):
            raise line
        yield line


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read a metrics.jsonl; of a very long one, only as many lines as curves need."""
    found: list[dict[str, Any]] = []
    apart = {"train": 1, "valid": 1}
    seen = {"train": 0, "valid": 0}
    for line in iterate_metrics(path):
        kind = line["kind"]
        if seen[kind] % apart[kind] == 0:
            found.append(line)
        seen[kind] += 1
        if len(found) > _MOST_LINES:
            most = max(apart, key=lambda kind: seen[kind] / apart[kind])
            apart[most] *= 2
            found = _every_second(found, most)
    return found


def _every_second(lines: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    kept, number = [], 0
    for line in lines:
        if line["kind"] != kind or number % 2 == 0:
            kept.append(line)
        number += line["kind"] == kind
    return kept


def _parsed(path: Path) -> Iterator[dict[str, Any] | CheckpointError]:
    """Yield each line, or what is wrong with it."""
    try:
        with Folder.of(path.parent).open(path.name, _MOST_BYTES) as file:
            number = 0
            while raw := file.readline(_LONGEST_LINE + 1):
                number += 1
                if len(raw) > _LONGEST_LINE:
                    yield CheckpointError(
                        f"{path}:{number}: not a line of metrics: more than {_LONGEST_LINE:,} bytes"
                    )
                    while raw and not raw.endswith(b"\n"):
                        raw = file.readline(_LONGEST_LINE)
                elif raw.endswith(b"\n"):
                    yield _parsed_line(raw, f"{path}:{number}")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error


def _parsed_line(raw: bytes, place: str) -> dict[str, Any] | CheckpointError:
    try:
        values = parse_json(raw)
    except ValueError as error:
        return CheckpointError(f"{place}: not JSON: {error}")
    if not _is_well_formed(values):
        return CheckpointError(f"{place}: not a line of metrics")
    # The keys are the same in every line: one copy of each is enough.
    return {sys.intern(key): value for key, value in values.items()}


def _is_well_formed(values: object) -> bool:
    return (
        isinstance(values, dict)
        and len(values) <= _MOST_KEYS
        and values.get("kind") in ("train", "valid")
        and type(values.get("step")) is int
        and values["step"] >= 0
        and all(map(_is_plain, values.values()))
    )


def _is_plain(value: object) -> bool:
    """Return whether it is text, or a number that every later computation can hold."""
    if isinstance(value, int):
        return abs(value) < 2**63
    if isinstance(value, str):
        return len(value) <= _LONGEST_TEXT
    return isinstance(value, float)


def _as_line(values: Mapping[str, object]) -> str:
    return json.dumps(dict(values)) + "\n"

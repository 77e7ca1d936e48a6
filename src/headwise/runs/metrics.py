"""The run's diary: one JSON object on each line of metrics.jsonl.

A line's `kind` is "train" (means over the updates since the last such line, or since the session
began) or "valid" (the whole validation text). Both have `step`, `epoch` (a fraction: 1.5 is the
middle of the second) and `minutes` of training.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headwise.errors import CheckpointError
from headwise.files import open_in_place, replace_file


class MetricsFile:
    """Append to a run's metrics.jsonl, from a step on."""

    def __init__(self, path: Path, *, step: int) -> None:
        """Open the file to go on after `step`; lines of later steps, which never were, go.

        So do lines that cannot be read: `unreadable` says how many.
        """
        self._path = path
        self.unreadable = 0
        if path.exists():
            lines = list(_parsed(path))
            self.unreadable = sum(isinstance(line, CheckpointError) for line in lines)
            before = [line for line in lines if isinstance(line, dict) and line["step"] <= step]
            replace_file(path, "".join(_as_line(line) for line in before).encode())
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


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read a metrics.jsonl; a last line that was cut short by the end of its writer is left out."""
    found = []
    for line in _parsed(path):
        if isinstance(line, CheckpointError):
            raise line
        found.append(line)
    return found


def _parsed(path: Path) -> Iterator[dict[str, Any] | CheckpointError]:
    """Yield each line, or what is wrong with it."""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    *lines, _torn = text.split("\n")
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield CheckpointError(f"{path}:{number}: not JSON: {error}")
            continue
        if _is_well_formed(values):
            yield values
        else:
            yield CheckpointError(f"{path}:{number}: not a line of metrics")


def _is_well_formed(values: object) -> bool:
    return (
        isinstance(values, dict)
        and values.get("kind") in ("train", "valid")
        and type(values.get("step")) is int
        and all(isinstance(value, int | float | str) for value in values.values())
    )


def _as_line(values: Mapping[str, object]) -> str:
    return json.dumps(dict(values)) + "\n"

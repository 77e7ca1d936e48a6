"""Rows of tables with named columns: TSV, CSV and JSON Lines, compressed or not.

The first line of a TSV or CSV file has the names of its columns; a line of JSON is an object.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headwise.data.lines import LONGEST_LINE, raw_lines
from headwise.data.text import LineReport, decode_line
from headwise.errors import DataError

COMPRESSED = (".gz", ".xz", ".zst")
_TABLES = (".tsv", ".csv", ".jsonl")
_ADVICE = "convert the file, or leave such lines out with --lenient"

Row = tuple[int, tuple[Any, ...] | DataError]
"""The number of a row's first line, and its values in the columns asked for, or what is wrong with
it. Values of TSV and CSV files are strings; those of JSON are what they are, None if missing."""


def table_kind(path: Path) -> str:
    """Return ".tsv", ".csv" or ".jsonl", or nothing for another file."""
    name = path.with_suffix("") if path.suffix in COMPRESSED else path
    return name.suffix if name.suffix in _TABLES else ""


def read_table(path: Path, columns: Sequence[str], report: LineReport) -> Iterator[Row]:
    """Yield the rows of a table; `report` counts what was mended.

    What is wrong with the file as a whole, such as a missing column, is raised.
    """
    match table_kind(path):
        case ".jsonl":
            yield from _json_rows(path, columns, report)
        case ".csv":
            yield from _csv_rows(path, columns, report)
        case _:
            yield from _tsv_rows(path, columns, report)


def decoded_lines(path: Path, report: LineReport) -> Iterator[tuple[int, str | DataError]]:
    """Yield the number of each line of a file and its text, or what is wrong with it."""
    for number, raw in enumerate(raw_lines(path), start=1):
        try:
            yield number, decode_line(raw, str(path), number, report, advice=_ADVICE)
        except DataError as error:
            yield number, error


def _json_rows(path: Path, columns: Sequence[str], report: LineReport) -> Iterator[Row]:
    for number, line in decoded_lines(path, report):
        if isinstance(line, DataError):
            yield number, line
            continue
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, DataError(f"{path}:{number}: not JSON: {error}")
            continue
        values = tuple(row.get(name) if isinstance(row, dict) else None for name in columns)
        if any(map(_has_half_a_pair, values)):
            yield number, DataError(f"{path}:{number}: half of a surrogate pair is no text")
        else:
            yield number, values


def _tsv_rows(path: Path, columns: Sequence[str], report: LineReport) -> Iterator[Row]:
    places: list[int] | None = None
    for number, line in decoded_lines(path, report):
        if places is None:
            if isinstance(line, DataError):
                raise line
            places = _places(path, columns, line.split("\t"))
        elif isinstance(line, DataError):
            yield number, line
        else:
            yield number, _fields(path, number, line.split("\t"), places, columns)
    if places is None:
        raise _no_names(path)


def _csv_rows(path: Path, columns: Sequence[str], report: LineReport) -> Iterator[Row]:
    faults: list[tuple[int, DataError]] = []
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        for number, line in decoded_lines(path, report):
            read = number
            if isinstance(line, DataError):
                faults.append((number, line))
            else:
                yield f"{line}\n"

    csv.field_size_limit(LONGEST_LINE)  # Of all readers of this process; by default 128 KiB.
    rows = csv.reader(lines(), strict=True)
    places: list[int] | None = None
    while True:
        number = read + 1
        try:
            fields = next(rows, None)
        except csv.Error as error:
            # Where a quote is wrong, so is all that follows: there is no next row to go on with.
            raise DataError(f"{path}:{number}: not CSV: {error}") from error
        yield from faults
        faults.clear()
        if fields is None and places is None:
            raise _no_names(path)
        if fields is None:
            return
        if places is None:
            places = _places(path, columns, fields)
        elif fields:
            yield number, _fields(path, number, fields, places, columns)


def _no_names(path: Path) -> DataError:
    return DataError(f"{path}: is empty: the first line has the names of the columns")


def _places(path: Path, columns: Sequence[str], names: list[str]) -> list[int]:
    for column in columns:
        if column not in names:
            there = ", ".join(repr(name) for name in names[:10])
            raise DataError(f"{path}:1: has no column {column!r}: there is {there:.200}")
        if names.count(column) > 1:
            raise DataError(f"{path}:1: has several columns {column!r}: rename all but one")
    return [names.index(column) for column in columns]


def _fields(
    path: Path, number: int, fields: list[str], places: list[int], columns: Sequence[str]
) -> tuple[str, ...] | DataError:
    for place, column in zip(places, columns, strict=True):
        if len(fields) <= place:
            return DataError(
                f"{path}:{number}: {len(fields)} columns, but {column!r} is column {place + 1}"
            )
    return tuple(fields[place] for place in places)


def _has_half_a_pair(value: object) -> bool:
    return isinstance(value, str) and any("\ud800" <= each <= "\udfff" for each in value)

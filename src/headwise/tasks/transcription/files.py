"""Tables that name images of lines, or sounds, with their texts.

Whatever is wrong is a DataError with file and row; what cannot be used is counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from headwise.config import TargetsConfig
from headwise.data.tables import read_table, table_kind
from headwise.data.text import LineReport, Paths, file_size, plain
from headwise.errors import DataError
from headwise.tasks.encoders import InputKind

_UNITS = {"images": "images", "audio": "sounds"}
_FLAGS = {"images": "--image-column", "audio": "--audio-column"}


@dataclass(frozen=True, kw_only=True)
class TranscribedFiles:
    """Tables whose rows have the path of an image or a sound, and what is written or said there."""

    paths: tuple[Path, ...]
    input: Literal["images", "audio"]
    column: str
    """The column of the paths, which begin at the folder of their table."""
    text_column: str

    @classmethod
    def of(
        cls,
        files: Paths,
        *,
        input: Literal["images", "audio"],  # noqa: A002 - as in the config
        column: str | None,
        text_column: str | None,
    ) -> Self:
        """Name tables as strings or as paths."""
        paths = (Path(files),) if isinstance(files, str | Path) else tuple(map(Path, files))
        if not paths:
            raise DataError(f"no transcribed {_UNITS[input]} are given")
        for path in paths:
            if not table_kind(path) or path.is_dir():
                raise DataError(f"{path}: no table: give a .tsv, .csv or .jsonl file")
        if not column or not text_column:
            flag = "--text-column" if column else _FLAGS[input]
            raise DataError(f"{paths[0]}: name the column with {flag}")
        return cls(paths=paths, input=input, column=column, text_column=text_column)

    def describe(self) -> list[Any]:
        """Return the names and sizes of the tables, and the columns."""
        columns = self.column, self.text_column
        return [[path.name, file_size(path), *columns] for path in self.paths]


class Transcribed(NamedTuple):
    """An example, its text, and where it is from."""

    content: Any
    """What `InputKind.read` returns."""
    text: str
    place: str


def read_examples(
    files: TranscribedFiles,
    data: TargetsConfig,
    kind: InputKind,
    *,
    lenient: bool,
    report: LineReport,
) -> Iterator[Transcribed]:
    """Yield the examples that can be used, and count the others.

    With `lenient`, what cannot be read is left out and counted as well.
    """
    for place, found in _rows(files, report):
        report.pairs += 1
        try:
            if isinstance(found, DataError):
                raise found
            path, text = found
            if fault := _fault(text):
                report.drop(fault, place)
                continue
            content = kind.read(path, data, place)
        except DataError:
            if not lenient:
                raise
            report.drop("not readable", place)
            continue
        if content.is_cut:
            report.drop(f"more than {kind.most(data)}", place)
            continue
        report.kept += 1
        yield Transcribed(content, text, place)


def read_texts(files: TranscribedFiles) -> Iterator[str]:
    """Yield the texts alone, without opening an image or a sound."""
    for _, found in _rows(files, LineReport()):
        if not isinstance(found, DataError) and not _fault(found[1]):
            yield found[1]


def _rows(
    files: TranscribedFiles, report: LineReport
) -> Iterator[tuple[str, tuple[Path, str] | DataError]]:
    for path in files.paths:
        for number, found in read_table(path, (files.column, files.text_column), report):
            place = f"{path}:{number}"
            if isinstance(found, DataError):
                yield place, found
                continue
            name, text = found
            if not isinstance(name, str) or not name:
                yield place, DataError(f"{place}: has no path in {files.column!r}")
            elif not isinstance(text, str):
                yield place, DataError(f"{place}: has no text in {files.text_column!r}")
            else:
                yield place, (path.parent / name, plain(text))


def _fault(text: str) -> str:
    """Say why a text cannot be used; nothing if it can."""
    if not text:
        return "an empty text"
    return "a NUL character" if "\0" in text else ""

"""Labelled texts, images and sounds.

They are rows of tables, or files in a folder for each class; texts are also lines in fastText's
format, and images also IDX and NPZ files.

Whatever is wrong is a DataError with file and line; what cannot be used is counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from headwise.config import LabelsConfig
from headwise.data.image_arrays import is_image_arrays, read_image_arrays
from headwise.data.tables import decoded_lines, read_table, table_kind
from headwise.data.text import LineReport, Paths, file_size, plain
from headwise.errors import DataError
from headwise.tasks.encoders import InputKind

_PREFIX = "__label__"
"""What fastText's format puts before a label."""

Input = Literal["text", "images", "audio"]

_UNITS = {"text": "texts", "images": "images", "audio": "sounds"}
_COLUMNS = {"text": "--text-column", "images": "--image-column", "audio": "--audio-column"}

_LONGEST_REASON = 200
"""Of what is told of an example that cannot be read; its place is a part of it."""

_LARGEST_TEXT = 16 << 20
"""Bytes of a file that is one text: beyond this it is hardly one."""


@dataclass(frozen=True, kw_only=True)
class LabelledFiles:
    """Files of labelled examples, of which tables have named columns."""

    paths: tuple[Path, ...]
    input: Input = "text"
    """What is labelled."""
    column: str | None = None
    """The column of tables that holds the text, or the path of a file beside the table."""
    label_column: str | None = None

    @classmethod
    def of(
        cls,
        files: Paths,
        *,
        input: Input = "text",  # noqa: A002 - as in the config
        column: str | None = None,
        label_column: str | None = None,
    ) -> Self:
        """Name files and folders as strings or as paths."""
        paths = (Path(files),) if isinstance(files, str | Path) else tuple(map(Path, files))
        return cls(paths=paths, input=input, column=column, label_column=label_column)

    def __post_init__(self) -> None:
        if not self.paths:
            raise DataError(f"no labelled {_UNITS[self.input]} are given")
        tables = [path for path in self.paths if is_table(path)]
        for flag, column in self._columns().items():
            if tables and not column:
                raise DataError(f"{tables[0]}: name the column with {flag}")
            if column and not tables:
                raise DataError(f"{flag} {column!r}: {self.paths[0]} is no table with columns")

    def describe(self) -> list[Any]:
        """Return the names and sizes of files, the numbers of files in folders, and columns."""
        return [[path.name, _size(path), *self._columns().values()] for path in self.paths]

    def _columns(self) -> dict[str, str | None]:
        return {_COLUMNS[self.input]: self.column, "--label-column": self.label_column}


class Labelled(NamedTuple):
    """An example, the classes it is in, and where it is from."""

    content: Any
    """A text; where a file is; or the pixels of an image. Once it is read: what `InputKind.read`
    returns."""
    labels: tuple[str, ...]
    place: str


def read_examples(
    files: LabelledFiles,
    data: LabelsConfig,
    kind: InputKind,
    *,
    lenient: bool,
    report: LineReport,
) -> Iterator[Labelled]:
    """Yield the examples that can be used, and count the others.

    With `lenient`, what cannot be read is left out and counted as well.
    """
    types = _LabelTypes()
    for path in files.paths:
        for place, found in _read(path, files, data, types, report):
            report.pairs += 1
            try:
                if isinstance(found, DataError):
                    raise found
                content = kind.read(found.content, data, place)
            except DataError as error:
                if not lenient:
                    raise
                report.drop("not readable", f"{error!s:.{_LONGEST_REASON}}")
                continue
            labels = tuple(dict.fromkeys(map(plain, found.labels)))
            if fault := kind.fault(content):
                report.drop(fault, place)
            elif any("\0" in label for label in labels):
                report.drop("a NUL character", place)
            elif any("\ud800" <= each <= "\udfff" for label in labels for each in label):
                report.drop("a label that is not Unicode text", place)
            elif not data.multi_label and (not labels or labels == ("",)):
                report.drop("no label", place)
            elif not data.multi_label and len(labels) > 1:
                report.drop("several labels (data.multi_label is false)", place)
            else:
                report.kept += 1
                yield Labelled(content, tuple(filter(None, labels)), place)


def _read(
    path: Path,
    files: LabelledFiles,
    data: LabelsConfig,
    types: "_LabelTypes",
    report: LineReport,
) -> Iterator[tuple[str, Labelled | DataError]]:
    if path.is_dir():
        yield from _folder(path, files, report)
    elif is_table(path):
        yield from _rows(path, files, data, types, report)
    elif files.input == "images" and is_image_arrays(path):
        yield from _arrays(path)
    elif files.input == "text":
        yield from _lines(path, report)
    else:
        others = ", or an IDX or NPZ file" if files.input == "images" else ""
        raise DataError(
            f"{path}: no labelled {_UNITS[files.input]}: give a folder with a sub-folder for each "
            f"class, a table (.tsv, .csv, .jsonl){others}"
        )


def _rows(
    path: Path,
    files: LabelledFiles,
    data: LabelsConfig,
    types: "_LabelTypes",
    report: LineReport,
) -> Iterator[tuple[str, Labelled | DataError]]:
    assert files.column is not None
    assert files.label_column is not None
    is_json = table_kind(path) == ".jsonl"
    for number, found in read_table(path, (files.column, files.label_column), report):
        place = f"{path}:{number}"
        if isinstance(found, DataError):
            yield place, found
            continue
        text, given = found
        if not isinstance(text, str) or (not text and files.input != "text"):
            what = "text" if files.input == "text" else "path"
            yield place, DataError(f"{place}: has no {what} in {files.column!r}")
            continue
        if not is_json:
            labels = given.split(data.label_separator) if data.multi_label else [given]
        elif isinstance(given, list) and data.multi_label:
            labels = given
        else:
            labels = [] if given is None else [given]
        fault = types.fault(labels)
        if fault:
            yield place, DataError(f"{place}: {fault} in {files.label_column!r}")
        else:
            content = text if files.input == "text" else path.parent / text
            yield place, Labelled(content, tuple(map(_as_text, labels)), place)


def _arrays(path: Path) -> Iterator[tuple[str, Labelled]]:
    found = read_image_arrays(path)
    for number, (pixels, label) in enumerate(zip(found.images, found.labels, strict=True), start=1):
        place = f"{path}: image {number:,}"
        yield place, Labelled(pixels, (label,), place)


def _lines(path: Path, report: LineReport) -> Iterator[tuple[str, Labelled | DataError]]:
    for number, line in decoded_lines(path, report):
        place = f"{path}:{number}"
        if isinstance(line, DataError):
            yield place, line
            continue
        words = line.split()
        labels = [word.removeprefix(_PREFIX) for word in words if word.startswith(_PREFIX)]
        if number == 1 and words and not labels:
            raise DataError(
                f"{place}: does not begin with {_PREFIX}: a table is named .csv, .tsv or .jsonl"
            )
        text = " ".join(word for word in words if not word.startswith(_PREFIX))
        yield place, Labelled(text, tuple(labels), place)


def _folder(
    path: Path, files: LabelledFiles, report: LineReport
) -> Iterator[tuple[str, Labelled | DataError]]:
    unit = _UNITS[files.input]
    classes = sorted(each for each in path.iterdir() if each.is_dir())
    if all(each.name.startswith(".") for each in classes):
        raise DataError(f"{path}: has no sub-folders: give one for each class, with its {unit}")
    for stray in sorted(each for each in path.iterdir() if not each.is_dir()):
        _left_out(stray, "a file beside the folders of the classes", report)
    for folder in classes:
        if folder.name.startswith("."):
            _left_out(folder, "a hidden folder", report)
            continue
        for file in sorted(folder.iterdir()):
            if file.name.startswith("."):  # What file managers leave behind.
                _left_out(file, "a hidden file", report)
            elif file.is_dir():
                _left_out(file, "a folder in the folder of a class", report)
            elif files.input == "text":
                yield str(file), _text_file(file, folder.name)
            else:
                yield str(file), Labelled(file, (folder.name,), str(file))


def _left_out(path: Path, reason: str, report: LineReport) -> None:
    report.pairs += 1
    report.drop(reason, str(path))


def _text_file(path: Path, label: str) -> Labelled | DataError:
    if file_size(path) > _LARGEST_TEXT:
        return DataError(f"{path}: has more than {_LARGEST_TEXT:,} bytes: is it one text?")
    try:
        return Labelled(path.read_bytes().decode("utf-8-sig"), (label,), str(path))
    except UnicodeDecodeError as error:
        return DataError(f"{path}: not UTF-8 text at byte {error.start + 1}: convert the file")


class _LabelTypes:
    """Remember whether labels are text or numbers, which JSON tells apart: 1 is not "1"."""

    def __init__(self) -> None:
        self._first: type | None = None

    def fault(self, labels: list[Any]) -> str:
        """Say what is wrong with labels; nothing if they are fine."""
        for label in labels:
            if type(label) not in (str, int, bool):
                return f"{label!r:.40} is no label: labels are text or whole numbers"
            self._first = self._first or type(label)
            if type(label) is not self._first:
                kinds = {str: "text", int: "a number", bool: "true or false"}
                return (
                    f"the label {label!r:.40} is {kinds[type(label)]}, and the first was "
                    f"{kinds[self._first]}: write all of them alike"
                )
        return ""


def _as_text(label: str | int | bool) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)


def is_table(path: Path) -> bool:
    """Return whether a file has columns, by its name."""
    return bool(table_kind(path)) and not path.is_dir()


def _size(path: Path) -> int:
    return sum(1 for _ in path.rglob("*")) if path.is_dir() else file_size(path)

"""How labelled texts, images and sounds are named on the command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headwise.tasks.inputs import InputOption, paths
from headwise.tasks.table_options import (
    AUDIO_COLUMN,
    IMAGE_COLUMN,
    LABEL_COLUMN,
    TABLE,
    TEST_TABLE,
    TEXT_COLUMN,
    VALID_TABLE,
    is_transcribed,
)

if TYPE_CHECKING:
    from headwise.tasks.classification.files import LabelledFiles

_BASELINE = InputOption(
    flag="--baseline",
    name="baseline",
    kind="flag",
    help="Compare a classifier with logistic regression on the same training examples.",
)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@dataclass(frozen=True, kw_only=True)
class ClassificationInputs:
    """The options of one kind of input."""

    input: Literal["text", "images", "audio"]
    needed: str
    options: tuple[InputOption, ...]
    evaluation_options: tuple[InputOption, ...]
    column: str
    """The name of the option for the column of a table."""
    own: str = ""
    """The name of the option for files other than tables, if that is one of its own."""

    def training(self, values: Mapping[str, Any]) -> "LabelledFiles | None":
        """Return the files to train on."""
        return self.files(values)

    def validation(self, values: Mapping[str, Any]) -> "LabelledFiles | None":
        """Return the files to validate on."""
        return self.files(values, "valid_")

    def files(self, values: Mapping[str, Any], part: str = "") -> "LabelledFiles | None":
        """Return the files of one part of the data, with their columns."""
        from headwise.tasks.classification.files import LabelledFiles, is_table

        found = self._paths(values, part)
        if not found:
            return None
        all_parts = [path for each in ("", "valid_") for path in self._paths(values, each)]
        # Columns may be those of another part; where no part has a table, they are a mistake.
        is_meant = any(map(is_table, found)) or not any(map(is_table, all_parts))
        return LabelledFiles.of(
            found,
            input=self.input,
            column=values.get(self.column) if is_meant else None,
            label_column=values.get("label_column") if is_meant else None,
        )

    def _paths(self, values: Mapping[str, Any], part: str) -> tuple[Path, ...]:
        own = paths(values, f"{part}{self.own}") if self.own else ()
        return (*own, *paths(values, f"{part}table"))

    def given(self, values: Mapping[str, Any]) -> str:
        """Return the flag that tells that files of this kind are given."""
        if is_transcribed(values):
            return ""
        if self.own:
            names = (self.own, self.column)
            return next((_flag(name) for name in names if values.get(name)), "")
        is_other = any(each.given(values) for each in (IMAGES, AUDIO))
        return "--table" if paths(values, "table") and not is_other else ""


def _inputs(
    input_: Literal["images", "audio"], needed: str, column: InputOption, files: str
) -> ClassificationInputs:
    own = InputOption(flag=f"--{input_}", name=input_, kind="paths", help=files)
    valid = InputOption(
        flag=f"--valid-{input_}",
        name=f"valid_{input_}",
        kind="paths",
        help="The same to validate on.",
    )
    return ClassificationInputs(
        input=input_,
        needed=needed,
        options=(
            own,
            valid,
            TABLE,
            VALID_TABLE,
            column,
            LABEL_COLUMN,
        ),
        evaluation_options=(
            own,
            TEST_TABLE,
            column,
            LABEL_COLUMN,
            _BASELINE,
        ),
        column=column.name,
        own=input_,
    )


TEXT = ClassificationInputs(
    input="text",
    needed="labelled texts (--table)",
    options=(
        TABLE,
        VALID_TABLE,
        TEXT_COLUMN,
        LABEL_COLUMN,
    ),
    evaluation_options=(
        TEST_TABLE,
        TEXT_COLUMN,
        LABEL_COLUMN,
        _BASELINE,
    ),
    column="text_column",
)

IMAGES = _inputs(
    "images",
    "labelled images (--images, or --table with --image-column)",
    IMAGE_COLUMN,
    "Labelled images: a folder with a sub-folder for each class, or IDX or NPZ files; may be "
    "repeated.",
)

AUDIO = _inputs(
    "audio",
    "labelled sounds (--audio, or --table with --audio-column)",
    AUDIO_COLUMN,
    "Labelled sounds: a folder with a sub-folder for each class; may be repeated.",
)

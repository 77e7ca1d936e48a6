"""How transcribed images and sounds are named on the command line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headwise.tasks.inputs import InputOption, paths
from headwise.tasks.table_options import (
    AUDIO_COLUMN,
    IMAGE_COLUMN,
    TABLE,
    TEST_TABLE,
    TEXT_COLUMN,
    VALID_TABLE,
    is_transcribed,
)

if TYPE_CHECKING:
    from headwise.tasks.transcription.files import TranscribedFiles


@dataclass(frozen=True, kw_only=True)
class TranscriptionInputs:
    """The options of one kind of input."""

    input: Literal["images", "audio"]
    needed: str
    column: InputOption
    """For the column of the paths."""

    @property
    def options(self) -> tuple[InputOption, ...]:
        """Those of `headwise train` and `headwise prepare`."""
        return TABLE, VALID_TABLE, self.column, TEXT_COLUMN

    @property
    def evaluation_options(self) -> tuple[InputOption, ...]:
        """Those of `headwise evaluate`."""
        return TEST_TABLE, self.column, TEXT_COLUMN

    def training(self, values: Mapping[str, Any]) -> "TranscribedFiles | None":
        """Return the tables to train on."""
        return self.files(values)

    def validation(self, values: Mapping[str, Any]) -> "TranscribedFiles | None":
        """Return the tables to validate on."""
        return self.files(values, "valid_table")

    def files(self, values: Mapping[str, Any], name: str = "table") -> "TranscribedFiles | None":
        """Return the tables that an option names, with their columns."""
        from headwise.tasks.transcription.files import TranscribedFiles

        found = paths(values, name)
        if not found:
            return None
        return TranscribedFiles.of(
            found,
            input=self.input,
            column=values.get(self.column.name),
            text_column=values.get(TEXT_COLUMN.name),
        )

    def given(self, values: Mapping[str, Any]) -> str:
        """Return the flag that tells that files of this kind are given."""
        has_column = bool(values.get(self.column.name))
        return self.column.flag if has_column and is_transcribed(values) else ""


IMAGES = TranscriptionInputs(
    input="images",
    needed="transcribed images (--table with --image-column and --text-column)",
    column=IMAGE_COLUMN,
)
AUDIO = TranscriptionInputs(
    input="audio",
    needed="transcribed sounds (--table with --audio-column and --text-column)",
    column=AUDIO_COLUMN,
)

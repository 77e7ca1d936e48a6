"""How text for a language model is named on the command line."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwise.tasks.inputs import InputOption, paths

if TYPE_CHECKING:
    from headwise.tasks.language_model.files import TextFiles

_COLUMN = InputOption(
    flag="--text-column",
    name="text_column",
    kind="text",
    help="The column that holds the text, in .tsv, .csv and .jsonl files.",
)


class LanguageModelInputs:
    """Plain text files, or tables with a document in a column of each row."""

    needed = "text (--text)"
    options = (
        InputOption(flag="--text", name="text", kind="paths", help="Plain text; may be repeated."),
        InputOption(
            flag="--valid-text", name="valid_text", kind="paths", help="Plain text to validate on."
        ),
        _COLUMN,
    )
    evaluation_options = (
        InputOption(
            flag="--text",
            name="text",
            kind="paths",
            help="Plain text to measure a language model on; may be repeated.",
        ),
        _COLUMN,
    )

    def training(self, values: Mapping[str, Any]) -> "TextFiles | None":
        """Return the files that --text names."""
        return text_files(values, "text")

    def validation(self, values: Mapping[str, Any]) -> "TextFiles | None":
        """Return the files that --valid-text names."""
        return text_files(values, "valid_text")


def text_files(values: Mapping[str, Any], name: str) -> "TextFiles | None":
    """Return the files that an option names, with their column."""
    from headwise.tasks.language_model.files import TextFiles

    found = paths(values, name)
    return TextFiles.of(found, values.get("text_column")) if found else None


INPUTS = LanguageModelInputs()

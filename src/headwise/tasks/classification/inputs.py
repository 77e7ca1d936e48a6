"""How labelled texts are named on the command line."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwise.tasks.inputs import InputOption, paths

if TYPE_CHECKING:
    from headwise.tasks.classification.files import LabelledFiles

_COLUMNS = (
    InputOption(
        flag="--text-column",
        name="text_column",
        kind="text",
        help="The column that holds the text, in .tsv, .csv and .jsonl files.",
    ),
    InputOption(
        flag="--label-column",
        name="label_column",
        kind="text",
        help="The column that holds the label, in .tsv, .csv and .jsonl files.",
    ),
)


class ClassificationInputs:
    """Tables with a text and a label in each row, fastText files, or a folder for each class."""

    needed = "labelled texts (--table)"
    options = (
        InputOption(
            flag="--table",
            name="table",
            kind="paths",
            help="Labelled texts: a table, lines as `__label__x text`, or a folder with a "
            "sub-folder of text files for each class; may be repeated.",
        ),
        InputOption(
            flag="--valid-table",
            name="valid_table",
            kind="paths",
            help="Labelled texts to validate on.",
        ),
        *_COLUMNS,
    )
    evaluation_options = (
        InputOption(
            flag="--table",
            name="table",
            kind="paths",
            help="Labelled texts to measure a classifier on; may be repeated.",
        ),
        *_COLUMNS,
        InputOption(
            flag="--baseline",
            name="baseline",
            kind="flag",
            help="Compare a classifier with logistic regression on the same training texts.",
        ),
    )

    def training(self, values: Mapping[str, Any]) -> "LabelledFiles | None":
        """Return the files that --table names."""
        return labelled_files(values, "table")

    def validation(self, values: Mapping[str, Any]) -> "LabelledFiles | None":
        """Return the files that --valid-table names."""
        return labelled_files(values, "valid_table")


def labelled_files(values: Mapping[str, Any], name: str) -> "LabelledFiles | None":
    """Return the files that an option names, with their columns."""
    from headwise.tasks.classification.files import LabelledFiles

    found = paths(values, name)
    if not found:
        return None
    return LabelledFiles.of(
        found,
        text_column=values.get("text_column"),
        label_column=values.get("label_column"),
    )


INPUTS = ClassificationInputs()

"""The options for tables and their columns, which several tasks have."""

from collections.abc import Mapping
from typing import Any

from headwise.tasks.inputs import InputOption

TABLE = InputOption(
    flag="--table",
    name="table",
    kind="paths",
    help="Labelled texts: a table, lines as `__label__x text`, or a folder with a sub-folder of "
    "text files for each class; or a table with the paths of images or sounds, and their labels or "
    "texts; may be repeated.",
)
VALID_TABLE = InputOption(
    flag="--valid-table", name="valid_table", kind="paths", help="The same to validate on."
)
TEST_TABLE = InputOption(
    flag="--table",
    name="table",
    kind="paths",
    help="The same to measure a classifier or a transcriber on; may be repeated.",
)


def _column(what: str, help_: str) -> InputOption:
    return InputOption(flag=f"--{what}-column", name=f"{what}_column", kind="text", help=help_)


TEXT_COLUMN = _column("text", "The column that holds the text, in .tsv, .csv and .jsonl files.")
LABEL_COLUMN = _column("label", "The column that holds the label, in .tsv, .csv and .jsonl files.")
IMAGE_COLUMN = _column(
    "image", "The column of a table that holds the paths of images, from the table's folder on."
)
AUDIO_COLUMN = _column(
    "audio", "The column of a table that holds the paths of sounds, from the table's folder on."
)


def is_transcribed(values: Mapping[str, Any]) -> bool:
    """Return whether a table's examples have texts to be transcribed as, instead of labels."""
    has_files = any(values.get(each.name) for each in (IMAGE_COLUMN, AUDIO_COLUMN))
    has_text = bool(values.get(TEXT_COLUMN.name))
    return has_files and has_text and not values.get(LABEL_COLUMN.name)

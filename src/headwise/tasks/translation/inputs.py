"""How pairs of sentences are named on the command line."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwise.errors import ConfigError
from headwise.tasks.inputs import InputOption, paths

if TYPE_CHECKING:
    from headwise.data import Text


class TranslationInputs:
    """Two files that correspond line by line, or one with a pair on each line."""

    needed = "text (--src and --tgt, or --tsv)"
    options = (
        InputOption(
            flag="--src", name="sources", kind="paths", help="Source text; may be repeated."
        ),
        InputOption(flag="--tgt", name="targets", kind="paths", help="Its translation, by line."),
        InputOption(
            flag="--valid-src", name="valid_src", kind="paths", help="Source text to validate on."
        ),
        InputOption(flag="--valid-tgt", name="valid_tgt", kind="paths", help="Its translation."),
        InputOption(
            flag="--tsv", name="tsv", help="One file with both sides, instead of --src and --tgt."
        ),
        InputOption(flag="--valid-tsv", name="valid_tsv", help="The same to validate on."),
        InputOption(
            flag="--columns",
            name="columns",
            kind="columns",
            default="1,2",
            help="The TSV's columns.",
        ),
    )

    evaluation_options = ()  # Its own are those of cli/evaluate.py: it also chooses an engine.

    def training(self, values: Mapping[str, Any]) -> "Text | None":
        """Return the text that --src and --tgt, or --tsv, name."""
        return _text(values, "sources", "targets", "tsv", "--src, --tgt")

    def validation(self, values: Mapping[str, Any]) -> "Text | None":
        """Return the text that --valid-src and --valid-tgt, or --valid-tsv, name."""
        return _text(values, "valid_src", "valid_tgt", "valid_tsv", "--valid-src, --valid-tgt")


def _text(
    values: Mapping[str, Any], source: str, target: str, tsv: str, flags: str
) -> "Text | None":
    from headwise.data import ParallelFiles, TsvFile

    sources, targets = paths(values, source), paths(values, target)
    file = values.get(tsv)
    if file is not None and (sources or targets):
        raise ConfigError(f"give either {flags} or a TSV file, not both")
    if file is not None:
        first, second = values["columns"]
        return TsvFile(path=file, source_column=first, target_column=second)
    if not sources and not targets:
        return None
    return ParallelFiles(sources=sources, targets=targets)


INPUTS = TranslationInputs()

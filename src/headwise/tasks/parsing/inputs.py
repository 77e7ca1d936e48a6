"""How trees are named on the command line."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwise.tasks.inputs import InputOption, paths

if TYPE_CHECKING:
    from headwise.tasks.parsing.files import TreeFiles


class ParsingInputs:
    """Files of bracketed trees."""

    needed = "trees (--trees)"
    options = (
        InputOption(
            flag="--trees",
            name="trees",
            kind="paths",
            help="Bracketed trees; may be repeated. FILE:2 shows each tree twice an epoch.",
        ),
        InputOption(
            flag="--valid-trees",
            name="valid_trees",
            kind="paths",
            help="Bracketed trees to validate on.",
        ),
    )
    evaluation_options = (
        InputOption(
            flag="--trees",
            name="trees",
            kind="paths",
            help="Bracketed trees to measure a parser on; may be repeated.",
        ),
        InputOption(
            flag="--parameters",
            name="parameters",
            help="A parameter file of EVALB (.prm); default: as COLLINS.prm.",
        ),
    )

    def training(self, values: Mapping[str, Any]) -> "TreeFiles | None":
        """Return the files that --trees names, with their weights."""
        from headwise.tasks.parsing.files import TreeFiles

        found = paths(values, "trees")
        return TreeFiles.weighted(found) if found else None

    def validation(self, values: Mapping[str, Any]) -> "TreeFiles | None":
        """Return the files that --valid-trees names."""
        return tree_files(values, "valid_trees")


def tree_files(values: Mapping[str, Any], name: str) -> "TreeFiles | None":
    """Return the files that an option names, all of weight 1."""
    from headwise.tasks.parsing.files import TreeFiles

    found = paths(values, name)
    return TreeFiles.of(*found) if found else None


INPUTS = ParsingInputs()

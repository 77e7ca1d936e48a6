"""`headwise evaluate` for parsers: bracket scores by EVALB's rules."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.data.trees import Tree, clean, read_trees
from headwise.errors import DataError
from headwise.evaluation import (
    COLLINS,
    BracketParameters,
    BracketScores,
    TreeLine,
    bracket_report,
    bracket_values,
    label_table,
    length_table,
    score_trees,
    text_table,
)
from headwise.tasks.parsing.files import TreeFiles
from headwise.tasks.parsing.linearise import PLACEHOLDER
from headwise.tasks.parsing.parser import Parse, Parser
from headwise.training.task import Progress
from headwise.visible import visible

_WINDOW = 512
"""Sentences that are parsed between two reports of progress."""


@dataclass(frozen=True, kw_only=True)
class RunParses:
    """How one run parses the sentences of gold trees."""

    run: str
    weights: str
    scores: BracketScores
    parses: tuple[Parse, ...]
    seconds: float
    has_tags: bool
    """Whether the tags are the model's own, not those of the gold trees."""

    @property
    def repaired(self) -> int:
        """How many outputs were no trees over the words, and were repaired."""
        return sum(parse.is_repaired for parse in self.parses)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the trees as JSON can hold it."""
        return {
            "run": self.run,
            "weights": self.weights,
            "repaired": self.repaired,
            "tags": "own" if self.has_tags else "gold",
            "seconds": self.seconds,
            **bracket_values(self.scores, by_length=True, by_label=True, sentences=False),
        }


@dataclass(frozen=True, kw_only=True)
class ParsingEvaluation:
    """How several runs parse the same sentences."""

    runs: tuple[RunParses, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {"runs": [run.to_dict() for run in self.runs]}

    def text(self) -> str:
        """Return the tables of one run, or a line for each of several."""
        if len(self.runs) == 1:
            (run,) = self.runs
            return "\n\n".join((_about(run), bracket_report(run.scores), *_tables(run.scores)))
        rows = [
            (
                run.run,
                *(f"{value:.2f}" for value in _figures(run.scores)),
                f"{run.repaired:,}",
                f"{len(run.parses) / run.seconds:.1f}",
            )
            for run in self.runs
        ]
        header = ("run", "F1", "±", "recall", "precision", "complete", "tagging")
        return text_table((*header, "repaired", "sentences/s"), rows)


def evaluate_runs(
    runs: Sequence[Path],
    files: TreeFiles,
    *,
    parameters: BracketParameters = COLLINS,
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    on_progress: Progress = lambda *_: None,
) -> ParsingEvaluation:
    """Parse the sentences of gold trees with each run, and score the parses against the trees."""
    gold = [
        tree
        for path in files.paths
        for found in read_trees(path)
        if (tree := clean(found.tree)) is not None
    ]
    if not gold:
        raise DataError(f"{files.paths[0]}: there are no trees to evaluate on")
    found = []
    for run in runs:
        parser = Parser.load(run, checkpoint=checkpoint, overrides=overrides)
        found.append(evaluate_parser(run, parser, gold, parameters, on_progress=on_progress))
    return ParsingEvaluation(runs=tuple(found))


def evaluate_parser(
    run: Path,
    parser: Parser,
    gold: Sequence[Tree],
    parameters: BracketParameters = COLLINS,
    *,
    on_progress: Progress = lambda *_: None,
) -> RunParses:
    """Parse the sentences of gold trees with one parser, and score the parses."""
    sentences = [tree.words() for tree in gold]
    parses: list[Parse] = []
    began = time.perf_counter()
    for start in range(0, len(sentences), _WINDOW):
        on_progress(f"parsing with {run.name}", start, len(sentences))
        parses += parser.parse_words(sentences[start : start + _WINDOW])
    seconds = time.perf_counter() - began
    has_tags = parser.config.data.leaves == "tags"
    pairs = []
    for right, parse in zip(gold, parses, strict=True):
        assert parse.tree is not None
        tree = comparable(parse.tree, right, parameters, has_tags=has_tags)
        pairs.append((TreeLine((right,)), TreeLine((tree,))))
    return RunParses(
        run=str(run),
        weights=parser.name,
        scores=score_trees(pairs, parameters),
        parses=tuple(parses),
        seconds=seconds,
        has_tags=has_tags,
    )


def comparable(
    tree: Tree, gold: Tree, parameters: BracketParameters = COLLINS, *, has_tags: bool = True
) -> Tree:
    """Return a parser's tree with tags by which it can be scored against the gold tree.

    EVALB leaves out punctuation by its tag, and does not score a sentence at all if that leaves
    other words than in the gold tree. So whether a word is punctuation is taken from the gold tree:
    what the parser tags as punctuation by mistake is tagged XX, a wrong tag. Without tags of its
    own, the tree takes all of them from the gold tree.
    """
    gold_tags = (leaf.label for leaf in gold.leaves())

    def tag(own: str) -> str:
        right = next(gold_tags)
        if not has_tags or right in parameters.deleted:
            return right
        return PLACEHOLDER if own in parameters.deleted else own

    def tagged(part: Tree) -> Tree:
        if part.word is not None:
            return Tree(tag(part.label), word=part.word)
        return Tree(part.label, tuple(map(tagged, part.children)))

    return tagged(tree)


def _figures(scores: BracketScores) -> tuple[float, ...]:
    overall = scores.overall
    margin = 0.0 if scores.interval is None else scores.interval.margin
    return (
        overall.f1,
        margin,
        overall.recall,
        overall.precision,
        overall.complete_match,
        overall.tagging_accuracy,
    )


def _about(run: RunParses) -> str:
    parts = [f"{visible(run.weights)}: {len(run.parses) / run.seconds:.1f} sentences/s"]
    if run.repaired:
        parts.append(f"{run.repaired:,} of {len(run.parses):,} outputs were repaired")
    if not run.has_tags:
        parts.append("the tags are those of the gold trees")
    return ", ".join(parts)


def _tables(scores: BracketScores) -> tuple[str, str]:
    return length_table(scores), label_table(scores)

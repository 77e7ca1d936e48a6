"""A parser's run, described for its report."""

import shlex
from collections.abc import Mapping
from typing import Any

from headwise.data.trees import Tree, write_tree
from headwise.errors import DataError
from headwise.evaluation import COLLINS, read_parameters
from headwise.runs.data import own_shards
from headwise.runs.directory import RunDirectory
from headwise.tasks.parsing.inputs import tree_files
from headwise.tasks.parsing.parser import Parser
from headwise.tasks.parsing.prepare import stored_tree
from headwise.tasks.parsing.scores import RunParses, evaluate_runs
from headwise.tasks.report import Cell, Contents, Figure
from headwise.training.task import Progress

_SAMPLES, _TRACED = 6, 3
_LONGEST_SAMPLE, _LONGEST_TRACED = 30, 24
"""Words, and tokens."""

_UNSCORED = "Not scored yet. `headwise report` with `--trees`, test trees, adds bracket scores."


def report_contents(
    run: RunDirectory, parser: Parser, values: Mapping[str, Any], on_progress: Progress
) -> Contents:
    """Describe a run; it is scored on the trees of --trees if those are given.

    Samples are parses of the validation trees in the run's own directory, if they are there.
    """
    gold = _validation_trees(run)
    parses = parser.parse_words([tree.words() for tree in gold])
    samples = tuple(
        (
            Cell(label="Sentence", text=" ".join(tree.words())),
            Cell(label="Parsed", text=parse.brackets, is_output=True),
            Cell(label="Gold", text=write_tree(tree)),
        )
        for tree, parse in zip(gold, parses, strict=True)
    )
    about = f"Validation trees of up to {_LONGEST_SAMPLE} words, at regular intervals."
    if not samples:
        about = "No examples: the trees that the run was validated on are not in its directory."
    scores, about_scores = _scores(run, values, on_progress)
    trees = run.origin().get("train_trees")
    path = shlex.quote(str(run.path))
    return Contents(
        does="parses sentences into constituency trees",
        trained_on=(trees, "trees") if type(trees) is int and 0 < trees < 2**63 else None,
        scores=scores,
        about_scores=about_scores,
        samples=samples,
        about_samples=about,
        traced=_traced(parser, gold),
        commands=(
            ("Parse a sentence:", f'headwise parse {path} "…"'),
            ("Measure it on trees:", f"headwise evaluate {path} --trees test.mrg"),
            (
                "Train on trees of your own:",
                "headwise train parsing-small --trees train.mrg --run runs/mine",
            ),
        ),
    )


def _scores(
    run: RunDirectory, values: Mapping[str, Any], on_progress: Progress
) -> tuple[tuple[Figure, ...], str]:
    files, parameters = tree_files(values, "trees"), values.get("parameters")
    if files is None:
        return (), _UNSCORED
    evaluation = evaluate_runs(
        [run.path],
        files,
        parameters=COLLINS if parameters is None else read_parameters(parameters),
        on_progress=on_progress,
    )
    return _figures(evaluation.runs[0])


def _figures(found: RunParses) -> tuple[tuple[Figure, ...], str]:
    scores = found.scores
    margin = "" if scores.interval is None else f"± {scores.interval.margin:.1f}"
    figures = [
        Figure(name="F1", value=f"{scores.overall.f1:.1f}", more=margin),
        Figure(
            name="F1",
            value=f"{scores.short.f1:.1f}",
            more=f"up to {scores.cutoff} words",
        ),
        Figure(name="Complete match", value=f"{scores.overall.complete_match:.1f}", more="%"),
    ]
    if found.has_tags:
        accuracy = f"{scores.overall.tagging_accuracy:.1f}"
        figures.append(Figure(name="Tagging accuracy", value=accuracy, more="%"))
    return tuple(figures), f"Labelled brackets of {scores.overall.scored:,} sentences, as EVALB."


def _validation_trees(run: RunDirectory) -> list[Tree]:
    """Return trees of the run's own validation data; those that cannot be read are left out."""
    shards = own_shards(run, "valid")
    found: list[Tree] = []
    count = 0 if shards is None else min(_SAMPLES, len(shards))
    for sample in range(count):
        assert shards is not None
        # The first short one of each part of the data.
        first, end = (number * len(shards) // count for number in (sample, sample + 1))
        for number in range(first, end):
            try:
                tree = stored_tree(shards, number)
            except DataError:
                continue
            if len(tree.words()) <= _LONGEST_SAMPLE:
                found.append(tree)
                break
    return found


def _traced(parser: Parser, gold: list[Tree]) -> tuple[str, ...]:
    """Return short sentences of which the model can show its attention."""
    texts = [" ".join(tree.words()) for tree in gold]
    longest = min(_LONGEST_TRACED, parser.longest_source)
    return tuple(text for text in texts if 1 <= parser.count_tokens(text) <= longest)[:_TRACED]

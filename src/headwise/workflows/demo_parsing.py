"""The demo of parsing: split a treebank, train a parser, score it on held-out trees."""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headwise.data.prepare import Progress
from headwise.data.trees import Tree, clean, read_trees, write_tree
from headwise.errors import ConfigError, DataError
from headwise.files import new_directory, write_file
from headwise.runs.directory import RunDirectory
from headwise.tasks.parsing.files import TreeFiles
from headwise.tasks.parsing.parser import Parse, Parser
from headwise.tasks.parsing.report import report_contents
from headwise.tasks.parsing.scores import RunParses, evaluate_parser
from headwise.tasks.report import Figure
from headwise.training.events import Event
from headwise.workflows.demo_runs import (
    DATA,
    SAMPLES,
    TrainedDemo,
    check_demo,
    check_space,
    existing_config,
    finished,
    made_before,
    remove_demo,
    timed_recipe,
    writing_in,
)
from headwise.workflows.report import write_report
from headwise.workflows.train import train

RECIPE = "parsing-small"
MINUTES = 5.0
TEST_TREES = 500
LONGEST_SAMPLE = 12
"""Words of a sentence whose tree is drawn."""

_TRAIN, _TEST = "parsing-demo-train.mrg", "parsing-demo-test.mrg"
_LARGEST_SHARE = 0.1
_LEAST_TREES = 100

WHERE_TREES_ARE = (
    "--task parsing needs a treebank: give its bracketed trees with --trees FILE. Free ones: CRAFT "
    "(biomedical articles, CC BY 3.0), GUM (many genres; annotations CC BY 4.0, texts by source), "
    "and the 3,914 trees of the Penn Treebank in NLTK's data (non-commercial use); see "
    "docs/parsing.md"
)


@dataclass(frozen=True, kw_only=True)
class ParsingDemoReport:
    """The results of a trained demo of parsing."""

    training: TrainedDemo
    found: RunParses
    samples: list[Parse]
    """Of the first short sentences."""
    parser: Parser
    page: Path
    """The report, as a page."""


def train_parsing_demo(
    run: Path | None,
    trees: Sequence[Path],
    *,
    minutes: float | None = None,
    overrides: Sequence[str] = (),
    fresh: bool = False,
    say: Callable[[str], None] = lambda _: None,
    on_event: Callable[[Event], None] = lambda _: None,
    on_progress: Progress = lambda *_: None,
) -> TrainedDemo:
    """Hold out some of the trees and train on the others, or continue an earlier demo.

    The default minutes are the run's, else five.
    """
    if not trees:
        raise ConfigError(WHERE_TREES_ARE)
    path = run or Path("runs") / "demo-parsing"
    with writing_in(path.parent):
        if not path.exists():
            check_space(path.parent)
        files, counts = _split(trees, path.parent / DATA / "parsing")
        is_begun = (path / "config.toml").exists()
        if is_begun:
            check_demo(path, RECIPE, map(TreeFiles.of, made_before(files.parent, _TRAIN)))
        if is_begun and fresh:
            remove_demo(path)
            is_begun = False
        if is_begun:
            config = existing_config(path, minutes, overrides)
        else:
            config = timed_recipe(RECIPE, MINUTES if minutes is None else minutes, overrides)
        state = finished(path)
        if state is not None:
            # Also refuses a run of other trees.
            _check_trees(path, files / _TRAIN)
            return TrainedDemo(
                run=RunDirectory(path), test=files / _TEST, state=state, is_new=False
            )
        say(
            f"Sentences to constituency trees: {counts[0]:,} trees, "
            f"{config.train.max_minutes:g} minutes of training, then a test on {counts[1]:,} "
            "sentences that it never saw."
        )
        report = train(
            config,
            path,
            text=TreeFiles.of(files / _TRAIN),
            on_event=on_event,
            on_progress=on_progress,
        )
    return TrainedDemo(
        run=RunDirectory(path),
        test=files / _TEST,
        state=report.state,
        is_new=True,
        signal=report.signal,
    )


def evaluate_parsing_demo(
    training: TrainedDemo, *, on_progress: Progress = lambda *_: None
) -> ParsingDemoReport:
    """Parse the held-out sentences with the recipe's beam, score them, and write the report."""
    run, parser = training.run, Parser.load(training.run.path)
    gold = [found.tree for found in read_trees(training.test)]
    found = evaluate_parser(run.path, parser, gold, on_progress=on_progress)
    short = [parse for parse in found.parses if len(parse.words) <= LONGEST_SAMPLE]
    contents = replace(
        report_contents(run, parser, {}, on_progress),
        scores=_figures(found),
        about_scores=f"Labelled brackets of {len(gold):,} sentences that it never saw, as EVALB.",
    )
    return ParsingDemoReport(
        training=training,
        found=found,
        samples=short[:SAMPLES],
        parser=parser,
        page=write_report(run, parser, contents),
    )


def _figures(found: RunParses) -> tuple[Figure, ...]:
    overall, interval = found.scores.overall, found.scores.interval
    margin = "" if interval is None else f"± {interval.margin:.1f}"
    return (
        Figure(name="F1", value=f"{overall.f1:.1f}", more=margin),
        Figure(name="Complete match", value=f"{overall.complete_match:.1f}", more="%"),
        Figure(name="Tagging accuracy", value=f"{overall.tagging_accuracy:.1f}", more="%"),
    )


def _split(paths: Sequence[Path], directory: Path) -> tuple[Path, tuple[int, int]]:
    """Write trees to train on and trees to test on; return their folder and how many there are.

    A sentence that occurs several times is only trained on. The same trees are split in the same
    way, in a folder named by what they are.
    """
    trees = [tree for path in paths for found in read_trees(path) if (tree := clean(found.tree))]
    if len(trees) < _LEAST_TREES:
        raise DataError(
            f"{paths[0]}: {len(trees):,} trees are too few for a demo, which needs {_LEAST_TREES}"
        )
    test = _held_out(trees)
    parts = {
        _TRAIN: [tree for number, tree in enumerate(trees) if number not in test],
        _TEST: [trees[number] for number in sorted(test)],
    }
    contents = {
        name: "".join(f"{write_tree(tree)}\n" for tree in part).encode()
        for name, part in parts.items()
    }
    digest = hashlib.blake2b(b"".join(contents.values()), digest_size=4).hexdigest()
    folder = directory / digest
    if not folder.exists():
        with new_directory(folder) as temporary:
            for name, content in contents.items():
                write_file(temporary / name, content)
    return folder, (len(parts[_TRAIN]), len(parts[_TEST]))


def _held_out(trees: Sequence[Tree]) -> set[int]:
    sentences: dict[tuple[str, ...], list[int]] = {}
    for number, tree in enumerate(trees):
        sentences.setdefault(tuple(tree.words()), []).append(number)
    single = [numbers[0] for numbers in sentences.values() if len(numbers) == 1]
    count = min(TEST_TREES, int(_LARGEST_SHARE * len(trees)), len(single))
    drawn = random.Random("parsing").sample(single, count)  # noqa: S311 - a sample, not a secret
    if not drawn:
        raise DataError("every sentence occurs several times: none can be held out for the test")
    return set(drawn)


def _check_trees(path: Path, trees: Path) -> None:
    if RunDirectory(path).origin().get("text") != TreeFiles.of(trees).describe():
        raise ConfigError(
            f"{path} is a demo of other trees: choose another --run; with --fresh it takes its "
            "place"
        )

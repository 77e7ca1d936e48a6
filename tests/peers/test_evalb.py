"""Our bracket scores are those of EVALB itself, compiled by `make peers`, on random trees."""

import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwise.evaluation import (
    COLLINS,
    BracketParameters,
    BracketScores,
    read_parameters,
    score_tree_files,
)
from tests.evalb import CASES, case_figures, row_text, summaries_text, total_text

EVALB = Path(__file__).parents[2] / ".peers" / "allennlp" / "allennlp" / "tools" / "EVALB"
PROGRAM = EVALB / "evalb"

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="`make peers` compiles EVALB")

LABELS = ["S", "NP", "VP", "NP-SBJ", "VP=2", "ADVP", "PRT", "PRT-X", "TOP", "-NONE-", "", "S1"]

Node = tuple[str, "list[Node] | str"]
"""A label with its parts, or a tag with its word."""


@dataclass(frozen=True)
class Text:
    """What random sentences are made of."""

    kept: tuple[str, ...] = ("NN", "VB", "ADVP", "PRT", "POS", "NN-X", "CD", "VBZ")
    deleted: tuple[str, ...] = ("``", "''", ":", ",", ".", "-NONE-")
    words: tuple[str, ...] = ("a", "b", "c", "'", '"', "/", "-LRB-", "5'-end", "été", "\u00a0")
    sizes: tuple[int, ...] = (1, 2, 3, 5, 10, 20, 40, 45)
    confused: float = 0.05
    """How often a wrong tag is deleted on one side only, which makes the sentence an error."""


# EVALB has room for 20 quotes.
QUOTES = Text(
    ("NN", "POS", "CD", "VBZ"), ("``", "''", ":"), ("'", '"', "/"), (2, 3, 5, 10, 20), 0.5
)


def grow(chance: random.Random, leaves: list[Node]) -> Node:
    """Put a random tree over words."""
    parts: list[Node] = []
    rest = leaves
    while rest:
        size = min(len(rest), 1 + int(chance.expovariate(0.3)))
        is_inner = size < len(leaves) and (size > 1 or chance.random() < 0.3)
        parts += [grow(chance, rest[:size])] if is_inner else rest[:size]
        rest = rest[size:]
    node: Node = (chance.choice(LABELS), parts)
    while chance.random() < 0.1:
        node = (chance.choice([node[0], chance.choice(LABELS)]), [node])
    return node


def leaves_of(node: Node) -> Iterator[Node]:
    if isinstance(node[1], str):
        yield node
    else:
        for part in node[1]:
            yield from leaves_of(part)


def changed(chance: random.Random, node: Node, made_of: Text) -> list[Node]:
    """Parse the same words with some other brackets, labels and tags."""
    label, parts = node
    if isinstance(parts, str):
        if chance.random() < 0.05:
            is_kept = (label in made_of.kept) != (chance.random() < made_of.confused)
            label = chance.choice(made_of.kept if is_kept else made_of.deleted)
        return [(label, parts)]
    if chance.random() < 0.05:
        label = chance.choice(LABELS)
    parts = [new for part in parts for new in changed(chance, part, made_of)]
    what = chance.random()
    if what < 0.05:
        return parts
    if what < 0.1:
        place = chance.randrange(len(parts))
        parts[place:] = [(chance.choice(LABELS), parts[place:])]
    elif what < 0.13:
        parts = [(label, parts)]
    elif what < 0.2:
        return [grow(chance, list(leaves_of((label, parts))))]
    return [(label, parts)]


def text(node: Node) -> str:
    label, parts = node
    return f"({label} {parts if isinstance(parts, str) else ' '.join(map(text, parts))})"


def line_pairs(seed: int, count: int, made_of: Text | None = None) -> Iterator[tuple[str, str]]:
    """Yield a line with a gold tree and one with a test tree, which is sometimes wrong."""
    chance = random.Random(seed)
    made_of = made_of or Text()
    for _ in range(count):
        tags = chance.choices(
            [made_of.kept, made_of.deleted], [3, 1], k=chance.choice(made_of.sizes)
        )
        gold = grow(chance, [(chance.choice(kind), chance.choice(made_of.words)) for kind in tags])
        test = " ".join(map(text, changed(chance, gold, made_of)))
        other_words = [test.replace(" a)", " b)", 1), f"{test} (NN a)"]
        wrong = ["", " ", "(. .)", "(S)", *other_words, f"(S {test}"]
        gold_text = text(gold) if chance.random() < 0.99 else f"(S {text(gold)}"
        yield gold_text, chance.choice(wrong) if chance.random() < 0.05 else test


def compare(
    directory: Path,
    lines: list[tuple[str, str]],
    parameter_file: Path,
    parameters: BracketParameters,
) -> BracketScores:
    """Check every figure of every sentence and of the summary against EVALB's."""
    gold, test = directory / "gold", directory / "test"
    gold.write_text("".join(f"{one}\n" for one, _ in lines), "utf-8")
    test.write_text("".join(f"{other}\n" for _, other in lines), "utf-8")
    command = [str(PROGRAM), "-p", str(parameter_file), "-e", "1000000", str(gold), str(test)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    _, _, _, *theirs = (line for line in result.stdout.splitlines() if line)
    scores = score_tree_files(gold, test, parameters)

    for number, (row, line) in enumerate(zip(scores.rows, theirs, strict=False), start=1):
        if row.reason.startswith(("gold:", "test:")) and row.status == "error":
            # EVALB prints what it compared up to the fault, but does not count it.
            assert line.split()[:3] == [f"{number}", f"{row.length}", "1"], lines[number - 1]
        else:
            assert line == row_text(number, row), lines[number - 1]
    _, total, _, *blocks = theirs[len(lines) :]
    assert total == total_text(scores.overall)
    assert blocks == summaries_text(scores)
    return scores


def test_one_case_for_each_rule(tmp_path: Path) -> None:
    lines = [(gold, test) for gold, test, _ in CASES.values()]
    scores = compare(tmp_path, lines, EVALB / "COLLINS.prm", COLLINS)
    assert [*map(case_figures, scores.rows)] == [figures for _, _, figures in CASES.values()]


def test_ten_thousand_pairs_with_the_usual_parameters(tmp_path: Path) -> None:
    lines = list(line_pairs(16, 12_000))
    scores = compare(tmp_path, lines, EVALB / "COLLINS.prm", COLLINS)
    found = scores.overall
    assert found.scored > 10_000
    assert found.errors > 300
    assert found.skipped > 300
    assert found.crossing > 1_000
    assert 60 < found.f1 < 90


def test_quotes_that_are_put_back(tmp_path: Path) -> None:
    path = EVALB / "new.prm"
    lines = list(line_pairs(17, 5_000, QUOTES))
    scores = compare(tmp_path, lines, path, read_parameters(path))
    without = BracketParameters(
        deleted=read_parameters(path).deleted, equal_labels=COLLINS.equal_labels
    )
    plain = score_tree_files(tmp_path / "gold", tmp_path / "test", without)
    assert scores.overall.scored > plain.overall.scored + 100


def test_equal_labels_that_are_not_transitive_and_no_labels(tmp_path: Path) -> None:
    lines = list(line_pairs(18, 2_000))
    for number, text in enumerate(
        [
            "EQ_LABEL S NP\nEQ_LABEL NP VP\nDELETE_LABEL VP\nDELETE_LABEL .\nEQ_WORD a b\n",
            "EQ_LABEL S NP\nEQ_LABEL VP NP\nEQ_LABEL VP S1\nCUTOFF_LEN 5\n",
            "LABELED 0\nDELETE_LABEL_FOR_LENGTH NN\nDELETE_LABEL NN\n",
        ]
    ):
        path = tmp_path / f"{number}.prm"
        path.write_text(text)
        compare(tmp_path, lines, path, read_parameters(path))

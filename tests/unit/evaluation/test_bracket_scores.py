"""Bracket scores of test sets: EVALB's own results, lengths, labels and intervals."""

import math
from pathlib import Path

import pytest

from headwise.evaluation import (
    BracketScores,
    SentenceScore,
    TreeLine,
    read_parameters,
    read_tree_line,
    score_tree_files,
    score_trees,
)
from tests.evalb import row_text, summaries_text, total_text

FILES = Path(__file__).parent / "evalb"

SAMPLE_PARAMETERS = """
DELETE_LABEL TOP
DELETE_LABEL -NONE-
DELETE_LABEL ,
DELETE_LABEL :
DELETE_LABEL ``
DELETE_LABEL ''
DELETE_LABEL_FOR_LENGTH -NONE-
EQ_LABEL T TT
EQ_WORD  This this
"""
BUG_PARAMETERS = """
DELETE_LABEL TOP
DELETE_LABEL S1
DELETE_LABEL -NONE-
DELETE_LABEL ,
DELETE_LABEL :
DELETE_LABEL ``
DELETE_LABEL ''
DELETE_LABEL .
DELETE_LABEL ?
DELETE_LABEL !
DELETE_LABEL_FOR_LENGTH -NONE-
QUOTE_LABEL ``
QUOTE_LABEL ''
QUOTE_LABEL POS
QUOTE_LABEL NN
QUOTE_LABEL CD
QUOTE_LABEL VBZ
QUOTE_LABEL :
EQ_LABEL ADVP PRT
"""


def pairs(*lines: tuple[str, str]) -> list[tuple[TreeLine, TreeLine]]:
    return [(read_tree_line(gold), read_tree_line(test)) for gold, test in lines]


@pytest.mark.parametrize(
    ("name", "parameters"), [("sample", SAMPLE_PARAMETERS), ("bug", BUG_PARAMETERS)]
)
def test_the_results_that_evalb_printed(name: str, parameters: str, tmp_path: Path) -> None:
    path = tmp_path / "evalb.prm"
    path.write_text(parameters)
    scores = score_tree_files(FILES / f"{name}.gld", FILES / f"{name}.tst", read_parameters(path))
    printed = [line for line in (FILES / f"{name}.rsl").read_text().splitlines() if line]
    rows = printed[3 : 3 + len(scores.rows)]
    _, total, _, *summaries = printed[3 + len(scores.rows) :]

    for number, (row, line) in enumerate(zip(scores.rows, rows, strict=True), start=1):
        ours, theirs = row_text(number, row).split(), line.split()
        if row.status != "ok":  # The present EVALB prints 0 words; the one of the sample did not.
            ours[9] = theirs[9]
        assert ours == theirs
    ours, theirs = total_text(scores.overall).split(), total.split()
    del ours[5], theirs[5]  # These versions printed another number as the crossing brackets.
    assert ours == theirs
    listed = [line for line in summaries_text(scores) if "FMeasure" not in line or name == "bug"]
    assert listed == summaries


def test_the_published_figures_of_the_sample(tmp_path: Path) -> None:
    path = tmp_path / "sample.prm"
    path.write_text(SAMPLE_PARAMETERS)
    found = score_tree_files(FILES / "sample.gld", FILES / "sample.tst", read_parameters(path))
    total = found.overall
    assert f"{total.recall:.2f} {total.precision:.2f}" == "87.76 90.53"
    assert f"{total.tagging_accuracy:.2f} {total.f1:.2f}" == "98.15 89.12"
    assert (total.sentences, total.errors, total.skipped, total.scored) == (24, 5, 2, 17)


def test_sentences_that_are_not_scored_are_noted() -> None:
    good = "(S (NN a))"
    scores = score_trees(
        pairs((good, good), (good, ""), (good, "(S (NN b))"), (good, "(S (NN a)"), ("a)", good))
    )
    assert [row.status for row in scores.rows] == ["ok", "skip", "error", "error", "error"]
    assert scores.overall.f1 == 100
    assert scores.labels[0].gold == scores.labels[0].test == 1
    assert scores.notes == (
        "4 of 5 sentences were not scored: line 2: no words in test; "
        "line 3: word 1 differs: 'a' in gold, 'b' in test; "
        "line 4: test: column 1: the bracket that begins here is not closed; and 1 more",
    )
    assert scores.rows[4].reason == "gold: column 1: expected '(', found 'a'"


def test_brackets_without_a_label_are_noted() -> None:
    scores = score_trees(pairs(("( (S (NN a)))", "(S (NN a))")))
    assert scores.overall.recall == 50
    assert scores.notes == (
        "brackets without a label, as in ( (S …)), count like others, as in EVALB: remove them "
        "from both files",
    )


def test_an_unreadable_line_is_skipped_if_the_test_side_has_no_words() -> None:
    scores = score_trees(pairs(("(S (NN a)", ""), ("(S (NN a))", "(S")))
    assert [row.status for row in scores.rows] == ["skip", "skip"]
    assert [row.length for row in scores.rows] == [1, 1]
    assert scores.rows[1].reason == "test: column 1: the bracket that begins here is not closed"


def test_nothing_that_can_be_scored() -> None:
    scores = score_trees(pairs(("(S (NN a))", "")))
    assert (scores.overall.f1, scores.overall.average_crossing, scores.interval) == (0, 0, None)


def test_no_interval_without_resamples() -> None:
    scores = score_trees(pairs(("(S (NN a))", "(S (NN a))")), resamples=0)
    assert (scores.overall.f1, scores.interval) == (100, None)


def test_by_length() -> None:
    def sentence(length: int) -> str:
        return f"(S {' '.join(['(NN a)'] * length)})"

    lengths = [1, 10, 11, 40, 41, 99]
    scores = score_trees(pairs(*((sentence(length), sentence(length)) for length in lengths)))
    assert (scores.cutoff, scores.short.sentences) == (40, 4)
    assert [
        (score.shortest, score.longest, score.summary.sentences) for score in scores.by_length()
    ] == [(0, 10, 2), (11, 20, 1), (21, 30, 0), (31, 40, 1), (41, None, 2)]
    assert [score.summary.words for score in scores.by_length([10])] == [11, 191]


def test_by_label_a_match_counts_under_the_label_of_its_own_side() -> None:
    gold = "(S (NP (NN a)) (PRT (RB b)) (ADVP (RB c)) (NP (NN d)))"
    test = "(S (NP (NN a)) (ADVP (RB b)) (ADVP (RB c)) (VP (NN d)))"
    scores = score_trees(pairs((gold, test), (gold, test)))
    found = {
        score.label: (score.gold, score.test, score.recall, score.precision)
        for score in scores.labels
    }
    assert found == {
        "NP": (4, 2, 50, 100),
        "ADVP": (2, 4, 100, 100),
        "S": (2, 2, 100, 100),
        "PRT": (2, 0, 100, 0),
        "VP": (0, 2, 0, 0),
    }
    assert list(found) == ["NP", "ADVP", "S", "PRT", "VP"]
    assert scores.labels[0].f1 == pytest.approx(200 / 3)


def with_brackets(matches: list[bool]) -> BracketScores:
    """Score sentences of one bracket each."""
    right, wrong = ("(X (NN a))", "(X (NN a))"), ("(X (NN a))", "(Y (NN a))")
    return score_trees(pairs(*(right if match else wrong for match in matches)))


def test_the_interval_is_that_of_the_binomial_distribution() -> None:
    scores = with_brackets([number % 5 > 0 for number in range(400)])
    assert scores.interval is not None
    assert scores.interval.mean == pytest.approx(80, abs=0.3)
    assert scores.interval.margin == pytest.approx(196 * math.sqrt(0.8 * 0.2 / 400), rel=0.1)


def test_the_interval_is_the_same_every_time_and_leaves_out_what_is_not_scored() -> None:
    matches = [number % 3 > 0 for number in range(30)]
    scores = with_brackets(matches)
    assert scores.interval == with_brackets(matches).interval
    lines = pairs(*([("(X (NN a))", "")] * 30))
    both = score_trees(
        [*lines, *pairs(*(("(X (NN a))", f"({'XY'[not m]} (NN a))") for m in matches))]
    )
    assert both.interval == scores.interval


def test_equal_sentences_have_no_margin() -> None:
    scores = with_brackets([True] * 10)
    assert scores.interval is not None
    assert (scores.interval.mean, scores.interval.margin) == (100, 0)


def test_json_values() -> None:
    row = SentenceScore(length=2, matched=1, gold=2, test=1, words=2, correct_tags=1)
    assert row.to_dict()["recall"] == 50
    scores = score_trees(pairs(("(S (NN a))", "(S (NN a))")))
    assert scores.overall.to_dict()["f1"] == 100
    assert scores.labels[0].to_dict()["label"] == "S"
    assert scores.by_length()[0].to_dict()["longest"] == 10

"""Word and character error rates."""

import random
from functools import cache

import pytest

from headwise.evaluation import align, alignment_lines, count_edits, edit_report, score_texts


def fewest_edits(one: str, other: str) -> int:
    """Count edits by the definition: the best of all ways to begin."""

    @cache
    def from_place(row: int, column: int) -> int:
        if row == len(one) or column == len(other):
            return len(one) - row + len(other) - column
        return min(
            from_place(row + 1, column + 1) + (one[row] != other[column]),
            from_place(row + 1, column) + 1,
            from_place(row, column + 1) + 1,
        )

    return from_place(0, 0)


def pairs(count: int, letters: str = "abc") -> list[tuple[str, str]]:
    generator = random.Random(1)

    def draw() -> str:
        return "".join(generator.choices(letters, k=generator.randrange(9)))

    return [(draw(), draw()) for _ in range(count)]


def test_no_alignment_has_fewer_edits() -> None:
    for one, other in pairs(200):
        counts = count_edits(one, other)
        assert counts.edits == fewest_edits(one, other)
        assert counts.reference == len(one)


def test_an_alignment_has_both_texts_in_it() -> None:
    for one, other in pairs(100):
        edits = align(one, other)
        assert "".join(edit.reference for edit in edits) == one
        assert "".join(edit.output for edit in edits) == other
        assert all((e.operation == "equal") == (e.reference == e.output) for e in edits)


def test_rates_are_of_all_words_and_characters_together() -> None:
    errors = score_texts(["one two three", "four", "five"], ["one too", "four", "five six"])
    assert (errors.words.substitutions, errors.words.deletions, errors.words.insertions) == (
        1,
        1,
        1,
    )
    assert errors.words.rate == pytest.approx(3 / 5)
    assert errors.characters.reference == 21
    assert errors.characters.edits == 1 + 6 + 4
    assert errors.exact == pytest.approx(1 / 3)
    assert errors.exact_interval is not None
    assert 0 < errors.exact_interval.margin < 0.7


def test_an_empty_reference_has_a_rate() -> None:
    assert count_edits("", "").rate == 0
    assert count_edits("", "ab").rate == 1


def test_a_bootstrap_of_equal_examples_has_no_width() -> None:
    errors = score_texts(["a b"] * 20, ["a c"] * 20)
    assert errors.word_interval is not None
    assert errors.word_interval.margin == 0
    assert errors.word_interval.mean == pytest.approx(0.5)


def test_alignments_are_set_in_columns() -> None:
    lines = alignment_lines(
        align(["the", "cat", "sat", "there"], ["the", "bat", "sat", "on", "there"])
    )
    assert lines == ["the cat sat ** there", "the bat sat on there", "    S       I"]


def test_the_report_has_every_rate() -> None:
    report = edit_report(score_texts(["ab cd"], ["ab ce"]))
    rows = {line[:20].strip(): line[20:].split() for line in report.splitlines()}
    assert rows["word error rate"] == ["50.0", "±", "0.0", "1", "0", "0"]
    assert rows["character error rate"][0] == "20.0"
    assert rows["exactly right"][0] == "0.0"


def test_they_are_jiwers() -> None:
    jiwer = pytest.importorskip("jiwer")
    texts = [(one, other) for one, other in pairs(200, "ab ") if one.strip()]
    references, outputs = map(list, zip(*texts, strict=True))
    errors = score_texts(references, outputs, resamples=0)
    assert errors.words.rate == pytest.approx(jiwer.wer(references, outputs))
    strip = [(one.strip(), other.strip()) for one, other in texts]
    references, outputs = map(list, zip(*strip, strict=True))
    errors = score_texts(references, outputs, resamples=0)
    assert errors.characters.rate == pytest.approx(jiwer.cer(references, outputs))

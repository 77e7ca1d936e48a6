"""BLEU and chrF: worked out by hand, and equal to sacreBLEU's own to the last digit."""

import math
import os

import pytest
import sacrebleu

from headwise.errors import DataError
from headwise.evaluation import RESAMPLES, Bleu, ChrF, bleu, chrf
from headwise.evaluation.corpus import References

HYPOTHESES = [
    "The cat sat on the mat, didn't it?",
    "A dog barks loudly at 3.5 people.",
    "Nothing here matches",
    "He bought a well-known house in 1998-1999.",
    "",
    "Ärger im Büro!",
]
FIRST = [
    "The cat sat on a mat, did it not?",
    "The dog barks loudly at 3.5 people.",
    "Everything differs there.",
    "He bought the well-known house in 1998-1999.",
    "Not empty.",
    "ärger im büro!",
]
SECOND = [
    "The cat was on the mat, didn't it?",
    None,
    "Nothing is there",
    "",
    None,
    "Streit im Büro!",
]


def test_bleu_of_two_sentences_counted_by_hand() -> None:
    hypotheses = ["the cat sat on the mat", "a dog barks"]
    references = [["the cat sat on a mat", "a dog barks loudly"]]
    # Matched: "the" once of twice, cat, sat, on, mat and all of the second sentence; and so on.
    precisions = [8 / 9, 5 / 7, 3 / 5, 1 / 3]
    brevity = math.exp(1 - 10 / 9)
    found = bleu(hypotheses, references)
    assert found.value == pytest.approx(100 * brevity * math.prod(precisions) ** 0.25, abs=1e-12)
    assert found.precisions == pytest.approx([100 * p for p in precisions], abs=1e-12)
    assert found.brevity_penalty == pytest.approx(brevity, abs=1e-15)
    assert (found.hypothesis_length, found.reference_length) == (9, 10)
    assert found.length_ratio == 0.9
    assert found.interval is None


def test_the_nearest_reference_counts_for_the_length_and_every_one_for_matches() -> None:
    found = bleu(["a b c d e"], [["a b c"], ["c d e f g h i j"]])
    assert (found.hypothesis_length, found.reference_length) == (5, 3)
    assert found.precisions[0] == 100  # a, b and c from the one, d and e from the other
    assert found.precisions[1] == 100  # ab, bc; cd, de
    assert found.precisions[2] == pytest.approx(100 * 2 / 3)  # abc; cde, but not bcd


def test_chrf_of_two_letters_counted_by_hand() -> None:
    # Orders 1 and 2: precision 1 and 1, recall 2/3 and 1/2; the reference has no longer match.
    recall = (2 / 3 + 1 / 2) / 2
    found = chrf(["ab"], [["abc"]])
    assert found.value == pytest.approx(100 * 5 * recall / (4 + recall), abs=1e-12)


@pytest.mark.parametrize("references", [[FIRST], [FIRST, FIRST[::-1]], [FIRST, SECOND]])
@pytest.mark.parametrize("lowercase", [False, True])
def test_bleu_is_sacrebleus_to_the_last_digit(references: References, lowercase: bool) -> None:
    theirs = sacrebleu.BLEU(lowercase=lowercase)
    # Their types do not say that a reference may be None.
    expected = theirs.corpus_score(HYPOTHESES, references)  # type: ignore[arg-type]
    found = bleu(HYPOTHESES, references, lowercase=lowercase)
    assert found.value == expected.score
    assert list(found.precisions) == expected.precisions
    assert found.length_ratio == expected.ratio
    assert found.signature == str(theirs.get_signature())
    assert "tok:13a" in found.signature


@pytest.mark.parametrize("references", [[FIRST], [FIRST, SECOND]])
def test_chrf_is_sacrebleus_to_the_last_digit(references: References) -> None:
    theirs = sacrebleu.CHRF()
    found = chrf(HYPOTHESES, references)
    expected = theirs.corpus_score(HYPOTHESES, references)  # type: ignore[arg-type]
    assert found.value == expected.score
    assert found.signature == str(theirs.get_signature())


def test_missing_references_are_in_the_signature() -> None:
    assert "nrefs:var|" in bleu(HYPOTHESES, [FIRST, SECOND]).signature
    assert "nrefs:2|" in bleu(HYPOTHESES, [FIRST, FIRST]).signature


@pytest.mark.parametrize("environment", [None, "7", "none"])
def test_intervals_are_sacrebleus_whatever_seed_the_environment_has(
    environment: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    metrics = sacrebleu.BLEU(), sacrebleu.CHRF()
    expected = [metric.corpus_score(HYPOTHESES, [FIRST], RESAMPLES) for metric in metrics]
    if environment is not None:
        monkeypatch.setenv("SACREBLEU_SEED", environment)
    ours: tuple[Bleu | ChrF, ...] = (
        bleu(HYPOTHESES, [FIRST], resamples=RESAMPLES),
        chrf(HYPOTHESES, [FIRST], resamples=RESAMPLES),
    )
    assert os.environ.get("SACREBLEU_SEED") == environment
    for found, theirs, metric in zip(ours, expected, metrics, strict=True):
        assert found.interval is not None
        assert found.interval.margin > 0
        assert (found.interval.mean, found.interval.margin) == (theirs._mean, theirs._ci)
        assert found.signature == str(metric.get_signature())
        assert "bs:1000|seed:12345|" in found.signature


def test_nothing_but_empty_lines_scores_nothing() -> None:
    found = bleu(["", ""], [["a b", "c"]], resamples=10)
    assert (found.value, found.length_ratio, found.brevity_penalty) == (0, 0, 0)
    assert chrf(["", ""], [["a b", "c"]]).value == 0


@pytest.mark.parametrize(
    ("hypotheses", "references", "complaint"),
    [
        ([], [[]], "there is no hypothesis"),
        (["a"], [], "there is no reference to score against"),
        (["a", "b"], [["a", "b"], ["a"]], "2 hypotheses but 1 sentences in reference 2"),
        (["a", "b"], [["a", None], ["a", None]], "sentence 2 has no reference"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    hypotheses: list[str], references: References, complaint: str
) -> None:
    for metric in (bleu, chrf):
        with pytest.raises(DataError, match=complaint):
            metric(hypotheses, references)


def test_a_resample_that_scores_nothing_is_no_obstacle() -> None:
    found = chrf(["ab", "xyzxyz"], [["cd", "xyzxyz"]], resamples=100)
    assert found.interval is not None
    assert 0 < found.interval.mean < 100
    assert found.signature == chrf(["a"], [["a"]], resamples=100).signature

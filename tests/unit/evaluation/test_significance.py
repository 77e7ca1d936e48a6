"""The paired test: sacreBLEU's, baseline first, and honest about equal systems."""

import json
import random
from collections.abc import Iterable, Sequence

import pytest
import sacrebleu
from sacrebleu.significance import PairedTest, Result

from headwise.errors import DataError
from headwise.evaluation import bleu, compare, comparison_table

WORDS = [
    "the",
    "a",
    "dog",
    "cat",
    "house",
    "tree",
    "sees",
    "finds",
    "big",
    "small",
    "green",
    "old",
    "and",
    "not",
    "runs",
]


def corpus(seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(4, 12))) + "." for _ in range(60)]


def spoilt(lines: list[str], share: float, seed: int) -> list[str]:
    """Replace a share of the words at random."""
    rng = random.Random(seed)
    return [
        " ".join(rng.choice(WORDS) if rng.random() < share else word for word in line.split())
        for line in lines
    ]


REFERENCE = corpus(1)
GOOD, ALIKE, BAD = (
    spoilt(REFERENCE, share, seed) for share, seed in ((0.1, 2), (0.1, 3), (0.4, 4))
)


def figures(results: Iterable[str | Result]) -> list[tuple[object, ...]]:
    """Return sacreBLEU's score, p-value, mean and margin of each system."""
    found: list[tuple[object, ...]] = []
    for result in results:
        assert isinstance(result, Result)
        found.append((result.score, result.p_value, result.mean, result.ci))
    return found


@pytest.mark.parametrize("environment", [None, "7"])
def test_the_test_is_sacrebleus_with_its_usual_seed(
    environment: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    systems: list[tuple[str, Sequence[str]]] = [("good", GOOD), ("alike", ALIKE), ("bad", BAD)]
    metrics = {"BLEU": sacrebleu.BLEU(), "chrF2": sacrebleu.CHRF()}
    signatures, expected = PairedTest(systems, metrics, [REFERENCE], "bs", 200)()
    if environment is not None:
        monkeypatch.setenv("SACREBLEU_SEED", environment)
    found = compare(systems, [REFERENCE], resamples=200)
    assert [system.name for system in found.systems] == expected["System"]
    assert [
        (s.bleu, s.bleu_p, s.bleu_interval.mean, s.bleu_interval.margin) for s in found.systems
    ] == figures(expected["BLEU"])
    assert [
        (s.chrf, s.chrf_p, s.chrf_interval.mean, s.chrf_interval.margin) for s in found.systems
    ] == figures(expected["chrF2"])
    assert found.bleu_signature == str(signatures["BLEU"])
    assert found.chrf_signature == str(signatures["chrF2"])
    assert "bs:200|seed:12345|" in found.bleu_signature


def test_a_worse_system_is_found_and_an_equal_one_is_not() -> None:
    found = compare([("good", GOOD), ("again", list(GOOD)), ("bad", BAD)], [REFERENCE])
    baseline, again, bad = found.systems
    assert (baseline.bleu_p, baseline.chrf_p) == (None, None)
    assert (again.bleu_p, again.chrf_p) == (1.0, 1.0)  # sacreBLEU itself would say 0.001
    assert bad.bleu_p is not None
    assert bad.bleu_p < 0.01
    assert baseline.bleu == bleu(GOOD, [REFERENCE]).value
    table = comparison_table(found).splitlines()
    assert table[2].split()[5] == "1.0000"
    assert table[3].split()[5] == f"{bad.bleu_p:.4f}*"
    assert table[4] == "* differs from good (p < 0.05, paired bootstrap)"
    assert json.loads(json.dumps(found.to_dict()))["systems"][2]["bleu_p"] == bad.bleu_p


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(DataError, match="needs two systems or more"):
        compare([("a", GOOD)], [REFERENCE])
    with pytest.raises(DataError, match="two of the systems to compare have the same name"):
        compare([("a", GOOD), ("a", BAD)], [REFERENCE])
    with pytest.raises(DataError, match="59 hypotheses but 60 sentences in reference 1"):
        compare([("a", GOOD), ("b", BAD[1:])], [REFERENCE])

"""Scores that others published of real text, in the folder that HEADWISE_DATA names."""

import os
from pathlib import Path

import pytest

from headwise.evaluation import Scores, compare, moses_tokenizer, read_corpus, score

pytestmark = pytest.mark.slow


@pytest.fixture
def fixtures() -> Path:
    folder = os.environ.get("HEADWISE_DATA")
    if not folder:
        pytest.skip("HEADWISE_DATA names no folder with fixtures/wmt17_ende_systems")
    return Path(folder) / "fixtures"


def scored(hypotheses: Path, reference: Path, language: str) -> Scores:
    return score(*read_corpus(hypotheses, [reference]), language=language)


@pytest.mark.parametrize(
    ("system", "published"),
    [("uedin-nmt.4722", 28.30), ("online-B.0", 26.65), ("LMU-nmt-reranked.4934", 27.11)],
)
def test_systems_of_wmt17_score_as_sacrebleu_has_them(
    fixtures: Path, system: str, published: float
) -> None:
    folder = fixtures / "wmt17_ende_systems"
    found = scored(folder / f"newstest2017.{system}.en-de.de.gz", folder / "reference.de.gz", "de")
    assert found.sentences == 3004
    assert round(found.bleu.value, 2) == published


def test_the_best_of_three_systems_of_wmt17_is_significantly_so(fixtures: Path) -> None:
    folder = fixtures / "wmt17_ende_systems"
    systems = []
    for name in ("uedin-nmt.4722", "online-B.0", "LMU-nmt-reranked.4934"):
        path = folder / f"newstest2017.{name}.en-de.de.gz"
        hypotheses, references = read_corpus(path, [folder / "reference.de.gz"])
        systems.append((name, hypotheses))
    _, *others = compare(systems, references).systems
    for other in others:
        assert other.bleu_p is not None
        assert other.bleu_p < 0.05


def test_bleu_is_what_mteval_v13a_printed(fixtures: Path) -> None:
    folder = fixtures / "wmt15_mteval"
    found = scored(folder / "google.ru", folder / "ref.ru", "ru")
    assert found.bleu.value / 100 == pytest.approx(0.2318, abs=1e-4)


def test_tokens_and_bleu_are_what_moses_own_scripts_made(fixtures: Path) -> None:
    folder = fixtures / "wmt15_mteval"
    hypotheses, reference = (
        folder / f"newstest-2015-100sents.en-ru.{side}.ru" for side in ("google", "ref")
    )
    tokenise = moses_tokenizer("ru")
    for plain, tokenised in ((hypotheses, "google.ru"), (reference, "ref.ru")):
        lines, (expected,) = read_corpus(plain, [folder / tokenised])
        assert [tokenise(line) for line in lines] == expected
    # The README beside them: BLEU = 23.17, 53.8/29.6/17.6/10.3 (hyp_len=1989, ref_len=1852).
    found = scored(hypotheses, reference, "ru").tokenised.plain
    assert round(found.value, 2) == 23.17
    assert [round(p, 1) for p in found.precisions] == [53.8, 29.6, 17.6, 10.3]
    assert (found.hypothesis_length, found.reference_length) == (1989, 1852)

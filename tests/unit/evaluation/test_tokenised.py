"""The paper's way: Moses' tokens, compounds split, multi-bleu's counting."""

import math

import pytest
import sacremoses

from headwise.errors import DataError
from headwise.evaluation import moses_tokenizer, split_compounds, tokenised_bleu


@pytest.mark.parametrize(
    ("language", "line", "tokens"),
    [
        ("de", "Das ist z.B. gut, oder?", "Das ist z.B. gut , oder ?"),
        ("de", "Am 3. Mai kamen 3,5 Mio. Leute.", "Am 3. Mai kamen 3,5 Mio. Leute ."),
        ("de", "rich-text-Format", "rich-text-Format"),
        ("de", 'A & B | <c> "d" [e]', "A &amp; B &#124; &lt; c &gt; &quot; d &quot; &#91; e &#93;"),
        ("en", "It isn't Tom's...", "It isn &apos;t Tom &apos;s ..."),
        ("fr", "L'homme d'hier", "L&apos; homme d&apos; hier"),
        ("xx", "Mr. Smith isn't in.", "Mr. Smith isn &apos; t in ."),
        ("de", "  \t ", ""),
    ],
)
def test_moses_tokens(language: str, line: str, tokens: str) -> None:
    assert moses_tokenizer(language)(line) == tokens


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("a rich-text format", "a rich ##AT##-##AT## text format"),
        ("rich-text-Format", "rich ##AT##-##AT## text ##AT##-##AT## Format"),
        ("a-b-c", "a ##AT##-##AT## b-c"),  # As perl's s///g: b is used up.
        ("here - there -5 6- --", "here - there -5 6- --"),
        ("größe-ähnlich", "größe ##AT##-##AT## ähnlich"),
    ],
)
def test_compounds_are_split_as_in_get_ende_bleu(line: str, split: str) -> None:
    assert split_compounds(line) == split


def test_tokenised_bleu_counted_by_hand() -> None:
    found = tokenised_bleu(
        ["das ist ein rich-text Format"], [["das ist ein rich-Text Format"]], language="de"
    )
    assert found.plain.value == 0  # No 4-gram matches, and multi-bleu does not smooth.
    assert found.plain.precisions == pytest.approx((80, 50, 100 / 3, 0))
    assert found.plain_lowercased.value == pytest.approx(100)
    matched = 6 / 7 * 4 / 6 * 3 / 5 * 2 / 4  # das ist ein rich - [text] Format
    assert found.compounds.value == pytest.approx(100 * matched**0.25)
    assert found.compounds_lowercased.value == pytest.approx(100)
    assert (found.plain.hypothesis_length, found.compounds.hypothesis_length) == (5, 7)


def test_the_signature_says_whose_tokens_and_whether_compounds_are_split() -> None:
    found = tokenised_bleu(["a"], [["a"]], language="de")
    name = f"tok:moses-de-{sacremoses.__version__}"
    assert f"|case:mixed|eff:no|{name}|smooth:none|" in found.plain.signature
    assert f"|case:lc|eff:no|{name}|smooth:none|" in found.plain_lowercased.signature
    assert f"|case:mixed|eff:no|{name}-compounds|smooth:none|" in found.compounds.signature


def test_both_sides_are_tokenised_and_missing_references_stay_missing() -> None:
    found = tokenised_bleu(
        ['Er sagt: "Ja, gut & schön."', "Nein, das geht nicht."],
        [['Er sagt : " Ja , gut & schön . "', None], [None, "Nein , das geht nicht ."]],
        language="de",
    )
    assert found.plain.value == pytest.approx(100)
    assert "nrefs:1|" in found.plain.signature


def test_brevity_counts_tokens() -> None:
    found = tokenised_bleu(["a b c d"], [["a b c d, weg."]], language="de")
    assert found.plain.brevity_penalty == pytest.approx(math.exp(1 - 7 / 4))


def test_unequal_sides_are_refused() -> None:
    with pytest.raises(DataError, match="1 hypotheses but 2 sentences in reference 1"):
        tokenised_bleu(["a"], [["a", "b"]])

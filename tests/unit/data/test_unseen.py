"""What is held out is held out, however it is spelled."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.data.unseen import Pair, sentence_key, split_by_source
from headwise.errors import DataError


@pytest.mark.parametrize(
    "other",
    [
        "run away",
        "RUN AWAY!",
        "  run, away…",
        "¿Run away?",
        "Run-away.",
        "“Rún away”",
        "ＲＵＮ away",
    ],
)
def test_spellings_of_one_sentence_have_one_key(other: str) -> None:
    assert sentence_key(other) == sentence_key("Run away.")


def test_other_words_have_other_keys() -> None:
    keys = {
        sentence_key(text) for text in ("Run away.", "Run a way 2.", "Ran away.", "走れ。", "走る")
    }
    assert len(keys) == 5
    assert sentence_key("Straße") == sentence_key("STRASSE")


# Unicode has one letter whose capital is another letter's: the Turkish i without a dot.
@given(st.text(st.characters(codec="utf-8", exclude_characters="ı")))
def test_case_punctuation_and_spaces_never_matter(text: str) -> None:
    key = sentence_key(text)
    assert key == sentence_key(f" {text.upper()} !?")
    assert key == sentence_key(text.lower().replace(" ", "  "))
    assert key == sentence_key(key)


def spelled(sentence: str, way: int) -> str:
    return [sentence, sentence.upper(), f"{sentence}!", sentence.replace(" ", ", ")][way]


def text(sentences: int) -> list[Pair]:
    """Sentences in up to four spellings, with up to three translations of each spelling."""
    generator = random.Random(1)
    pairs = []
    for number in range(sentences):
        for way in range(generator.randint(1, 4)):
            source = spelled(f"sentence number {number}", way)
            pairs += [(source, f"{number} {way} {n}") for n in range(generator.randint(1, 3))]
    return pairs


def test_no_source_is_in_two_parts_however_spelled() -> None:
    pairs = text(300)
    split = split_by_source(pairs, test=40, valid=20)
    train, valid = ({sentence_key(source) for source, _ in p} for p in (split.train, split.valid))
    test = {sentence_key(source) for source, _ in split.test}
    assert (len(train), len(valid), len(test), len(split.test)) == (240, 20, 40, 40)
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_nothing_is_lost_but_other_spellings_of_what_is_held_out() -> None:
    pairs = text(300)
    split = split_by_source(pairs, test=40, valid=20)
    tested = [(source, target) for source, targets in split.test for target in targets]
    found = [*split.train, *split.valid, *tested]
    keys = {sentence_key(source) for source, _ in split.test}
    missing = set(pairs) - set(found)
    assert len(found) == len(set(found)) == len(pairs) - split.left_out
    assert split.left_out == len(missing) > 0
    assert {sentence_key(source) for source, _ in missing} <= keys
    for source, targets in split.test:
        assert targets == tuple(target for other, target in pairs if other == source)


def test_what_is_held_out_depends_on_the_sentences_alone() -> None:
    pairs = text(300)
    split = split_by_source(pairs, test=40, valid=20)
    assert split_by_source(pairs, test=40, valid=20) == split
    shuffled = list(pairs)
    random.Random(2).shuffle(shuffled)
    other = split_by_source(shuffled, test=40, valid=20)
    assert [source for source, _ in other.test] == [source for source, _ in split.test]
    assert sorted(other.train) == sorted(split.train)
    assert sorted(other.valid) == sorted(split.valid)


def test_too_few_sentences_are_an_error() -> None:
    with pytest.raises(DataError, match="60 different source sentences are too few to hold out 60"):
        split_by_source(text(60), test=40, valid=20)

"""The Penn-style tokenizer: what it separates, what it keeps, and that it loses nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.tasks.parsing.words import split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # Clitics, with straight and typographic apostrophes.
        ("I can't, won't and don’t.", "I ca n't , wo n't and do n’t ."),
        ("It's what we'd've said they'll do.", "It 's what we 'd 've said they 'll do ."),
        ("WE'RE here, I'm not; you've O'Brien's.", "WE 'RE here , I 'm not ; you 've O'Brien 's ."),
        ("the dogs' tails at one o'clock", "the dogs ' tails at one o'clock"),
        ("'Tis the '90s: get 'em!", "'T is the '90s : get 'em !"),
        ("I cannot, so I'm gonna.", "I can not , so I 'm gon na ."),
        # Quotes.
        ('"Hello," she said.', "`` Hello , '' she said ."),
        ('He said "no." Then "yes"!', "He said `` no . '' Then `` yes '' !"),
        ('("so-called") "...then"', "( `` so-called '' ) `` ... then ''"),
        ('"\'Yes\' and “no”"', "`` ' Yes ' and “ no ” ''"),
        ('He left ", so', "He left '' , so"),
        ('a " b " c', "a `` b '' c"),
        ("`` b '' \"", "`` b '' ``"),
        ('a 5" pipe', "a 5 '' pipe"),
        # Dots.
        ("Mr. J. Smith met Dr. B. of Foo Inc. in Calif. on Oct. 5.",
         "Mr. J. Smith met Dr. B. of Foo Inc. in Calif. on Oct. 5 ."),
        ("He sold Foo Corp.", "He sold Foo Corp ."),
        ("He sold (Foo Inc.'s", "He sold ( Foo Inc. 's"),
        ("Plan B.", "Plan B ."),
        ("So do I. He left.", "So do I . He left ."),
        ("The U.S.-based firm of the U.S.", "The U.S.-based firm of the U.S."),
        ("e.g. (i.e., this), Foo Inc.'s, etc., at 5 p.m. today.",
         "e.g. ( i.e. , this ) , Foo Inc. 's , etc. , at 5 p.m. today ."),
        ("No. 5 said no. Chr. 2.", "No. 5 said no . Chr. 2 ."),
        ("One. Two.", "One . Two ."),
        ("Well... so.... yes…", "Well ... so .... yes …"),
        # Numbers, currencies, dashes, brackets.
        ("1,000 or 3.5 or .5 at 10:30, 1/2 of 10%", "1,000 or 3.5 or .5 at 10:30 , 1/2 of 10 %"),
        ("$3.50, US$5, €7,000 and #1", "$ 3.50 , US$ 5 , € 7,000 and # 1"),
        ("a 62%-owned, well-known co-op", "a 62%-owned , well-known co-op"),
        ("now--or—never –5", "now -- or — never – 5"),
        ("see [1](a){b}<c>", "see [ 1 ] ( a ) { b } < c >"),
        ("AT&T and/or C# #tag @me :-) ;)", "AT&T and/or C# #tag @me :-) ;)"),
        ("Really?! Yes!!!", "Really ? ! Yes !!!"),
        # Addresses.
        ("See https://x.org/a,b?c=1&d.", "See https://x.org/a,b?c=1&d ."),
        ("(www.x.org), <a.b+c@x-y.co.uk>!", "( www.x.org ) , < a.b+c@x-y.co.uk > !"),
        # Other scripts.
        ("naïve Straße 你好，世界。", "naïve Straße 你好 ， 世界 。"),
        ("good🙂 👩‍👩‍👧👍🏽!", "good 🙂 👩‍👩‍👧👍🏽 !"),
        ("", ""),
        (" \t\n\u00a0\u2028", ""),
    ],
)  # fmt: skip
def test_words(text: str, words: str) -> None:
    assert split_words(text) == words.split()


PIECES = st.sampled_from(
    [
        *"'’\"`.,:;-$%()[]#@!?/ \n🙂é世5aI",
        "n't",
        "'s",
        "''",
        "``",
        "...",
        "--",
        "US$",
        "cannot",
        "http://",
        "www.",
        "x@y.z",
        "Mr.",
        "U.S.",
        "No.",
        "1,000",
    ]
)
TEXTS = st.text() | st.lists(PIECES).map("".join)


def assert_keeps(text: str, words: list[str]) -> None:
    """Check that the words are the text but for white space and straight double quotes."""
    rest = "".join(text.split())
    position = 0
    for word in words:
        if rest[position] == '"' and word in ("``", "''"):
            position += 1
        else:
            assert word
            assert rest[position : position + len(word)] == word
            position += len(word)
    assert position == len(rest)


@given(TEXTS)
def test_nothing_is_lost(text: str) -> None:
    assert_keeps(text, split_words(text))


@given(TEXTS)
def test_words_have_no_white_space(text: str) -> None:
    assert all(word.split() == [word] for word in split_words(text))


SIZE = 100_000


@pytest.mark.parametrize(
    "unit",
    [
        *"a'\".-`",
        "a.",
        "a's",
        "--a",
        "1,",
        "a-@",
        "US$",
        "www.",
        "a. ",
        '" ',
        ".a-",
        "%-",
        "a.b@c.",
    ],
)
def test_long_texts_are_split_in_linear_time(unit: str) -> None:
    text = unit * (SIZE // len(unit)) + "@"  # Quadratic time would take hours for all of them.
    assert_keeps(text, split_words(text))

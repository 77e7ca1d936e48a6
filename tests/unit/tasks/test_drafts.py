"""Continuations that are written together: as `generate` writes them, piece by piece."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.config import TextDataConfig
from headwise.decoding import DrawnToken
from headwise.tasks.language_model.drafts import Draft, Drafts
from headwise.tasks.language_model.generator import Generator
from headwise.tasks.language_model.text_tokenizer import TextTokenizer
from headwise.tasks.language_model.writing import Piece, Writer, join_pieces
from tests.small_runs import WORDS
from tests.unit.tasks.test_generator import make_generator

TOKENIZER = TextTokenizer.learn(
    [" ".join(WORDS)] * 20, TextDataConfig(vocab_size=300, normalization="identity")
)
EOS = TOKENIZER.vocab.eos


def write(ids: Sequence[int], prompt: str = "", stop: tuple[str, ...] = ()) -> list[Piece]:
    """Return the pieces of a continuation that has these ids."""
    start = [TOKENIZER.vocab.start, *TOKENIZER.encode(prompt)]
    writer = Writer(TOKENIZER, start, stop=stop, has_tokens=True)
    pieces: list[Piece] = []
    for place, number in enumerate(ids):
        is_last = place == len(ids) - 1
        pieces.append(writer.add(DrawnToken(0, number, -1.0, is_last, ((number, -1.0),))))
        if pieces[-1].ending is not None:
            break
    return pieces


IDS = st.lists(st.integers(4, len(TOKENIZER) - 1), max_size=90)
TEXTS = st.text("ab n€🎉\n\ufffd", max_size=30)


@given(st.one_of(IDS, TEXTS.map(TOKENIZER.encode)), TEXTS)
@settings(max_examples=150)
def test_pieces_joined_are_the_text_of_all_ids(ids: list[int], prompt: str) -> None:
    pieces = write([*ids, EOS], prompt)
    start = TOKENIZER.encode(prompt)
    whole = TOKENIZER.decode([TOKENIZER.vocab.start, *start, *ids])
    assert TOKENIZER.decode(start) + join_pieces(pieces).text == whole
    assert (pieces[-1].ending, join_pieces(pieces).num_tokens) == ("end", len(ids))
    # No piece ends within a character.
    so_far = ""
    for piece in pieces:
        so_far += piece.text
        assert whole.startswith(TOKENIZER.decode(start) + so_far)


@given(TEXTS, st.lists(st.text("ab n€", min_size=1, max_size=4), min_size=1, max_size=3))
@settings(max_examples=150)
def test_stop_sequences_end_a_text_wherever_tokens_begin(text: str, stops: list[str]) -> None:
    ids = [*TOKENIZER.encode(text), EOS]
    pieces = write(ids, stop=tuple(stops))
    found = join_pieces(pieces)
    text = TOKENIZER.decode(ids)
    assert text.startswith(found.text)
    assert not any(stop in found.text for stop in stops)
    if any(stop in text for stop in stops):
        assert found.ending == "stop"
        assert any(text[len(found.text) :].startswith(stop) for stop in stops)
    else:
        assert (found.text, found.ending) == (text, "end")
    for token in found.tokens:
        assert token.offset < max(1, len(found.text)) or found.ending == "end"


def test_a_stop_sequence_may_straddle_tokens() -> None:
    ids = [TOKENIZER.subwords.id_of(each) for each in ("b", "a", "n", "d")]
    assert TOKENIZER.vocab.unk not in ids
    pieces = write([*ids, EOS], stop=("an",))
    assert [piece.text for piece in pieces] == ["b", "", ""]
    assert pieces[-1].ending == "stop"
    assert [token.token for token in join_pieces(pieces).tokens] == ["b"]
    # What only began like one is passed on, and so are its tokens.
    pieces = write([*ids, EOS], stop=("anna", "bad"))
    assert [piece.text for piece in pieces] == ["", "", "b", "and", ""]
    assert [len(piece.tokens) for piece in pieces] == [0, 0, 1, 3, 0]
    assert [token.offset for token in join_pieces(pieces).tokens] == [0, 1, 2, 3]


def test_an_unfinished_character_comes_last() -> None:
    ids = TOKENIZER.encode("a€")
    assert len(ids) == 5, "the character is spelled in bytes"
    whole = write([*ids, EOS])
    assert [piece.text for piece in whole] == ["", "a", "", "", "€", ""]
    pieces = write(ids[:-1])
    assert join_pieces(pieces).text == TOKENIZER.decode(ids[:-1])
    assert "\ufffd" in pieces[-1].text
    assert pieces[-1].ending == "length"
    assert len(pieces[-1].tokens) == 2, "bytes that were waiting for their character"


def run_all(drafts: Drafts, waiting: dict[int, Draft], seed: int) -> dict[int, list[Piece]]:
    """Add drafts at random times, and write all to their ends."""
    generator, pieces = random.Random(seed), dict[int, list[Piece]]()
    while waiting or drafts:
        count = generator.randint(0, 3)
        joining = {number: waiting.pop(number) for number in list(waiting)[:count]}
        if joining:
            drafts.add(joining)
        for number, piece in drafts.advance().items():
            assert piece is not None
            pieces.setdefault(number, []).append(piece)
    return pieces


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("context", [3, 10])
def test_drafts_are_what_generate_returns_when_others_join(context: int) -> None:
    """Beyond the context too, with prompts of different lengths, and two draws of each."""
    generator = make_generator(context)
    prompts = ["ban", "bora kon", "", "dun\nban", "ban bara dun kon " * 3, "kan"]
    changes: list[dict[str, Any]] = [{}, {"temperature": 0}, {"top_k": 5}, {"top_p": 0.7}]
    expected, waiting = {}, {}
    for number, prompt in enumerate(prompts):
        settings = generator.settings(
            count=2,
            seed=number,
            max_tokens=5 + 4 * number,
            **changes[number % 4],
        )
        for each, draft in enumerate(generator.drafts([prompt], settings, num_best=2)):
            waiting[2 * number + each] = draft
        (found,) = generator.generate_all([prompt], settings)
        for each, sample in enumerate(found.samples):
            expected[2 * number + each] = sample
    for number, pieces in run_all(generator.writing(), waiting, seed=context).items():
        whole, sample = join_pieces(pieces), expected[number]
        assert whole.text == sample.text
        assert tuple(token.token for token in whole.tokens) == sample.tokens
        assert (whole.ending == "end") == sample.is_ended
        assert whole.num_tokens == len(sample.ids)
        if not sample.is_ended:
            total = sum(token.log_prob for token in whole.tokens)
            assert total == pytest.approx(sample.log_prob, abs=1e-9)
        for token in whole.tokens:
            assert len(token.best) == 2
            assert token.best[0][1] >= max(token.best[1][1], token.log_prob - 1e-12)


def test_in_single_precision_only_close_draws_may_differ() -> None:
    generator = make_generator()
    differing = close = 0
    for seed in range(5):
        settings = generator.settings(seed=seed, count=12, max_tokens=40, top_p=1 - seed / 10)
        drafts, waiting = generator.writing(), generator.drafts(["ban", "bora kon"], settings)
        found = run_all(drafts, dict(enumerate(waiting)), seed)
        expected = generator.generate_all(["ban", "bora kon"], settings)
        texts = [sample.text for each in expected for sample in each.samples]
        differing += sum(join_pieces(found[n]).text != text for n, text in enumerate(texts))
        close += drafts.close_draws
    assert differing <= close < 400


def test_a_stopped_or_dropped_draft_frees_its_row() -> None:
    generator = make_generator()
    settings = generator.settings(temperature=0, max_tokens=30)
    text = generator.generate("ban", temperature=0, max_tokens=30).text
    drafts = generator.writing()
    (plain,) = generator.drafts(["ban"], settings)
    (stopping,) = generator.drafts(["ban"], settings, stop=[text[3:6]])
    drafts.add({1: plain, 2: stopping, 3: plain, 4: plain})
    pieces: list[Piece] = []
    while not pieces or pieces[-1].ending is None:
        found = drafts.advance()[2]
        assert found is not None
        pieces.append(found)
    assert join_pieces(pieces).text == text[: text.index(text[3:6])]
    assert len(drafts) == len(drafts._search) == 3
    drafts.drop([1, 3])
    assert len(drafts) == len(drafts._search) == 1
    assert list(drafts.advance()) == [4]
    drafts.drop([4])
    assert drafts._search._state is None
    assert drafts.advance() == {}


def test_nan_logits_are_none() -> None:
    generator = make_generator()
    generator.model.embedding.weight.data[:] = math.nan
    drafts = generator.writing()
    drafts.add(dict(enumerate(generator.drafts(["ban"], generator.settings(count=2)))))
    assert drafts.advance() == {0: None, 1: None}
    assert len(drafts) == len(drafts._search) == 0


def test_a_prompt_of_several_drafts_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    generator: Generator = make_generator()
    drafts, rows = generator.writing(), []
    start = drafts._model.start

    def counted(prompts: Sequence[Sequence[int]]) -> object:
        rows.append(len(prompts))
        return start(prompts)

    monkeypatch.setattr(drafts._model, "start", counted)
    settings = generator.settings(count=5, max_tokens=4)
    drafts.add(dict(enumerate(generator.drafts(["ban", "kon"], settings))))
    assert (rows, len(drafts)) == ([2], 10)
    assert torch.is_grad_enabled()

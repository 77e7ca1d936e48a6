"""A parser gives a tree over exactly the words, whatever the words and the weights are."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headwise.config import ParsingConfig
from headwise.data.trees import read_tree
from headwise.errors import RequestError
from headwise.model import build_model
from headwise.tasks.parsing.parser import Parse, Parser
from headwise.tasks.parsing.prepare import ALIGNED, prepare_trees
from headwise.tasks.parsing.task import TASK
from headwise.tasks.parsing.tokenizer import SOURCE, TARGET, TreeTokenizer
from tests.small_runs import small_tree_config, write_trees

TOKENS = re.compile(r"[^ \t\n\v\f\r]+")
TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40
) | st.lists(
    st.sampled_from(["the", "dog", "(", ")", "-LRB-", "🙂", "\u00a0", "\u2581", "漢字", "x" * 99]),
    max_size=12,
).map(" ".join)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TreeTokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    prepare_trees(write_trees(folder), small_tree_config(), folder / "data")
    return TreeTokenizer.load(folder / "data")


def untrained(tokenizer: TreeTokenizer, *changes: str, seed: int = 1, longest: int = 60) -> Parser:
    config: ParsingConfig = small_tree_config(*changes)
    torch.manual_seed(seed)
    model = build_model(config.model, tokenizer.vocab, "seq2seq")
    return Parser(model, tokenizer, config, longest_source=longest, name="untrained")


def check(parse: Parse, words: list[str]) -> None:
    """Check that a parse is a tree over the words, which can be written and read back."""
    assert list(parse.words) == words
    if not words:
        assert (parse.tree, parse.brackets, parse.constituents) == (None, "", [])
        return
    assert parse.tree is not None
    assert parse.tree.words() == words
    assert "\n" not in parse.brackets
    assert read_tree(parse.brackets) == parse.tree
    assert all(0 <= c.start < c.end <= len(words) for c in parse.constituents)
    assert parse.log_prob < 0


@settings(max_examples=25)
@given(
    texts=st.lists(TEXTS, max_size=4),
    seed=st.integers(0, 3),
    constrained=st.booleans(),
    tokenized=st.booleans(),
    beam=st.integers(1, 3),
)
def test_any_text_has_a_tree_over_its_words(
    tokenizer: TreeTokenizer,
    texts: list[str],
    seed: int,
    constrained: bool,
    tokenized: bool,
    beam: int,
) -> None:
    parser = untrained(tokenizer, "decode.max_extra_tokens=5", seed=seed)
    parses = parser.parse(texts, constrained=constrained, tokenized=tokenized, beam=beam)
    assert len(parses) == len(texts)
    for parse, text in zip(parses, texts, strict=True):
        words = parser.words(text, tokenized=tokenized)
        if tokenized:
            assert len(words) == len(TOKENS.findall(text))
        check(parse, words)
        assert not (constrained and parse.is_repaired)


@pytest.mark.parametrize("changes", [[], ["model.aligned_input=false"]])
@pytest.mark.parametrize("constrained", [True, False])
def test_one_word_and_many(tokenizer: TreeTokenizer, changes: list[str], constrained: bool) -> None:
    parser = untrained(tokenizer, *changes, "decode.max_extra_tokens=10")
    one, many = parser.parse(["dog", "the dog " * 250], constrained=constrained, beam=1)
    check(one, ["dog"])
    check(many, ["the", "dog"] * 250)
    assert one.num_parts == 1
    assert many.num_parts > 8
    assert many.tree is not None
    assert (many.tree.label, len(many.tree.children)) == ("S", many.num_parts)


def test_a_sentence_of_any_length_fits_learned_positions(tokenizer: TreeTokenizer) -> None:
    for most in (2, 5, 9):
        changes = "model.positions=learned", f"model.max_positions={most}"
        parser = untrained(tokenizer, *changes, longest=most - 1)
        for words in (1, 2, 3, 20):
            for constrained in (True, False):
                (parse,) = parser.parse("house " * words, constrained=constrained)
                check(parse, ["house"] * words)
    (long_word,) = parser.parse("x" * 1000, tokenized=True)
    check(long_word, ["x" * 1000])


def test_what_the_constraint_ensures_is_else_repaired(tokenizer: TreeTokenizer) -> None:
    parser = untrained(tokenizer, "decode.max_extra_tokens=10")
    sentence = "the dog sees the cat ."
    (free,) = parser.parse(sentence, constrained=False)
    (bound,) = parser.parse(sentence)
    assert (free.is_repaired, bound.is_repaired) == (True, False)
    plain = untrained(tokenizer, "decode.max_extra_tokens=10", "decode.constrained=false")
    assert plain.parse(sentence) == [free]


def test_a_batch_size_of_1_depends_on_no_other_sentence(tokenizer: TreeTokenizer) -> None:
    config: ParsingConfig = small_tree_config()
    model = untrained(tokenizer).model
    alone = Parser(model, tokenizer, config, longest_source=60, name="", batch_size=1)
    sentences = ["the dog .", "the old dog sees the cat near the house .", "dog"]
    together = alone.parse(sentences)
    assert [parse for sentence in sentences for parse in alone.parse(sentence)] == together


def test_the_next_best_parses_come_in_order(tokenizer: TreeTokenizer) -> None:
    (parse,) = untrained(tokenizer).parse("the dog sees .", nbest=5)
    ranked = [parse, *parse.others]
    assert len(ranked) == 5
    assert len({each.brackets for each in ranked}) == 5
    assert [each.score for each in ranked] == sorted((e.score for e in ranked), reverse=True)
    for each in ranked:
        check(each, ["the", "dog", "sees", "."])


def test_brackets_in_words_are_escaped_in_trees_only(tokenizer: TreeTokenizer) -> None:
    parser = untrained(tokenizer)
    for text in ("( dog )", "-LRB- dog -RRB-"):
        (parse,) = parser.parse(text, tokenized=True)
        assert parse.words == ("(", "dog", ")")
        assert "-LRB-)" in parse.brackets


def test_a_tree_is_drawn(tokenizer: TreeTokenizer) -> None:
    full, empty = untrained(tokenizer).parse(["the dog", " "])
    assert full.pretty().splitlines()[-1].endswith("dog")
    assert full.svg().startswith("<svg ")
    assert (empty.pretty(), empty.svg(), empty.to_nltk()) == ("", "", None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a\0b"], "a NUL character"),
        (["\ud83d"], "half of a surrogate pair"),
        (["a b"], "'a b' is not a word"),
        ([""], "'' is not a word"),
    ],
)
def test_what_is_no_text_is_refused(
    words: list[str], message: str, tokenizer: TreeTokenizer
) -> None:
    with pytest.raises(RequestError, match=message):
        untrained(tokenizer).parse_words([words])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam and nbest are at least 1"),
        ({"nbest": 0}, "beam and nbest are at least 1"),
        ({"alpha": -1.0}, "must be a number from 0 to 10"),
    ],
)
def test_wrong_settings_are_refused(
    options: dict[str, float], message: str, tokenizer: TreeTokenizer
) -> None:
    with pytest.raises(RequestError, match=message):
        untrained(tokenizer).parse("dog", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("aligned", ["true", "false"])
def test_a_tree_found_step_by_step_is_as_probable_in_training(
    tokenizer: TreeTokenizer, aligned: str
) -> None:
    """What collating gives the model is what the search gives it."""
    parser = untrained(tokenizer, f"model.aligned_input={aligned}")
    sentences = ["the old dog sees .", "dog", "the dog sees the cat near the house ."]
    for parse in parser.parse(sentences, beam=1):
        assert parse.tree is not None
        source, ends = tokenizer.encode_words(parse.words)
        target, leaves_before = tokenizer.encode_tree(parse.tree, "tags")
        example = {
            SOURCE: source,
            ALIGNED: [ends[count] for count in leaves_before],
            TARGET: target,
        }
        rows = {name: (np.array(ids), np.array([len(ids)])) for name, ids in example.items()}
        batch = TASK.collate(rows, tokenizer.vocab, (1, 0))
        step = TASK.objective(parser.model, parser.config)
        with torch.inference_mode():
            losses, count = step(*batch)
        assert int(count) == len(target) + 1
        assert float(losses.nll) == pytest.approx(-parse.log_prob, rel=1e-4)


@pytest.mark.parametrize("aligned", ["true", "false"])
def test_attention_is_between_subwords_and_symbols(tokenizer: TreeTokenizer, aligned: str) -> None:
    parser = untrained(tokenizer, f"model.aligned_input={aligned}")
    (parse,) = parser.parse("the dog sees .")
    traced = parser.trace("the dog sees .", most_tokens=100)
    assert traced.target == parse.brackets
    symbols, tokens = len(traced.target_tokens), len(traced.source_tokens)
    assert traced.trace.decoder.cross_attention[0].shape[-2:] == (symbols + 1, tokens + 1)
    assert traced.target_tokens[0].startswith("(")
    given = parser.trace("the dog sees .", parse.brackets, most_tokens=100)
    assert torch.equal(*(t.trace.decoder.cross_attention[0] for t in (traced, given)))


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (" ", None, "at least 1 and at most 60 tokens"),
        ("dog " * 61, None, "at least 1 and at most 60 tokens"),
        ("the dog", "(S (NN dog))", "a tree over other words"),
        ("the dog", "(S (NN dog", "the target is not a tree"),
    ],
)
def test_what_cannot_be_traced_is_refused(
    source: str, target: str | None, message: str, tokenizer: TreeTokenizer
) -> None:
    with pytest.raises(RequestError, match=message):
        untrained(tokenizer).trace(source, target, most_tokens=100)


def test_a_parser_is_loaded_from_a_run(trained_parser: Path) -> None:
    import headwise

    parser = headwise.Parser.load(trained_parser)
    assert parser.name.startswith(str(trained_parser))
    (parse,) = parser.parse("The old dog sees the cat near the house.")
    check(parse, ["The", "old", "dog", "sees", "the", "cat", "near", "the", "house", "."])
    (again,) = headwise.Parser.load(trained_parser, overrides=["decode.beam=1"]).parse("a dog .")
    assert again == parser.parse("a dog .", beam=1)[0]

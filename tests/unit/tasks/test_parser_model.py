"""Search for trees with untrained models: against brute force, and for any words and limits."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headwise.config import ModelConfig, Vocab
from headwise.decoding import BeamSearch, Found, Hypothesis, SearchSettings, beam_search
from headwise.model import Transformer
from headwise.tasks.parsing.grammar import FIRST_ID, Bounds, Symbols, least_limit
from headwise.tasks.parsing.state import ParserModel, ParseState, aligned_positions
from tests.linear_trees import Grammar, leaves_of_tree

SOURCE_SIZE = 11


@dataclass(frozen=True)
class Sentence:
    """A source with its end, and where its words end."""

    src: list[int]
    ends: list[int]
    limit: int

    @property
    def words(self) -> int:
        return len(self.ends) - 1


def sentence(words: int, limit: int, seed: int = 1) -> Sentence:
    """Make up words of one to three subwords."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 4, (words,), generator=generator).tolist()
    src = torch.randint(4, SOURCE_SIZE, (sum(sizes),), generator=generator).tolist()
    ends = [sum(sizes[: place + 1]) - 1 for place in range(words)]
    return Sentence([*src, Vocab.eos], [*ends, len(src)], limit)


def padded(rows: list[list[int]], fill: int = 0) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [fill] * (longest - len(row)) for row in rows])


def build(rules: Grammar, seed: int = 1, **changes: object) -> ParserModel:
    """Build a small model with such weights that it prefers some symbols to others by far."""
    torch.manual_seed(seed)
    vocab = Vocab(source_size=SOURCE_SIZE, target_size=len(rules.symbols))
    sizes: dict[str, object] = {"d_model": 6, "d_ff": 5, "num_layers": 1, "num_heads": 2}
    config = ModelConfig(**(sizes | {"tying": "untied"} | changes))  # type: ignore[arg-type]
    model = Transformer(config, vocab).eval()
    model.output.weight.data *= 3
    return ParserModel(model, rules.symbols, rules.bounds)


def start(model: ParserModel, sentences: list[Sentence]) -> tuple[ParseState, Tensor, Tensor]:
    limits = torch.tensor([each.limit for each in sentences])
    state = model.start(
        padded([each.src for each in sentences]),
        padded([each.ends for each in sentences]),
        torch.tensor([each.words for each in sentences]),
        limits,
    )
    return state, torch.full_like(limits, model.vocab.start), limits


def parse(
    model: ParserModel, sentences: list[Sentence], settings: SearchSettings
) -> list[list[Hypothesis]]:
    state, first, limits = start(model, sentences)
    return beam_search(
        model.step, state, first, limits, settings, model.vocab, allowed=model.allowed
    )


def log_prob(model: ParserModel, symbols: Symbols, source: Sentence, ids: tuple[int, ...]) -> float:
    """Score a tree by teacher forcing."""
    tgt_in = torch.tensor([[Vocab.bos, *ids]])
    aligned = None
    if model.model.config.aligned_input:
        aligned = aligned_positions(tgt_in, torch.tensor([source.ends]), symbols)
    with torch.no_grad():
        values = model.model(torch.tensor([source.src]), tgt_in, aligned).log_softmax(2)[0]
    return float(values.gather(1, torch.tensor([*ids, Vocab.eos])[:, None]).sum())


TAGS = Grammar(("NP", "S"), ("NN", "VB"), Bounds(depth=2, opens=2))
PLACEHOLDER = Grammar(("NP", "S"), ("XX",), Bounds(depth=3, opens=2))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("aligned_input", [False, True])
@pytest.mark.parametrize(
    ("rules", "words", "limit"),
    [(TAGS, 1, 5), (TAGS, 2, 6), (PLACEHOLDER, 2, 8), (PLACEHOLDER, 3, 9)],
)
def test_an_exhaustive_beam_is_brute_force_over_all_trees(
    rules: Grammar, words: int, limit: int, aligned_input: bool
) -> None:
    model, source = build(rules, aligned_input=aligned_input), sentence(words, limit)
    trees = list(rules.trees(words, limit))
    assert 9 < len(trees) < 400
    settings = SearchSettings(beam=len(trees), nbest=len(trees), alpha=0.8)
    (found,) = parse(model, [source], settings)
    symbols = rules.symbols
    log_probs = {ids: log_prob(model, symbols, source, ids) for ids in trees}
    scores = {ids: log_probs[ids] / settings.length_penalty(len(ids) + 1.0) for ids in trees}
    assert [each.ids for each in found] == sorted(trees, key=lambda ids: -scores[ids])
    for each in found:
        assert each.log_prob == pytest.approx(log_probs[each.ids], abs=1e-9)
        assert each.score == pytest.approx(scores[each.ids], abs=1e-9)


def names_of(rules: Grammar, hypothesis: Hypothesis) -> list[str]:
    return [rules.names[token - FIRST_ID] for token in hypothesis.ids]


@given(
    leaves=st.integers(1, 3),
    labels=st.integers(1, 3),
    depth=st.integers(1, 5),
    opens=st.integers(1, 3),
    sizes=st.lists(st.tuples(st.integers(1, 7), st.integers(0, 12)), min_size=1, max_size=4),
    beam=st.sampled_from([1, 2, 5]),
    aligned_input=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=40)
def test_every_output_is_a_tree_over_exactly_the_words(
    leaves: int,
    labels: int,
    depth: int,
    opens: int,
    sizes: list[tuple[int, int]],
    beam: int,
    aligned_input: bool,
    seed: int,
) -> None:
    rules = Grammar(
        ("NP", "VP", "S")[:labels], ("XX", "NN", "VB")[:leaves], Bounds(depth=depth, opens=opens)
    )
    model = build(rules, seed, aligned_input=aligned_input)
    sentences = [
        sentence(words, least_limit(words) + more, seed + place)
        for place, (words, more) in enumerate(sizes)
    ]
    found = parse(model, sentences, SearchSettings(beam=beam, nbest=beam))
    for source, hypotheses in zip(sentences, found, strict=True):
        assert hypotheses
        for hypothesis in hypotheses:
            assert leaves_of_tree(names_of(rules, hypothesis)) == source.words
            assert len(hypothesis.ids) <= source.limit


@pytest.mark.parametrize(("beam", "more"), [(1, 300), (2, 0), (5, 20)])
def test_500_words_have_a_tree(beam: int, more: int) -> None:
    rules = Grammar(("NP", "VP", "S"), ("NN", "VB"), Bounds(depth=20, opens=4))
    source = sentence(500, least_limit(500) + more)
    model = build(rules, aligned_input=True)
    (hypotheses,) = parse(model, [source], SearchSettings(beam=beam))
    assert leaves_of_tree(names_of(rules, hypotheses[0])) == 500
    assert len(hypotheses[0].ids) <= source.limit


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("beam", [1, 3])
def test_sentences_that_join_later_are_parsed_as_if_alone(beam: int) -> None:
    rules = Grammar(("NP", "VP"), ("NN", "VB"), Bounds(depth=4, opens=3))
    model = build(rules, seed=4, aligned_input=True)
    sizes = [(3, 9), (1, 1), (6, 20), (2, 4), (5, 9), (1, 5), (9, 30), (4, 6), (2, 12)]
    sentences = [sentence(*size, seed=number) for number, size in enumerate(sizes)]
    settings = SearchSettings(beam=beam, nbest=beam)
    alone = [parse(model, [each], settings)[0] for each in sentences]
    search = BeamSearch(model.step, settings, model.vocab, model.allowed)
    done: Found = []
    added = {0: [0, 1], 2: [2], 3: [3, 4, 5], 7: [6], 8: [7, 8]}
    for step in range(60):
        if numbers := added.get(step):
            state, first, limits = start(model, [sentences[number] for number in numbers])
            search.add(state, torch.tensor(numbers), first, limits)
        done += search.advance()
    assert not search
    together = dict(done)
    for number, expected in enumerate(alone):
        found = together[number]
        assert [each.ids for each in found] == [each.ids for each in expected]
        log_probs = [each.log_prob for each in expected]
        assert [each.log_prob for each in found] == pytest.approx(log_probs, abs=1e-12)
    assert len({hypotheses[0].ids for hypotheses in alone}) > 6


def test_positions_follow_the_leaves() -> None:
    symbols = TAGS.symbols
    names = [[None, "(S", "NN", "(NP", "VB", ")NP", ")S"], [None, "VB", None, None, None, None]]
    rows = [[TAGS.id(name) if name else Vocab.bos for name in row] for row in names]
    ends = torch.tensor([[0, 3, 4], [0, 2, 0]])
    positions = aligned_positions(padded(rows), ends, symbols)
    assert positions.tolist() == [[0, 0, 3, 3, 4, 4, 4], [0, 2, 2, 2, 2, 2, 2]]
    more = torch.tensor([[Vocab.bos, *[TAGS.id("NN")] * 4]])
    assert aligned_positions(more, ends[:1], symbols).tolist() == [[0, 3, 4, 4, 4]]


@pytest.mark.usefixtures("double")
def test_without_the_constraint_positions_are_those_of_training() -> None:
    """More leaves than words, and brackets that do not match, are read all the same."""
    rules, generator = TAGS, torch.Generator().manual_seed(1)
    model, source = build(rules, aligned_input=True), sentence(3, 9)
    ids = torch.randint(FIRST_ID, len(rules.symbols), (30,), generator=generator)
    tgt_in = torch.cat((torch.tensor([Vocab.bos]), ids))[None]
    aligned = aligned_positions(tgt_in, torch.tensor([source.ends]), rules.symbols)
    with torch.no_grad():
        full = model.model(torch.tensor([source.src]), tgt_in, aligned)[0]
    state, _, _ = start(model, [source])
    for place in range(tgt_in.shape[1]):
        logits, state = model.step(tgt_in[:, place], state)
        torch.testing.assert_close(logits[0], full[place], rtol=0, atol=1e-12)


def test_a_model_and_its_symbols_belong_together() -> None:
    model = build(TAGS)
    with pytest.raises(AssertionError, match="the vocabulary of another model"):
        ParserModel(model.model, PLACEHOLDER.symbols, TAGS.bounds)


def test_a_source_that_is_not_used_keeps_no_past() -> None:
    """Else it would become the longest of all, and all others would pay for its length."""
    model = build(TAGS, aligned_input=True)
    state, first, _ = start(model, [sentence(3, 9), sentence(2, 9)])
    for _ in range(4):
        _, state = model.step(first, state)
    state = state.reset(torch.tensor([0]))
    assert state.inner.lengths is not None
    assert state.inner.lengths.tolist() == [0, 4]

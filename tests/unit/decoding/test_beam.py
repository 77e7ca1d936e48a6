"""Beam search over hand-written tables and small models, against brute force and greedy."""

import itertools
import math
from typing import Literal, TypedDict, Unpack

import pytest
import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.decoding import (
    BeamSearch,
    Found,
    Hypothesis,
    SamplingSettings,
    SearchSettings,
    beam_search,
    drawing,
    length_penalty,
    sample,
    sample_steps,
)
from headwise.decoding.best import log_normalisers, top_sums
from headwise.errors import CheckpointError
from tests.tables import EOS, VOCAB, Prefixes, Probabilities, Table, random_table, starts

A, B = 4, 5

Penalty = Literal["gnmt", "power"]
Stop = Literal["bound", "count"]


class Settings(TypedDict, total=False):
    """The fields of SearchSettings."""

    beam: int
    alpha: float
    penalty: Penalty
    stop: Stop
    nbest: int
    min_length: int


def search(table: Table, limit: int = 10, **settings: Unpack[Settings]) -> list[list[Hypothesis]]:
    limits = torch.full((len(table.tables),), limit)
    return beam_search(
        table.step,
        table.start(),
        starts(limits),
        limits,
        SearchSettings(**settings),
        VOCAB,
    )


GARDEN_PATH: Probabilities = {
    (): {A: 0.6, B: 0.4},
    (A,): {A: 0.5, EOS: 0.3, B: 0.2},
    (B,): {EOS: 1.0},
}


def test_a_wider_beam_finds_what_greedy_misses() -> None:
    (greedy,) = search(Table(6, [GARDEN_PATH]), beam=1, alpha=0.0, stop="count")[0]
    assert greedy.ids == (A, A)
    assert greedy.log_prob == pytest.approx(math.log(0.3))
    (wide,) = search(Table(6, [GARDEN_PATH]), beam=2, alpha=0.0)[0]
    assert wide.ids == (B,)
    assert wide.log_prob == wide.score == pytest.approx(math.log(0.4))


def test_the_penalty_is_the_papers_and_lets_longer_outputs_win() -> None:
    table = {
        (): {A: 0.5, B: 0.5},
        (A,): {EOS: 0.6, A: 0.4},
        (B,): {B: 1.0},
        (B, B): {EOS: 0.55, A: 0.45},
    }
    plain, penalised = (
        search(Table(6, [table]), beam=3, alpha=alpha)[0][0] for alpha in (0.0, 1.0)
    )
    assert plain.ids == (A,)
    assert penalised.ids == (B, B)
    assert penalised.score == pytest.approx(math.log(0.5 * 0.55) / ((5 + 3) / 6))
    power = search(Table(6, [table]), beam=3, alpha=0.6, penalty="power", nbest=2)[0]
    for hypothesis in power:
        expected = hypothesis.log_prob / (len(hypothesis.ids) + 1) ** 0.6
        assert hypothesis.score == pytest.approx(expected)


def test_bound_goes_on_where_count_stops() -> None:
    """The first two to finish are poor; a longer one, with a strong penalty, is better."""
    table = {
        (): {A: 0.55, EOS: 0.45},
        (A,): {A: 0.6, EOS: 0.4},
        (A, A): {A: 1.0},
        (A, A, A): {A: 1.0},
        (A, A, A, A): {A: 1.0},
    }
    counted = search(Table(6, [table]), beam=2, alpha=2.0, stop="count")[0][0]
    bound = search(Table(6, [table]), beam=2, alpha=2.0, stop="bound")[0][0]
    assert counted.ids == ()
    assert bound.ids == (A,) * 5
    assert bound.score > counted.score


def test_bound_ends_as_soon_as_nothing_can_win() -> None:
    table = Table(6, [{(): {EOS: 0.9, A: 0.1}, (A,): {A: 1.0}}])
    assert search(table, limit=500, alpha=0.6)[0][0].ids == ()
    assert table.steps < 5


def brute_force(
    table: Probabilities, limit: int, settings: SearchSettings
) -> list[tuple[float, tuple[int, ...]]]:
    """Score every output there is."""
    words = range(4, 4 + 3)
    scored = []
    for length in range(limit + 1):
        for ids in itertools.product(words, repeat=length):
            log_prob = 0.0
            for place, token in enumerate((*ids, EOS)):
                log_prob += math.log(table[ids[:place]][token])
            penalty = settings.length_penalty(torch.tensor(length + 1.0, dtype=torch.float64))
            scored.append((log_prob / penalty.item(), ids))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("penalty", ["gnmt", "power"])
def test_an_exhaustive_beam_is_brute_force(seed: int, penalty: Penalty) -> None:
    limit = 3
    table = random_table(limit, torch.Generator().manual_seed(seed))
    settings = SearchSettings(beam=40, alpha=0.8, penalty=penalty, nbest=10)
    model = Table(7, [table])
    limits = torch.tensor([limit])
    found = beam_search(model.step, model.start(), starts(limits), limits, settings, VOCAB)[0]
    expected = brute_force(table, limit, settings)[:10]
    assert [hypothesis.ids for hypothesis in found] == [ids for _, ids in expected]
    for hypothesis, (score, _) in zip(found, expected, strict=True):
        assert hypothesis.score == pytest.approx(score, abs=1e-9)


def test_sentences_of_a_batch_are_independent() -> None:
    tables: list[Probabilities] = [
        GARDEN_PATH,
        {(): {B: 0.9, A: 0.1}, (B,): {B: 0.9, EOS: 0.1}, (B, B): {EOS: 0.8, A: 0.2}},
        {(): {EOS: 1.0}},
    ]
    together = search(Table(6, tables), beam=3, nbest=3)
    alone = [search(Table(6, [table]), beam=3, nbest=3)[0] for table in tables]
    assert together == alone
    assert together[2][0].ids == ()


def test_an_output_ends_at_its_own_limit() -> None:
    endless = {(A,) * n: {A: 0.9, EOS: 0.1} for n in range(20)}
    table = Table(6, [endless, endless])
    settings, limits = SearchSettings(beam=1, stop="count"), torch.tensor([2, 5])
    found = beam_search(table.step, table.start(), starts(limits), limits, settings, VOCAB)
    assert [len(hypotheses[0].ids) for hypotheses in found] == [2, 5]
    # The end is paid for, as teacher forcing would count it.
    assert found[0][0].log_prob == pytest.approx(2 * math.log(0.9) + math.log(0.1))


def test_a_minimum_length_and_a_prefix_are_kept() -> None:
    table = {(): {EOS: 0.8, A: 0.2}, (A,): {EOS: 0.8, A: 0.2}, (A, A): {EOS: 0.8, A: 0.2}}
    assert search(Table(6, [table]), min_length=2)[0][0].ids == (A, A)
    assert search(Table(6, [table]), min_length=9, limit=1)[0][0].ids == (A,), "the limit wins"
    model = Table(6, [GARDEN_PATH, GARDEN_PATH])
    found = beam_search(
        model.step,
        model.start(),
        torch.tensor([VOCAB.start] * 2),
        torch.tensor([5, 5]),
        SearchSettings(beam=2, alpha=0.0),
        VOCAB,
        prefixes=[[A, B], []],
    )
    assert found[0][0].ids[:2] == (A, B)
    assert found[0][0].log_prob == pytest.approx(math.log(0.6 * 0.2))
    assert found[1][0].ids == (B,)


def test_pad_and_bos_are_never_output_but_keep_their_probability() -> None:
    table: Probabilities = {(): {VOCAB.pad: 0.5, VOCAB.bos: 0.3, EOS: 0.2}}
    (best,) = search(Table(6, [table]), beam=2, alpha=0.0)[0]
    assert best.ids == ()
    assert best.log_prob == pytest.approx(math.log(0.2))


@pytest.mark.parametrize("stop", ["bound", "count"])
@pytest.mark.parametrize("beam", [1, 4])
def test_nan_logits_end_a_search(beam: int, stop: Stop) -> None:
    def step(ids: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        return torch.full((ids.shape[0], 9), math.nan), state

    settings = SearchSettings(beam=beam, stop=stop)
    state, limits = Prefixes([(), ()]), torch.tensor([5, 7])
    with pytest.raises(CheckpointError, match="logits are NaN: its weights are damaged"):
        beam_search(step, state, starts(limits), limits, settings, VOCAB)
    with pytest.raises(CheckpointError, match="logits are NaN"):
        sample(step, state, starts(limits), limits, [(1,), (2,)], SamplingSettings(), VOCAB)


def test_a_token_with_no_probability_is_never_drawn() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, -math.inf]])
    almost_one = torch.tensor([1 - 2**-40], dtype=torch.float64)
    for top_k, top_p, last in ((0, 1.0, 0), (2, 1.0, 2), (0, 0.5, 1), (0, 1e-320, 1)):
        assert drawing.draw(logits, almost_one, top_k, top_p)[0].tolist() == [last]


@pytest.mark.parametrize("top_k", [1, 2, 7, 30])
@pytest.mark.parametrize("top_p", [0.3, 1.0])
def test_draws_follow_the_truncated_distribution(top_k: int, top_p: float) -> None:
    """Each draw is the first token, by probability, at which the cumulative sum passes u."""
    generator = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(1, 30, generator=generator, dtype=torch.float64)
    probs, ids = logits[0].softmax(0).sort(descending=True)
    probs = probs[:top_k] / probs[:top_k].sum()
    kept = [p for n, p in enumerate(probs.tolist()) if n == 0 or float(probs[:n].sum()) < top_p]
    for u in torch.linspace(0.001, 0.999, 50, dtype=torch.float64):
        passed = [n for n in range(len(kept)) if sum(kept[: n + 1]) > float(u) * sum(kept)]
        assert drawing.draw(logits, u[None], top_k, top_p)[0].tolist() == [int(ids[passed[0]])]


def test_fewer_outputs_than_nbest_are_returned_if_there_are_no_more() -> None:
    assert len(search(Table(6, [{(): {EOS: 1.0}}]), beam=4, nbest=4)[0]) == 1


@pytest.mark.parametrize("size", [7, 64, 1000, 8000, 8191])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_largest_sums_equal_torchs(size: int, count: int) -> None:
    logits = torch.randn(5, 3, size, generator=torch.Generator().manual_seed(size))
    logits[1] = 0.0
    logits[2] = -math.inf
    logits[2, 1, -1] = 1.0
    addends = torch.tensor([[-1.0, -2.0, -math.inf]]).expand(5, -1)
    sums = (logits + addends[:, :, None]).flatten(1)
    values, places = top_sums(logits, addends, count)
    torch.testing.assert_close(values, sums.topk(count).values, rtol=0, atol=0)
    torch.testing.assert_close(sums.gather(1, places), values, rtol=0, atol=0)
    for row in places.tolist():
        assert len(set(row)) == len(row)


def test_normalisers_equal_torchs_for_any_number_of_rows() -> None:
    logits = torch.randn(45, 8191, generator=torch.Generator().manual_seed(1))
    logits[3, 5:] = -math.inf
    torch.testing.assert_close(log_normalisers(logits), logits.logsumexp(1))


@pytest.mark.parametrize("stop", ["bound", "count"])
def test_sentences_added_later_are_searched_as_if_alone(stop: Stop) -> None:
    generator = torch.Generator().manual_seed(7)
    tables = [random_table(6, generator) for _ in range(9)]
    settings = SearchSettings(beam=3, nbest=3, alpha=2.0, stop=stop, min_length=1)
    limits = torch.tensor([6, 2, 6, 5, 6, 1, 6, 6, 4])
    prefixes: list[list[int]] = [[] for _ in range(9)]
    prefixes[2], prefixes[6] = [5, 6], [4]
    alone = []
    for number in range(9):
        model, one = Table(7, tables), slice(number, number + 1)
        start, first = model.start(number), starts(limits[one])
        (found,) = beam_search(
            model.step, start, first, limits[one], settings, VOCAB, prefixes[one]
        )
        alone.append(found)
    model = Table(7, tables)
    search = BeamSearch(model.step, settings, VOCAB)
    done: Found = []
    added = {0: [0, 1], 2: [2], 3: [3, 4, 5], 5: [6], 14: [7, 8]}
    for step in range(40):
        if numbers := added.get(step):
            begun = [prefixes[number] for number in numbers]
            start, first = model.start(*numbers), starts(limits[numbers])
            search.add(
                start, torch.tensor(numbers), first, limits[numbers], begun if any(begun) else None
            )
        done += search.advance()
        if step == 13:
            assert not search, "all have left, and more may be added"
    assert not search
    assert search.advance() == []
    assert sorted(number for number, _ in done) == list(range(9))
    assert dict(done) == dict(enumerate(alone))
    assert len(alone[2]) == 3


def test_a_dropped_sentence_leaves_the_search() -> None:
    endless = {(A,) * n: {A: 0.9, EOS: 0.1} for n in range(100)}
    short = {(): {B: 1.0}, (B,): {B: 1.0}, (B, B): {EOS: 1.0}}
    table = Table(6, [endless, short, endless])
    search = BeamSearch(table.step, SearchSettings(beam=1, stop="count"), VOCAB)
    limits = torch.tensor([99, 99, 99])
    search.add(table.start(), torch.tensor([10, 11, 12]), starts(limits), limits)
    search.drop([])
    search.drop([10, 7])
    assert len(search) == 2
    found = search.advance() + search.advance() + search.advance()
    assert [(number, hypotheses[0].ids) for number, hypotheses in found] == [(11, (B, B))]
    search.drop([12])
    assert len(search) == 0
    search.drop([12])
    assert search.advance() == []


@pytest.mark.parametrize("penalty", ["gnmt", "power"])
def test_the_length_penalty_is_the_same_for_numbers_and_tensors(penalty: Penalty) -> None:
    lengths = torch.tensor([1.0, 7.0, 30.0], dtype=torch.float64)
    settings = SearchSettings(alpha=0.7, penalty=penalty)
    numbers = [length_penalty(length, 0.7, settings.penalty) for length in lengths.tolist()]
    assert settings.length_penalty(lengths).tolist() == pytest.approx(numbers, rel=1e-15)


def test_each_sentence_starts_with_an_id_of_its_own() -> None:
    """As a language model's do: the last id of each prompt."""
    fed: list[list[int]] = []

    def step(ids: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        fed.append(ids.tolist())
        return torch.zeros(ids.shape[0], 9), state

    limits, first = torch.tensor([2, 2]), torch.tensor([7, 8])
    beam_search(step, Prefixes([(), ()]), first, limits, SearchSettings(beam=2), VOCAB)
    keys: list[tuple[int, ...]] = [(1,), (2,)]
    sample(step, Prefixes([(), ()]), first, limits, keys, SamplingSettings(), VOCAB)
    assert fed.count([7, 8]) == 2
    search = BeamSearch(step, SearchSettings(beam=2, min_length=2), VOCAB)
    search.add(Prefixes([()]), torch.tensor([0]), torch.tensor([7]), torch.tensor([2]))
    search.advance()
    search.add(Prefixes([()]), torch.tensor([1]), torch.tensor([8]), torch.tensor([2]))
    search.advance()
    assert fed[-1][2:] == [8, 8]


def test_special_ids_are_the_vocabularys() -> None:
    """A vocabulary may have other ids: here one id is pad, bos and eos, as GPT-2's."""
    other = Vocab(source_size=6, target_size=6, pad=5, bos=5, eos=5)
    table = Table(6, [{(): {0: 0.6, 2: 0.4}, (0,): {5: 0.9, 2: 0.1}, (0, 2): {5: 1.0}}])
    first, limits = torch.tensor([1]), torch.tensor([9])
    settings = SearchSettings(beam=1, stop="count")
    (found,) = beam_search(table.step, table.start(), first, limits, settings, other)
    assert found[0].ids == (0,)
    greedy = SamplingSettings(top_k=1)
    (drawn,) = sample(table.step, table.start(), first, limits, [(1,)], greedy, other)
    assert drawn.ids == (0,)


def test_sampling_yields_tokens_as_they_are_drawn() -> None:
    table = Table(6, [{(): {A: 1.0}, (A,): {B: 1.0}}, {(): {B: 1.0}}])
    limits = torch.tensor([9, 9])
    keys: list[tuple[int, ...]] = [(1,), (2,)]
    steps = sample_steps(
        table.step, table.start(), starts(limits), limits, keys, SamplingSettings(), VOCAB
    )
    assert [(drawn.row, drawn.id) for drawn in next(steps)] == [(0, A), (1, B)]
    assert table.steps == 1
    assert [(drawn.row, drawn.id) for drawn in next(steps)] == [(0, B), (1, EOS)]
    assert [(drawn.row, drawn.id) for drawn in next(steps)] == [(0, EOS)]
    assert next(steps, None) is None

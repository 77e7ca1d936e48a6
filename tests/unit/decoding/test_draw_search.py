"""Outputs that join and leave while others are drawn: each as if it were alone."""

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor

from headwise.decoding import Drawing, DrawnToken, DrawSearch, SamplingSettings, drawing, sample
from tests.tables import EOS, VOCAB, Prefixes, Probabilities, Table, random_table

A, B = 4, 5
SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 0.7, "top_k": 3},
    {"top_p": 0.8},
]


def tables(count: int) -> list[Probabilities]:
    generator = torch.Generator().manual_seed(1)
    some = [random_table(4, generator) for _ in range(3)]
    return [some[number % 3] for number in range(count)]


def outputs(search: DrawSearch[Prefixes], found: dict[int, list[DrawnToken]]) -> None:
    for drawn in search.advance():
        found.setdefault(drawn.number, []).append(drawn)


def alone(table: Table, number: int, settings: Drawing) -> list[tuple[int, float]]:
    search: DrawSearch[Prefixes] = DrawSearch(table.step, VOCAB)
    search.add(table.start(number), torch.tensor([VOCAB.bos]), {0: settings})
    found: dict[int, list[DrawnToken]] = {}
    while search:
        outputs(search, found)
    return [(drawn.id, drawn.log_prob) for drawn in found[0]]


@pytest.mark.parametrize("seed", range(5))
def test_outputs_are_the_same_when_others_join_and_leave(seed: int) -> None:
    generator, table = random.Random(seed), Table(9, tables(20))
    settings = {
        number: Drawing(key=(seed, number), limit=generator.randint(1, 7), **SETTINGS[number % 4])
        for number in range(20)
    }
    search: DrawSearch[Prefixes] = DrawSearch(table.step, VOCAB)
    found: dict[int, list[DrawnToken]] = {}
    dropped: set[int] = set()
    waiting = list(settings)
    while waiting or search:
        count = generator.randint(0, 4)
        joining, waiting = waiting[:count], waiting[count:]
        if joining:
            first = torch.full((len(joining),), VOCAB.bos)
            search.add(table.start(*joining), first, {n: settings[n] for n in joining})
        outputs(search, found)
        running = [n for n, each in found.items() if not each[-1].is_last and n not in dropped]
        if running and generator.random() < 0.2:
            number = running.pop()
            search.drop([number])
            dropped.add(number)
        assert len(search) == len(running)
    for number, drawn in found.items():
        expected = alone(table, number, settings[number])
        tokens = [(each.id, each.log_prob) for each in drawn]
        assert tokens == expected[: len(tokens)]
        assert len(tokens) == len(expected) or number in dropped
        assert drawn[-1].is_last == (number not in dropped)
    assert len(found) == 20


def test_draws_are_those_of_sampling() -> None:
    table = Table(9, tables(6))
    settings = SamplingSettings(temperature=0.8, top_p=0.9)
    limits = torch.full((6,), 50)
    keys: list[tuple[int, ...]] = [(3, n) for n in range(6)]
    first = torch.full((6,), VOCAB.bos)
    expected = sample(table.step, table.start(), first, limits, keys, settings, VOCAB)
    for number, hypothesis in enumerate(expected):
        drawn = alone(
            table, number, Drawing(key=keys[number], limit=50, temperature=0.8, top_p=0.9)
        )
        assert [token for token, _ in drawn] == [*hypothesis.ids, EOS]
        assert sum(each for _, each in drawn) == pytest.approx(hypothesis.log_prob)


def test_a_step_returns_the_most_probable_tokens_of_those_that_ask() -> None:
    table = Table(9, [{(): {A: 0.7, B: 0.2, EOS: 0.1}}] * 2)
    search: DrawSearch[Prefixes] = DrawSearch(table.step, VOCAB)
    first = torch.full((2,), VOCAB.bos)
    asking = Drawing(key=(1,), limit=1, temperature=0, num_best=2)
    search.add(table.start(0, 1), first, {7: asking, 8: Drawing(key=(1,), limit=1)})
    one, other = search.advance()
    assert [token for token, _ in one.best] == [A, B]
    assert [p for _, p in one.best] == pytest.approx([math.log(0.7), math.log(0.2)])
    assert (one.number, one.id, one.is_last, other.best) == (7, A, True, ())
    assert len(search) == 0


def test_nan_logits_end_their_own_output_and_leave_no_row() -> None:
    table = Table(9, [{(): {A: 1.0}, (A,): {A: 1.0}, (A, A): {B: 1.0}}] * 9)

    def step(ids: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        logits, state = table.step(ids, state)
        bad = [row[0] == -1 and len(row) > 2 for row in state.rows]
        return logits.masked_fill(torch.tensor(bad)[:, None], math.nan), state

    search: DrawSearch[Prefixes] = DrawSearch(step, VOCAB)
    first = torch.full((9,), VOCAB.bos)
    search.add(table.start(), first, {n: Drawing(key=(n,), limit=9) for n in range(9)})
    search.advance()
    drawn = search.advance()
    assert [math.isnan(each.log_prob) for each in drawn] == [True] + [False] * 8
    assert [each.is_last for each in drawn] == [True] + [False] * 8
    # One of nine idle rows could stay, but not with NaN in its cache.
    assert search._state is not None
    assert len(search._state.rows) == len(search) == 8
    assert [each.id for each in search.advance()] == [B] * 8


def test_rows_of_dropped_outputs_are_taken_over() -> None:
    table = Table(9, [{(A,) * n: {A: 1.0} for n in range(9)}] * 9)
    search: DrawSearch[Prefixes] = DrawSearch(table.step, VOCAB)

    def add(*numbers: int) -> None:
        drawings = {n: Drawing(key=(n,), limit=9) for n in numbers}
        search.add(table.start(*numbers), torch.full((len(numbers),), VOCAB.bos), drawings)

    add(0, 1, 2, 3)
    search.advance()
    search.drop([2])
    assert len(search) == 3
    add(4)
    assert search._state is not None
    assert len(search._state.rows) == 4
    assert {each.number for each in search.advance()} == {0, 1, 3, 4}
    search.drop([0, 1, 3, 4])
    assert search._state is None
    assert search.advance() == []


@pytest.mark.parametrize("top_p", [1.0, 0.6])
def test_draws_from_many_tokens_need_no_complete_sort(top_p: float) -> None:
    """Of 5,000 tokens: by the definition, with and without draws beyond the most probable."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(60, 5000, generator=generator, dtype=torch.float64)
    logits *= torch.linspace(0.5, 6, 60)[:, None]
    uniforms = torch.rand(60, generator=generator, dtype=torch.float64)
    found, is_close = drawing.draw(logits, uniforms, 0, top_p)
    probs, ids = logits.softmax(1).sort(dim=1, descending=True)
    kept = probs.masked_fill(probs.cumsum(1) - probs >= top_p, 0)
    targets = uniforms[:, None] * kept.sum(1, keepdim=True)
    places = torch.searchsorted(kept.cumsum(1), targets)
    assert found.tolist() == ids.gather(1, places)[:, 0].tolist()
    assert int((places >= 256).sum()) > 2
    assert int(is_close.sum()) < 30


def test_draws_near_a_boundary_are_counted() -> None:
    logits = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64).log().expand(5, -1)
    uniforms = torch.tensor([0.6 - 1e-6, 0.6 + 1e-6, 0.5, 0.9 - 1e-4, 0.9 + 9e-6])
    ids, is_close = drawing.draw(logits, uniforms.double(), 0, 1.0)
    assert ids.tolist() == [0, 1, 0, 1, 2]
    assert is_close.tolist() == [True, True, False, False, True]
    # Two tokens of the same probability, and a token at the edge of top_p.
    tied = torch.tensor([[0.4, 0.4 - 1e-7, 0.2]], dtype=torch.float64).log()
    assert drawing.draw(tied, torch.tensor([0.2]), 0, 1.0)[1].tolist() == [True]
    assert drawing.draw(logits[:1], torch.tensor([0.2]), 0, 0.9)[1].tolist() == [True]
    assert drawing.draw(logits[:1], torch.tensor([0.2]), 0, 0.8)[1].tolist() == [False]

"""Beam search under a constraint, against brute force and greedy."""

import itertools
import math
import random
from typing import Literal

import pytest
import torch
from torch import Tensor

from headwise.decoding import BeamSearch, Found, Hypothesis, SearchSettings, beam_search
from headwise.errors import CheckpointError
from tests.tables import EOS, VOCAB, Prefixes, Probabilities, Table, random_table, starts

WORDS = (4, 5, 6)
SIZE = 7
Stop = Literal["bound", "count"]
Ids = tuple[int, ...]


class Rule:
    """Allow some tokens, drawn at random, after each prefix of each sentence."""

    def __init__(self, limits: list[int], *, dead_ends: bool = False) -> None:
        self.limits, self.dead_ends = limits, dead_ends
        self.shapes: list[tuple[int, ...]] = []

    def allows(self, number: int, prefix: Ids) -> set[int]:
        generator = random.Random(f"{number} {prefix}")
        fewest = 0 if self.dead_ends else 1
        allowed = set(generator.sample((EOS, *WORDS), generator.randint(fewest, 3)))
        # A sentence that ends at its limit is always possible.
        return allowed | {EOS} if len(prefix) >= self.limits[number] else allowed

    def __call__(self, state: Prefixes) -> Tensor:
        allowed = torch.zeros(len(state.rows), SIZE, dtype=torch.bool)
        for row, (number, _, *prefix) in enumerate(state.rows):
            allowed[row, list(self.allows(-1 - number, tuple(prefix)))] = True
        self.shapes.append(tuple(allowed.shape))
        return allowed


def log_prob(table: Probabilities, ids: Ids) -> float:
    return sum(math.log(table[ids[:place]][token]) for place, token in enumerate((*ids, EOS)))


def outputs(rule: Rule, number: int, limit: int) -> list[Ids]:
    """List every output that a rule allows."""
    return [
        ids
        for length in range(limit + 1)
        for ids in itertools.product(WORDS, repeat=length)
        if all(token in rule.allows(number, ids[:place]) for place, token in enumerate((*ids, EOS)))
    ]


@pytest.mark.parametrize("dead_ends", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_an_exhaustive_beam_is_brute_force(seed: int, dead_ends: bool) -> None:
    limit, numbers = 3, range(3)
    generator = torch.Generator().manual_seed(seed)
    tables = [random_table(limit, generator) for _ in numbers]
    rule, limits = Rule([limit] * 3, dead_ends=dead_ends), torch.tensor([limit] * 3)
    settings = SearchSettings(beam=40, alpha=0.8, nbest=10)
    model = Table(SIZE, tables)
    found = beam_search(
        model.step, model.start(), starts(limits), limits, settings, VOCAB, allowed=rule
    )
    for number, table in enumerate(tables):
        # Probabilities are the model's, as if everything were allowed.
        scored = [
            (log_prob(table, ids) / settings.length_penalty(len(ids) + 1.0), ids)
            for ids in outputs(rule, number, limit)
        ]
        expected = sorted(scored, reverse=True)[:10]
        assert [hypothesis.ids for hypothesis in found[number]] == [ids for _, ids in expected]
        for hypothesis, (score, ids) in zip(found[number], expected, strict=True):
            assert hypothesis.score == pytest.approx(score, abs=1e-9)
            assert hypothesis.log_prob == pytest.approx(log_prob(table, ids), abs=1e-9)


def greedy(table: Probabilities, rule: Rule, number: int, limit: int) -> Ids:
    ids: Ids = ()
    while len(ids) < limit:
        allowed = rule.allows(number, ids)
        best = max(allowed, key=lambda token: table[ids][token])
        if best == EOS:
            break
        ids = (*ids, best)
    return ids


def test_a_beam_of_one_is_greedy() -> None:
    generator = torch.Generator().manual_seed(1)
    tables = [random_table(5, generator) for _ in range(8)]
    numbers, limit = range(len(tables)), 5
    rule, limits = Rule([limit] * 8), torch.tensor([limit] * 8)
    model = Table(SIZE, tables)
    found = beam_search(
        model.step,
        model.start(),
        starts(limits),
        limits,
        SearchSettings(beam=1, stop="count"),
        VOCAB,
        allowed=rule,
    )
    expected = [greedy(tables[number], rule, number, limit) for number in numbers]
    assert [hypotheses[0].ids for hypotheses in found] == expected
    assert len(set(map(len, expected))) > 2


@pytest.mark.parametrize("stop", ["bound", "count"])
@pytest.mark.parametrize("beam", [1, 3])
def test_sentences_that_join_later_are_searched_as_if_alone(stop: Stop, beam: int) -> None:
    generator = torch.Generator().manual_seed(7)
    tables = [random_table(6, generator) for _ in range(9)]
    limits = [6, 2, 6, 5, 6, 1, 6, 6, 4]
    settings = SearchSettings(beam=beam, nbest=beam, alpha=2.0, stop=stop)
    rule = Rule(limits)
    prefixes: list[list[int]] = [[] for _ in limits]
    for number in (2, 6):  # Begin as the longest output that is allowed.
        longest = max(outputs(rule, number, 3), key=lambda ids: (len(ids), ids))
        prefixes[number] = list(longest[:2])
    assert any(prefixes)
    model = Table(SIZE, tables)

    def alone(number: int) -> list[Hypothesis]:
        limit = torch.tensor([limits[number]])
        (found,) = beam_search(
            model.step,
            model.start(number),
            starts(limit),
            limit,
            settings,
            VOCAB,
            prefixes[number : number + 1],
            rule,
        )
        return found

    expected = {number: alone(number) for number in range(9)}
    for number, hypotheses in expected.items():
        allowed = outputs(rule, number, limits[number])
        assert hypotheses
        assert all(hypothesis.ids in allowed for hypothesis in hypotheses)
    rule.shapes.clear()
    search = BeamSearch(model.step, settings, VOCAB, rule)
    done: Found = []
    added = {0: [0, 1], 2: [2], 3: [3, 4, 5], 5: [6], 14: [7, 8]}
    for step in range(40):
        if numbers := added.get(step):
            limit = torch.tensor([limits[number] for number in numbers])
            begun = [prefixes[number] for number in numbers]
            first = starts(limit)
            search.add(model.start(*numbers), torch.tensor(numbers), first, limit, begun)
        done += search.advance()
    assert dict(done) == expected
    assert rule.shapes[0] == (2, SIZE), "at the first step a sentence has one row"
    assert rule.shapes[1][0] in (beam, 2 * beam)


def test_a_sentence_that_may_not_end_has_no_output() -> None:
    def allowed(state: Prefixes) -> Tensor:
        """Allow the second sentence nothing after its first token, and no end before."""
        mask = torch.ones(len(state.rows), SIZE, dtype=torch.bool)
        for row, (number, *tokens) in enumerate(state.rows):
            if number == -2:
                mask[row] = False
                mask[row, 4] = len(tokens) == 1
        return mask

    table = random_table(3, torch.Generator().manual_seed(1))
    model, limits = Table(SIZE, [table, table]), torch.tensor([3, 3])
    settings = SearchSettings(beam=2)
    first, second = beam_search(
        model.step, model.start(), starts(limits), limits, settings, VOCAB, allowed=allowed
    )
    assert len(first) == 1
    assert second == []


def test_nan_logits_are_told_from_a_dead_end() -> None:
    def step(ids: Tensor, state: Prefixes) -> tuple[Tensor, Prefixes]:
        return torch.full((ids.shape[0], SIZE), math.nan), state

    def allowed(state: Prefixes) -> Tensor:
        mask = torch.zeros(len(state.rows), SIZE, dtype=torch.bool)
        mask[:, 4] = True
        return mask

    limits = torch.tensor([5])
    with pytest.raises(CheckpointError, match="logits are NaN"):
        beam_search(
            step, Prefixes([()]), starts(limits), limits, SearchSettings(), VOCAB, allowed=allowed
        )

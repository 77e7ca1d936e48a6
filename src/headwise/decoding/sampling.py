"""Draw outputs at random from the model's distribution."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.decoding.beam import Hypothesis, nan_logits
from headwise.decoding.drawing import draw
from headwise.decoding.settings import S, SamplingSettings, Step, forbidden_ids
from headwise.seeding import keyed_generator


class Drawn(NamedTuple):
    """One token of one output."""

    row: int
    """Which output, by its row in the state that sampling started from."""
    id: int
    log_prob: float
    """The model's own, before temperature, top_k and top_p."""


def sample(
    step: Step[S],
    state: S,
    first_ids: Tensor,  # [R]
    limits: Tensor,  # [R]
    keys: list[tuple[int, ...]],
    settings: SamplingSettings,
    vocab: Vocab,
    *,
    min_length: int = 0,
) -> list[Hypothesis]:
    """Draw one output for each row of the state; the arguments are those of `sample_steps`."""
    tokens: list[list[int]] = [[] for _ in keys]
    log_probs = [0.0] * len(keys)
    for drawn in sample_steps(
        step, state, first_ids, limits, keys, settings, vocab, min_length=min_length
    ):
        for row, token, log_prob in drawn:
            log_probs[row] += log_prob
            if token != vocab.eos:
                tokens[row].append(token)
    return [
        Hypothesis(tuple(ids), total, total) for ids, total in zip(tokens, log_probs, strict=True)
    ]


def sample_steps(
    step: Step[S],
    state: S,
    first_ids: Tensor,  # [R]
    limits: Tensor,  # [R]
    keys: list[tuple[int, ...]],
    settings: SamplingSettings,
    vocab: Vocab,
    *,
    min_length: int = 0,
) -> Iterator[list[Drawn]]:
    """Draw the next token of every unfinished row of the state, until all have ended.

    The first step takes `first_ids`. What is drawn for a row depends on its key and on the model,
    not on the other rows. Each output ends in eos, at the latest after as many tokens as its limit.
    """
    generators = [keyed_generator("sample", key) for key in keys]
    unfinished = torch.arange(limits.shape[0], device=limits.device)
    forbidden = forbidden_ids(vocab)
    ids, length = first_ids, 0
    while unfinished.shape[0]:
        logits, state = step(ids, state)
        log_probs = logits.log_softmax(1)
        allowed = logits.clone()
        allowed[:, forbidden] = -math.inf
        if length < min_length:
            allowed[:, vocab.eos] = -math.inf
        at_limit = limits[unfinished] <= length
        uniforms = torch.tensor([generators[row].random() for row in unfinished.tolist()])
        ids, _ = draw(
            allowed / settings.temperature,
            uniforms.to(limits.device),
            settings.top_k,
            settings.top_p,
        )
        ids = torch.where(at_limit, vocab.eos, ids)
        chosen = log_probs.gather(1, ids[:, None]).flatten().tolist()
        if any(map(math.isnan, chosen)):
            raise nan_logits()
        yield [Drawn(*each) for each in zip(unfinished.tolist(), ids.tolist(), chosen, strict=True)]
        length += 1
        remaining = torch.nonzero(ids != vocab.eos).flatten()
        if remaining.shape[0] < ids.shape[0]:
            unfinished, ids = unfinished[remaining], ids[remaining]
            if remaining.shape[0]:
                state = state.select(remaining)

"""Draw outputs at random from what the model thinks probable."""

import math

import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.decoding.beam import Hypothesis, nan_logits
from headwise.decoding.settings import S, Step
from headwise.seeding import keyed_generator


def sample(
    step: Step[S],
    state: S,
    limits: Tensor,  # [R]
    keys: list[tuple[int, ...]],
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_length: int = 0,
) -> list[Hypothesis]:
    """Draw one output for each row of the state, token by token.

    What is drawn for a row depends on its key and on the model, not on its neighbours. `top_k`
    keeps the most probable tokens (0: all), `top_p` the fewest that together have that much
    probability. Log-probabilities are the model's own, before any of that.
    """
    generators = [keyed_generator("sample", key) for key in keys]
    going_on = torch.arange(limits.shape[0], device=limits.device)
    tokens: list[list[int]] = [[] for _ in keys]
    log_probs = [0.0] * len(keys)
    ids = torch.full_like(limits, Vocab.bos)
    length = 0
    while going_on.shape[0]:
        logits, state = step(ids, state)
        normalised = logits.log_softmax(1)
        allowed = logits.clone()
        allowed[:, [Vocab.pad, Vocab.bos]] = -math.inf
        if length < min_length:
            allowed[:, Vocab.eos] = -math.inf
        at_limit = limits[going_on] <= length
        uniforms = torch.tensor([generators[row].random() for row in going_on.tolist()])
        ids = _draw(allowed / temperature, uniforms.to(limits.device), top_k, top_p)
        ids = torch.where(at_limit, Vocab.eos, ids)
        drawn = normalised.gather(1, ids[:, None]).flatten()
        for row, token, log_prob in zip(
            going_on.tolist(), ids.tolist(), drawn.tolist(), strict=True
        ):
            log_probs[row] += log_prob
            if token != Vocab.eos:
                tokens[row].append(token)
        length += 1
        rest = torch.nonzero(ids != Vocab.eos).flatten()
        if rest.shape[0] < ids.shape[0]:
            going_on, ids = going_on[rest], ids[rest]
            if rest.shape[0]:
                state = state.select(rest)
    if any(map(math.isnan, log_probs)):
        raise nan_logits()
    return [
        Hypothesis(tuple(row), total, total) for row, total in zip(tokens, log_probs, strict=True)
    ]


def _draw(logits: Tensor, uniforms: Tensor, top_k: int, top_p: float) -> Tensor:
    """Draw a token for each row [R, V] where its uniform number falls, the most probable first."""
    values, ids = logits.sort(dim=1, descending=True, stable=True)
    probs = values.softmax(1)
    if 0 < top_k < probs.shape[1]:
        probs[:, top_k:] = 0.0
    # A token stays if those before it do not have enough probability yet, and the first always.
    before = probs.cumsum(1) - probs
    is_enough = (before >= top_p * probs.sum(1, keepdim=True)) & (before > 0)
    probs = probs.masked_fill(is_enough, 0.0)
    cumulative = probs.cumsum(1)
    wanted = uniforms[:, None].to(probs) * cumulative[:, -1:]
    # Rounded, a number may reach the sum of all: then it is the last that may be drawn.
    last = probs.count_nonzero(1)[:, None] - 1
    places = torch.minimum(torch.searchsorted(cumulative, wanted, right=True), last)
    return ids.gather(1, places).flatten()

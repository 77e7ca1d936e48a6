"""Draw a token for each row of logits by inverting the cumulative distribution."""

import torch
from torch import Tensor

_CLOSE = 1e-5
"""How near a draw may be to a boundary for rounding to decide it."""

_LIKELY = 256
"""How many of the most probable tokens are sorted first: most draws are among them."""
_MORE = 8
"""How many times as many are sorted for the rows whose draws are not."""


def draw(logits: Tensor, uniforms: Tensor, top_k: int, top_p: float) -> tuple[Tensor, Tensor]:
    """Return a token for each row [R, V], and whether rounding could have decided it.

    Tokens are sorted by their probability, the most probable first. What is drawn for a row depends
    on its logits and its uniform number alone. Logits that are computed in another batch differ by
    rounding, which only matters within 1e-5 of a boundary between two tokens.
    """
    if 0 < top_k < logits.shape[1]:
        return _draw_sorted(*logits.topk(top_k, dim=1), uniforms, top_p)
    return _draw_from_all(logits, uniforms, top_p, _LIKELY)


def _draw_sorted(
    values: Tensor, ids: Tensor, uniforms: Tensor, top_p: float
) -> tuple[Tensor, Tensor]:
    """Draw from tokens [R, C] that are sorted by their logits."""
    places, is_close = _invert(values.softmax(1), uniforms, top_p)
    return _at(ids, places), is_close | _has_tie(values, places)


def _draw_from_all(
    logits: Tensor, uniforms: Tensor, top_p: float, likely: int
) -> tuple[Tensor, Tensor]:
    """Draw from all tokens; sort only so many of the most probable, and more where that is needed.

    To sort 8,000 tokens takes longer than a step of a small model.
    """
    if logits.shape[1] <= 2 * likely:
        return _draw_sorted(*logits.sort(dim=1, descending=True, stable=True), uniforms, top_p)
    values, ids = logits.topk(likely, dim=1)
    probs = (values - logits.logsumexp(1, keepdim=True)).exp()
    rest = (1 - probs.sum(1, keepdim=True)).clamp(min=0)
    places, is_close = _invert(torch.cat((probs, rest), 1), uniforms, top_p)
    is_beyond = places == likely
    if top_p < 1:
        is_beyond |= 1 - rest[:, 0] < top_p
    places = places.clamp(max=likely - 1)
    drawn, is_close = _at(ids, places), is_close | _has_tie(values, places)
    beyond = torch.nonzero(is_beyond).flatten()
    if beyond.shape[0]:
        drawn[beyond], is_close[beyond] = _draw_from_all(
            logits[beyond], uniforms[beyond], top_p, _MORE * likely
        )
    return drawn, is_close


def _invert(probs: Tensor, uniforms: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Return the place in each row of sorted probabilities, and whether a boundary is near."""
    # A token is kept if those before it have less than top_p together; the first is always kept.
    before = probs.cumsum(1) - probs
    enough = top_p * probs.sum(1, keepdim=True)
    is_edge = (before - enough).abs() < _CLOSE if top_p < 1 else torch.zeros_like(before).bool()
    probs = probs.masked_fill((before >= enough) & (before > 0), 0.0)
    cumulative = probs.cumsum(1)
    targets = uniforms[:, None].to(probs) * cumulative[:, -1:]
    # Rounding may make a target equal to the sum of all: then it is the last token with any
    # probability.
    last = probs.count_nonzero(1)[:, None] - 1
    places = torch.minimum(torch.searchsorted(cumulative, targets, right=True), last)
    ends = cumulative.gather(1, places)
    starts = ends - probs.gather(1, places)
    is_close = torch.minimum(ends - targets, targets - starts) < _CLOSE
    return places.flatten(), is_close.flatten() | is_edge.any(1)


def _has_tie(values: Tensor, places: Tensor) -> Tensor:
    """Return whether the token before or after each place has nearly the same logit."""
    last = values.shape[1] - 1
    chosen = values.gather(1, places[:, None])
    nearby = torch.stack(((places - 1).clamp(min=0), (places + 1).clamp(max=last)), 1)
    is_other = nearby != places[:, None]
    return (((values.gather(1, nearby) - chosen).abs() < _CLOSE) & is_other).any(1)


def _at(ids: Tensor, places: Tensor) -> Tensor:
    return ids.gather(1, places[:, None]).flatten()

"""The best continuations of hypotheses, and how probable they are, in few passes over logits."""

import torch
from torch import Tensor

_BLOCK = 64
_CACHED = 1 << 17
"""Logits that stay in a core's cache while they are worked on."""


def log_normalisers(logits: Tensor) -> Tensor:
    """Return log(sum(exp(logits))) of each row [R, V], what turns them into log-probabilities.

    On CPU some rows at a time, so that what lies between is never written to memory: about
    1.5 times as fast for a few hundred rows of 8,000.
    """
    if logits.device.type != "cpu":
        return logits.logsumexp(1)
    parts = logits.split(max(1, _CACHED // logits.shape[1]))
    return torch.cat([part.logsumexp(1) for part in parts])


def top_sums(logits: Tensor, addends: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of each group's logits + addends [B, C], and where they stand.

    Logits [B, N, V] have an addend [B, N] for each row. A place counts through the rows of its
    group. Each of the largest is in one of the `count` blocks with the largest maxima: so the
    maxima of all blocks are found in one fast pass, and only those blocks are looked through.
    """
    num_blocks = logits.shape[2] // _BLOCK
    if num_blocks < 4 * count:
        return (logits + addends[:, :, None]).flatten(1).topk(count, dim=1)
    end = num_blocks * _BLOCK
    maxima = logits[:, :, :end].unflatten(2, (num_blocks, _BLOCK)).amax(3)  # [B, N, blocks]
    maxima = (maxima + addends[:, :, None]).flatten(1)
    blocks = maxima.topk(count, dim=1, sorted=False).indices  # [B, C]
    rows = blocks // num_blocks
    starts = rows * logits.shape[2] + (blocks - rows * num_blocks) * _BLOCK
    places = (starts[:, :, None] + torch.arange(_BLOCK, device=logits.device)).flatten(1)
    added = addends.gather(1, rows).repeat_interleave(_BLOCK, 1)
    if end < logits.shape[2]:
        rest = _places_from(end, logits).expand(logits.shape[0], -1)
        places = torch.cat((places, rest), 1)
        added = torch.cat((added, addends.repeat_interleave(logits.shape[2] - end, 1)), 1)
    sums = logits.flatten(1).gather(1, places).add_(added)
    values, chosen = sums.topk(count, dim=1)
    return values, places.gather(1, chosen)


def _places_from(end: int, logits: Tensor) -> Tensor:
    """Return the places of every row's entries that belong to no block."""
    _, num_rows, size = logits.shape
    rows = torch.arange(num_rows, device=logits.device)[:, None] * size
    return (rows + torch.arange(end, size, device=logits.device)).flatten()

"""The best continuations of hypotheses, found in few passes over the logits."""

import torch
from torch import Tensor

_BLOCK = 64
_CACHED = 1 << 17
"""How many logits fit into a core's cache."""
_MANY = 1 << 15
"""Below this, one call takes less time than several."""


def log_normalisers(logits: Tensor) -> Tensor:
    """Return log(sum(exp(logits))) of each row [R, V], to be subtracted for log-probabilities.

    On CPU it takes some rows at a time, so that intermediate results stay in the cache: about 1.5
    times as fast for a few hundred rows of 8,000.
    """
    if logits.device.type != "cpu":
        return logits.logsumexp(1)
    parts = logits.split(max(1, _CACHED // logits.shape[1]))
    return torch.cat([part.logsumexp(1) for part in parts])


def largest(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest of each row [R, V], and its index.

    torch looks for an index one by one, for a maximum many at once: so the index is looked for only
    in the block that has the maximum.
    """
    rows, size = scores.shape
    end = size // _BLOCK * _BLOCK
    if scores.device.type != "cpu" or rows * size < _MANY or end < size:
        return scores.max(1)
    blocks = scores.view(rows, -1, _BLOCK)
    values, numbers = blocks.amax(2).max(1)
    within = blocks[torch.arange(rows), numbers].argmax(1)
    return values, numbers * _BLOCK + within


def top_sums(logits: Tensor, addends: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest of each sentence's logits + addends [B, C], and their places.

    Logits [B, N, V] have an addend [B, N] for each row. A place is an index into the N*V logits of
    its sentence. Each of the largest is in one of the `count` blocks with the largest maxima: so
    one fast pass finds the maxima of all blocks, and only those blocks are searched.
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
        outside = _places_from(end, logits).expand(logits.shape[0], -1)
        places = torch.cat((places, outside), 1)
        added = torch.cat((added, addends.repeat_interleave(logits.shape[2] - end, 1)), 1)
    sums = logits.flatten(1).gather(1, places).add_(added)
    values, chosen = sums.topk(count, dim=1)
    return values, places.gather(1, chosen)


def _places_from(end: int, logits: Tensor) -> Tensor:
    """Return the places of every row's last entries, which are in no block."""
    _, num_rows, size = logits.shape
    rows = torch.arange(num_rows, device=logits.device)[:, None] * size
    return (rows + torch.arange(end, size, device=logits.device)).flatten()

"""The largest entries of long rows, faster than sorting them."""

import torch
from torch import Tensor

_BLOCK = 64


def top_entries(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` largest entries of each row [R, V] and where they are, largest first.

    Each is in one of the `count` blocks with the largest maxima: so the maxima of all blocks are
    found in one fast pass, and only those blocks are looked through.
    """
    num_rows, size = rows.shape
    num_blocks = size // _BLOCK
    if num_blocks < 4 * count:
        return rows.topk(count, dim=1)
    whole = rows[:, : num_blocks * _BLOCK].unflatten(1, (num_blocks, _BLOCK))
    blocks = whole.amax(2).topk(count, dim=1, sorted=False).indices  # [R, C]
    places = blocks[:, :, None] * _BLOCK + torch.arange(_BLOCK, device=rows.device)
    places = places.flatten(1)  # [R, C*block]
    if rest := size - num_blocks * _BLOCK:
        last = torch.arange(size - rest, size, device=rows.device).expand(num_rows, -1)
        places = torch.cat((places, last), 1)
    values, chosen = rows.gather(1, places).topk(count, dim=1)
    return values, places.gather(1, chosen)

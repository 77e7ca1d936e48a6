"""Sources of similar length, to be decoded together."""

from collections.abc import Iterator, Sequence

_BATCH_SOURCES = 128
_BATCH_TOKENS = 16_384
"""Source positions of a batch, including padding and counted for each hypothesis."""


def length_batches(
    lengths: Sequence[int], rows_each: int, batch_size: int | None = None
) -> Iterator[list[int]]:
    """Divide sources, given by their numbers of tokens, into batches of indices.

    Each source takes `rows_each` rows; a batch has at most `batch_size` sources.
    """
    # The longest first: if memory is too small, it fails at once, not at the end.
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    start = 0
    while start < len(order):
        width = (lengths[order[start]] + 1) * rows_each
        count = max(1, min(batch_size or _BATCH_SOURCES, _BATCH_TOKENS // width))
        yield order[start : start + count]
        start += count

"""Examples that are read, encoded and classified together: as many as memory allows."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from headwise.tasks.encoders import Encoded

Item = TypeVar("Item")

_MOST_EXAMPLES = 256
_MOST_NUMBERS = 1 << 24
"""Ids or floats: 64 MiB of floats, however large the images or sounds are."""


def windows(examples: Iterable[tuple[Item, Encoded]]) -> Iterator[list[tuple[Item, Encoded]]]:
    """Divide encoded examples, each with what goes along with it, into windows."""
    window: list[tuple[Item, Encoded]] = []
    numbers = 0
    for example in examples:
        _, encoded = example
        if window and numbers + encoded.values.size > _MOST_NUMBERS:
            yield window
            window, numbers = [], 0
        window.append(example)
        numbers += encoded.values.size
        if len(window) == _MOST_EXAMPLES:
            yield window
            window, numbers = [], 0
    if window:
        yield window

from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest

from headwise.data.batches import Batches, Indices
from headwise.training.stream import BatchStream


class ThreeTwo:
    """Epochs of three and of two batches in turn; a batch names its epoch and its place."""

    def epoch(self, number: int) -> Iterator[Indices]:
        for place in range(3 - number % 2):
            yield np.array([number, place])


def stream(epoch: int = 0, batch: int = 0) -> BatchStream:
    return BatchStream(cast("Batches", ThreeTwo()), epoch=epoch, batch=batch, unit="pairs")


def pairs(stream: BatchStream, count: int) -> list[list[int]]:
    return [place.examples.tolist() for place in stream.take(count)]


def test_batches_go_on_from_one_epoch_to_the_next() -> None:
    batches = stream()
    assert pairs(batches, 7) == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [2, 0], [2, 1]]
    assert (batches.epoch, batches.batch) == (2, 2)
    places = stream().take(4)
    assert [(place.epoch, place.batch) for place in places] == [(0, 0), (0, 1), (0, 2), (1, 0)]


@pytest.mark.parametrize("taken", range(8))
def test_a_stream_entered_where_another_stopped_goes_on_as_it_would(taken: int) -> None:
    whole = stream()
    whole.take(taken)
    entered = stream(whole.epoch, whole.batch)
    assert pairs(entered, 6) == pairs(whole, 6)


def test_an_epoch_that_is_used_up_is_over() -> None:
    batches = stream()
    batches.take(3)
    assert (batches.epoch, batches.batch) == (1, 0)


def test_a_place_is_named_as_people_count() -> None:
    assert str(stream().take(4)[-1]) == "epoch 2, batch 1 (pairs 1, 0 of the data)"

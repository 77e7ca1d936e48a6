"""Masks: keyed, as many as they should be, of the kinds that BERT has, by whole words if asked."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.config import Vocab
from headwise.tasks.masked_language_model.masking import mask_block, num_predicted

VOCAB = replace(Vocab.shared(100), mask=5)

blocks = st.lists(st.tuples(st.integers(6, 99), st.booleans()), min_size=1, max_size=60)


@given(block=blocks, seed=st.integers(0, 9), epoch=st.integers(0, 9))
def test_what_is_read_and_what_is_predicted_give_the_block(
    block: list[tuple[int, bool]], seed: int, epoch: int
) -> None:
    ids, begins = np.array([n for n, _ in block]), np.array([b for _, b in block])
    read, targets = mask_block(ids, begins, VOCAB, (seed, epoch))
    chosen = targets != VOCAB.pad
    assert (targets[chosen] == ids[chosen]).all()
    assert (read[~chosen] == ids[~chosen]).all()
    assert chosen.sum() == num_predicted(len(ids)) >= 1
    again = mask_block(ids, begins, VOCAB, (seed, epoch))
    assert (again[0] == read).all()
    assert (again[1] == targets).all()
    assert read.min() > VOCAB.eos


def test_masks_change_with_the_epoch_the_seed_and_the_block() -> None:
    ids, begins = np.arange(6, 96), np.ones(90, dtype=np.bool_)
    other = ids.copy()
    other[0] = 99
    found = [
        tuple(np.flatnonzero(mask_block(block, begins, VOCAB, key)[1]))
        for block, key in ((ids, (1, 0)), (ids, (1, 1)), (ids, (2, 0)), (other, (1, 0)))
    ]
    assert len(set(found)) == 4


def test_the_kinds_of_masks_have_berts_shares() -> None:
    generator = np.random.default_rng(1)
    masked = kept = total = 0
    for number in range(400):
        ids = generator.integers(6, 100, 100)
        read, targets = mask_block(ids, np.ones(100, dtype=np.bool_), VOCAB, (1, number))
        chosen = targets != VOCAB.pad
        total += chosen.sum()
        masked += (read[chosen] == VOCAB.mask).sum()
        kept += (read[chosen] == ids[chosen]).sum()
    assert total == 400 * 15
    assert masked / total == pytest.approx(0.8, abs=0.02)
    assert kept / total == pytest.approx(0.1, abs=0.015)


def test_whole_words_are_masked_together() -> None:
    ids, begins = np.arange(6, 96), np.tile([True, False, False], 30)
    for epoch in range(20):
        _, targets = mask_block(ids, begins, VOCAB, (1, epoch))
        counts = (targets.reshape(30, 3) != VOCAB.pad).sum(1)
        # 14 tokens: four whole words, and the first two of a fifth.
        assert sorted(counts[counts > 0]) == [2, 3, 3, 3, 3]

"""Which tokens are masked, and with what: decided anew in every epoch, by a key.

What is masked in a block follows from (seed, epoch) and the block's own tokens, so that it depends
on no other block, and no state has to be saved.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

from headwise.config import Vocab
from headwise.seeding import keyed_generator

SHARE = 0.15
"""Of the tokens: those that are to be predicted."""
_MASKED, _REPLACED = 0.8, 0.1
"""Of these, how many become the mask, and how many a token drawn at random; the others stay."""

Ids = NDArray[np.int64]


def num_predicted(tokens: int) -> int:
    """Return how many tokens of a block are to be predicted; at least one."""
    return max(1, round(SHARE * tokens))


def mask_block(
    ids: Ids, begins: NDArray[np.bool_], vocab: Vocab, key: tuple[int, int]
) -> tuple[Ids, Ids]:
    """Return what the model reads instead of a block's ids, and what it is to predict.

    `begins` says at which tokens a word begins: the tokens of a word are chosen together, but for
    the last word, so that they are as many as `num_predicted` says. Where nothing is to be
    predicted, the target is pad.
    """
    assert vocab.mask >= 0, "a vocabulary without a mask"
    digest = hashlib.blake2b(ids.tobytes(), digest_size=8).hexdigest()
    generator = keyed_generator("masks", *key, digest)
    words = begins.cumsum() - begins[0]  # The number of each token's word, from 0.
    ranks = generator.permutation(int(words[-1]) + 1)
    order = np.argsort(ranks[words], kind="stable")
    chosen = np.zeros(len(ids), dtype=np.bool_)
    chosen[order[: num_predicted(len(ids))]] = True
    fates = generator.random(len(ids))
    drawn = generator.integers(Vocab.eos + 1, vocab.source_size, len(ids))
    read = np.where(chosen & (fates < _MASKED), vocab.mask, ids)
    is_replaced = chosen & (fates >= _MASKED) & (fates < _MASKED + _REPLACED)
    return np.where(is_replaced, drawn, read), np.where(chosen, ids, vocab.pad)

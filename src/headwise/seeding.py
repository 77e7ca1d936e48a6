"""Random numbers that follow from a key alone: no generator has a state to save.

A run that was stopped and resumed, and two processes that train together, draw what one
uninterrupted process would. Keys begin with what they are for ("batches", "dropout", ...), so that
two uses never share numbers.
"""

import hashlib

import numpy as np


def hashed(text: str) -> int:
    """Return 64 bits that follow from a text."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def keyed_seed(*key: object) -> int:
    """Return a 64-bit seed for a generator of torch."""
    return hashed(" ".join(map(str, key)))


def keyed_generator(*key: object) -> np.random.Generator:
    """Return a generator of NumPy whose numbers follow from a key."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))

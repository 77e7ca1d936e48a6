from pathlib import Path

import numpy as np
import pytest
import torch

from headwise.config import Vocab
from headwise.data import batches as batches_module
from headwise.data.batches import Batches
from headwise.data.shards import ShardWriter, TokenShards
from headwise.model import check_batch

VOCAB = Vocab.shared(50)
PAIRS = 400


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> TokenShards:
    """Store pairs whose first token tells their number, of lengths that go together."""
    directory = tmp_path_factory.mktemp("shards") / "d"
    generator = np.random.default_rng(0)
    with ShardWriter(directory, {"source": 50, "target": 50}, sequences_per_shard=150) as writer:
        for _ in range(PAIRS):
            length = int(generator.integers(1, 20))
            source = generator.integers(4, 50, length)
            target = generator.integers(4, 50, max(1, length + int(generator.integers(-2, 3))))
            writer.add(
                {
                    "source": (source, np.array([len(source)])),
                    "target": (target, np.array([len(target)])),
                }
            )
    return TokenShards(directory)


@pytest.mark.parametrize("pool", [37, 100_000])
def test_an_epoch_takes_every_pair_once_within_the_budget(
    shards: TokenShards, monkeypatch: pytest.MonkeyPatch, pool: int
) -> None:
    monkeypatch.setattr(batches_module, "_POOL_PAIRS", pool)
    batches = Batches(shards, batch_tokens=100, seed=1)
    seen = []
    for pairs in batches.epoch(1):
        batch = batches.collate(pairs)
        check_batch(batch.src, batch.tgt_in, batch.tgt_out, VOCAB)
        assert batch.src.numel() <= 100
        assert batch.tgt_out.numel() <= 100
        seen += pairs.tolist()
    assert sorted(seen) == list(range(PAIRS))
    assert batches.too_long.tolist() == []


def test_the_order_depends_on_seed_and_epoch_alone(shards: TokenShards) -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        batches = Batches(shards, batch_tokens=100, seed=seed)
        return [pairs.tolist() for pairs in batches.epoch(epoch)]

    first = order(1, 1)
    assert order(1, 1) == first
    assert order(1, 2) != first
    assert order(2, 1) != first
    # Not only the order of batches changes, but also which pairs meet in them.
    assert {tuple(sorted(b)) for b in order(1, 2)} != {tuple(sorted(b)) for b in first}


def test_batches_come_in_no_order_of_length(shards: TokenShards) -> None:
    batches = Batches(shards, batch_tokens=100, seed=1)
    widths = [batches.collate(pairs).src.shape[1] for pairs in batches.epoch(1)]
    assert widths not in (sorted(widths), sorted(widths, reverse=True))


def test_pairs_of_about_the_same_length_meet(shards: TokenShards) -> None:
    batches = Batches(shards, batch_tokens=200, seed=1)
    padding = [batches.collate(pairs).padding() for pairs in batches.epoch(1)]
    assert np.mean(padding) < 0.15


@pytest.mark.parametrize(
    ("budget", "most_padding", "most_again"), [(4096, 0.05, 0.6), (25_000, 0.14, 0.7)]
)
def test_full_batches_are_little_padded_on_either_side(
    tmp_path: Path, budget: int, most_padding: float, most_again: float
) -> None:
    generator = np.random.default_rng(0)
    sources = 3 + generator.gamma(5, 2.5, 20_000).astype(np.int64)
    targets = 1 + (sources * generator.lognormal(0, 0.15, len(sources))).astype(np.int64)
    with ShardWriter(tmp_path / "d", {"source": 50, "target": 50}) as writer:
        writer.add(
            {
                "source": (np.full(sources.sum(), 5), sources),
                "target": (np.full(targets.sum(), 5), targets),
            }
        )
    batches = Batches(TokenShards(tmp_path / "d"), batch_tokens=budget, seed=1)
    epochs = [list(batches.epoch(number)) for number in range(1, 6)]
    for epoch in epochs:
        rows = np.array([len(pairs) for pairs in epoch])
        widths = np.array([(sources[pairs].max(), targets[pairs].max()) for pairs in epoch]) + 1
        tokens = sources.sum() + targets.sum() + 2 * len(sources)
        # A grid of target by source lengths has 7.0 % and 18.7 %.
        assert 1 - tokens / (rows * widths.sum(axis=1)).sum() < most_padding
        assert (rows * widths.max(axis=1)).mean() > 0.95 * budget
    # Of the pairs that meet in a batch, many do not meet again in the next epoch's.
    places = np.empty((len(epochs), len(sources)), dtype=np.int64)
    for place, epoch in zip(places, epochs, strict=True):
        for number, pairs in enumerate(epoch):
            place[pairs] = number
    again = [
        (np.unique(places[n : n + 2], axis=1, return_counts=True)[1] ** 2).sum()
        / (np.unique(places[n], return_counts=True)[1] ** 2).sum()
        for n in range(len(epochs) - 1)
    ]
    assert np.mean(again) < most_again


def test_ids_stand_where_the_model_wants_them(shards: TokenShards) -> None:
    batches = Batches(shards, batch_tokens=1000, seed=1)
    pairs = np.array([200, 3, 8, 399, 3])  # of several shards, in no order
    batch = batches.collate(pairs)
    for row, pair in enumerate(pairs.tolist()):
        source = shards.sequence("source", pair).tolist()
        target = shards.sequence("target", pair).tolist()
        for ids, expected in (
            (batch.src, [*source, Vocab.eos]),
            (batch.tgt_in, [Vocab.bos, *target]),
            (batch.tgt_out, [*target, Vocab.eos]),
        ):
            padding = [Vocab.pad] * (ids.shape[1] - len(expected))
            assert ids[row].tolist() == expected + padding
    assert batch.src.dtype == torch.int64


def test_a_pair_longer_than_a_batch_is_listed_not_lost(shards: TokenShards) -> None:
    batches = Batches(shards, batch_tokens=10, seed=1)
    taken = {pair for pairs in batches.epoch(1) for pair in pairs.tolist()}
    too_long = set(batches.too_long.tolist())
    assert too_long
    assert taken | too_long == set(range(PAIRS))
    assert not taken & too_long
    for pair in too_long:
        assert max(len(shards.sequence(s, pair)) for s in ("source", "target")) + 1 > 10

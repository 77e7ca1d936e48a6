from pathlib import Path

import numpy as np
import pytest
import torch

from headwise.config import Vocab
from headwise.data import batches as batches_module
from headwise.data.batches import Batches, Field, padded
from headwise.data.pairs import PAIR_FIELDS, collate_pairs
from headwise.data.shards import Floats, ShardWriter, TokenShards
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
    monkeypatch.setattr(batches_module, "_POOL_EXAMPLES", pool)
    batches = Batches(shards, PAIR_FIELDS, batch_tokens=100, seed=1)
    seen = []
    for pairs in batches.epoch(1):
        batch = collate_pairs(batches.read(pairs), VOCAB)
        check_batch(*batch, VOCAB)
        assert batch.src.numel() <= 100
        assert batch.tgt_out.numel() <= 100
        seen += pairs.tolist()
    assert sorted(seen) == list(range(PAIRS))
    assert batches.too_long.tolist() == []


def test_the_order_depends_on_seed_and_epoch_alone(shards: TokenShards) -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        batches = Batches(shards, PAIR_FIELDS, batch_tokens=100, seed=seed)
        return [pairs.tolist() for pairs in batches.epoch(epoch)]

    first = order(1, 1)
    assert order(1, 1) == first
    assert order(1, 2) != first
    assert order(2, 1) != first
    # Not only the order of batches changes, but also which pairs meet in them.
    assert {tuple(sorted(b)) for b in order(1, 2)} != {tuple(sorted(b)) for b in first}


def test_batches_come_in_no_order_of_length(shards: TokenShards) -> None:
    batches = Batches(shards, PAIR_FIELDS, batch_tokens=100, seed=1)
    widths = [collate_pairs(batches.read(pairs), VOCAB).src.shape[1] for pairs in batches.epoch(1)]
    assert widths not in (sorted(widths), sorted(widths, reverse=True))


def test_pairs_of_about_the_same_length_meet(shards: TokenShards) -> None:
    batches = Batches(shards, PAIR_FIELDS, batch_tokens=200, seed=1)
    positions = [batches.positions(pairs) for pairs in batches.epoch(1)]
    filled = [sum(batches.tokens(pairs).values()) for pairs in batches.epoch(1)]
    assert 1 - sum(filled) / sum(positions) < 0.15


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
    batches = Batches(TokenShards(tmp_path / "d"), PAIR_FIELDS, batch_tokens=budget, seed=1)
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
    batches = Batches(shards, PAIR_FIELDS, batch_tokens=1000, seed=1)
    pairs = np.array([200, 3, 8, 399, 3])  # of several shards, in no order
    batch = collate_pairs(batches.read(pairs), VOCAB)
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
    batches = Batches(shards, PAIR_FIELDS, batch_tokens=10, seed=1)
    taken = {pair for pairs in batches.epoch(1) for pair in pairs.tolist()}
    too_long = set(batches.too_long.tolist())
    assert too_long
    assert taken | too_long == set(range(PAIRS))
    assert not taken & too_long
    for pair in too_long:
        assert max(len(shards.sequence(s, pair)) for s in ("source", "target")) + 1 > 10


def test_a_single_field_is_batched_within_the_budget(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 30, 300)
    with ShardWriter(tmp_path / "d", {"text": 50}) as writer:
        writer.add({"text": (np.full(lengths.sum(), 5), lengths)})
    batches = Batches(TokenShards(tmp_path / "d"), [Field("text")], batch_tokens=120, seed=1)
    epoch = list(batches.epoch(3))
    assert sorted(np.concatenate(epoch).tolist()) == list(range(300))
    assert all(batches.positions(examples) <= 120 for examples in epoch)
    assert batches.target_tokens == lengths.sum()
    assert batches.tokens(epoch[0]) == {"target": lengths[epoch[0]].sum()}


def test_a_field_outside_the_budget_may_be_longer_than_it(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "d", {"image": Floats(3), "label": 50}) as writer:
        for number in range(10):
            frames = np.full((500, 3), number, dtype=np.float32)
            writer.add(
                {"image": (frames, np.array([500])), "label": (np.array([5]), np.array([1]))}
            )
    fields = [Field("image", in_budget=False), Field("label")]
    batches = Batches(TokenShards(tmp_path / "d"), fields, batch_tokens=4, seed=1)
    assert [len(examples) for examples in batches.epoch(0)] == [4, 4, 2]
    examples = next(batches.epoch(0))
    frames, lengths = batches.read(examples)["image"]
    assert frames.shape == (2000, 3)
    assert lengths.tolist() == [500] * 4
    assert frames[::500, 0].tolist() == examples.tolist()
    assert batches.targets(examples) == 4


def test_ids_get_special_ids_before_and_after_them() -> None:
    packed = np.array([5, 6, 7]), np.array([1, 2])
    assert padded(packed, pad=0).tolist() == [[5, 0], [6, 7]]
    assert padded(packed, pad=9, before=2).tolist() == [[2, 5, 9], [2, 6, 7]]
    assert padded(packed, pad=0, before=2, after=3).tolist() == [[2, 5, 3, 0], [2, 6, 7, 3]]

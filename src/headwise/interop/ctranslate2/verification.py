"""How near an export computes to the model that it was made from."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from headwise.config import Vocab
from headwise.data import TokenShards
from headwise.decoding import SearchSettings
from headwise.interop.ctranslate2.engine import CTranslate2Engine
from headwise.model import Transformer
from headwise.runs.directory import RunDirectory
from headwise.tasks.torch_engine import TorchEngine

Pair = tuple[list[int], list[int]]
"""Source and target ids, without the end of the sentence."""

PAIRS = 100
"""How many pairs to compare on."""

_EXTRA_TOKENS = 50
_ROWS = 34
_LONGEST_GENERATED = 30


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The same inputs through both."""

    pairs: int
    """How many were compared."""
    inputs: str
    """Where they are from."""
    largest_difference: float
    """Between the two log-probabilities of any one token of the given targets."""
    equal_outputs: float
    """The share of sources whose greedy outputs are the same to the last token."""

    def to_dict(self) -> dict[str, object]:
        """Return the figures as JSON can hold them."""
        return asdict(self)


def verify(
    model: Transformer, engine: CTranslate2Engine, pairs: Sequence[Pair], inputs: str
) -> Verification:
    """Put pairs through a model and its export, and compare."""
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    difference = max(
        abs(ours - theirs)
        for both in zip(
            token_log_probs(model, sources, targets), engine.score(sources, targets), strict=True
        )
        for ours, theirs in zip(*both, strict=True)
    )
    found = engine.translate(sources, beam=1, max_extra_tokens=_EXTRA_TOKENS)
    equal = sum(
        ours == list(hypotheses[0].ids)
        for ours, hypotheses in zip(greedy(model, sources, _EXTRA_TOKENS), found, strict=True)
    )
    return Verification(
        pairs=len(pairs),
        inputs=inputs,
        largest_difference=difference,
        equal_outputs=equal / len(pairs),
    )


def choose_pairs(run: RunDirectory, model: Transformer) -> tuple[list[Pair], str]:
    """Take pairs from the run's own validation text; draw some at random where it has none.

    Text that is elsewhere, and that only origin.json names, is not read: a stranger may have
    written that.
    """
    longest = model.config.fitting(1000)
    sizes = (model.vocab.source_size, model.vocab.target_size)
    own = run.folder / "data" / "valid"
    if own.exists():
        shards = TokenShards(own)
        # Every nth, so that all of a text that is in some order is seen.
        indices = range(0, len(shards), max(1, len(shards) // PAIRS))[:PAIRS]
        found = [
            [
                shards.checked_sequence(stream, i, size)
                for stream, size in zip(("source", "target"), sizes, strict=True)
            ]
            for i in indices
        ]
        pairs = [
            (source.tolist(), target.tolist())
            for source, target in found
            if max(len(source), len(target)) <= longest
        ]
        if pairs:
            return pairs, "validation text"
    generator = random.Random("verification")  # noqa: S311 - a sample, not a secret
    lengths = range(1, min(_LONGEST_GENERATED, longest) + 1)
    drawn = [
        [
            generator.choices(range(Vocab.eos + 1, size), k=generator.choice(lengths))
            for size in sizes
        ]
        for _ in range(PAIRS)
    ]
    return [(source, target) for source, target in drawn], "random ids"


@torch.no_grad()
def token_log_probs(
    model: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[list[float]]:
    """Return the log-probabilities of each target's tokens, then of its end, by teacher forcing."""
    results: list[list[float]] = [[] for _ in sources]
    for rows in _batches(sources):
        tgt_in = _padded([[Vocab.bos, *targets[row]] for row in rows])
        tgt_out = _padded([[*targets[row], Vocab.eos] for row in rows])
        log_probs = model(_source_rows(sources, rows), tgt_in).float().log_softmax(2)  # [B, T, V]
        chosen = log_probs.gather(2, tgt_out[:, :, None]).squeeze(2).tolist()  # [B, T]
        for row, values in zip(rows, chosen, strict=True):
            results[row] = values[: len(targets[row]) + 1]
    return results


def greedy(
    model: Transformer, sources: Sequence[Sequence[int]], max_extra_tokens: int
) -> list[list[int]]:
    """Return the most probable token after the other, up to the end or to each source's limit."""
    settings = SearchSettings(beam=1, stop="count")
    found = TorchEngine(model).translate([list(ids) for ids in sources], settings, max_extra_tokens)
    return [list(hypotheses[0].ids) for hypotheses in found]


def _batches(sources: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Put the numbers of sources of about the same length together."""
    order = sorted(range(len(sources)), key=lambda row: len(sources[row]))
    for start in range(0, len(order), _ROWS):
        yield order[start : start + _ROWS]


def _source_rows(sources: Sequence[Sequence[int]], rows: Sequence[int]) -> Tensor:
    return _padded([[*sources[row], Vocab.eos] for row in rows])


def _padded(sequences: list[list[int]]) -> Tensor:
    rows = [torch.tensor(ids) for ids in sequences]
    return pad_sequence(rows, batch_first=True, padding_value=Vocab.pad)  # [B, T]

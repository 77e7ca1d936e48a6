"""Compare an export with the model that it was made from."""

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from headwise.config import Vocab
from headwise.decoding import SearchSettings
from headwise.interop.ctranslate2.engine import CTranslate2Engine
from headwise.model import Transformer
from headwise.runs.data import own_shards
from headwise.runs.directory import RunDirectory
from headwise.tasks.translation.torch_engine import TorchEngine

Pair = tuple[list[int], list[int]]
"""Source and target ids, without eos."""

PAIRS = 100
"""How many pairs to compare on."""

_EXTRA_TOKENS = 50
_LONGEST_GENERATED = 30


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The results of a comparison on the same inputs."""

    pairs: int
    """How many were compared."""
    inputs: str
    """Where they are from."""
    largest_difference: float
    """Of the two log-probabilities of any token of the given targets."""
    equal_outputs: float
    """The share of sources whose greedy outputs are the same to the last token."""

    def to_dict(self) -> dict[str, object]:
        """Return the results as JSON values."""
        return asdict(self)


def verify(
    model: Transformer, engine: CTranslate2Engine, pairs: Sequence[Pair], inputs: str
) -> Verification:
    """Compare a model and its export on pairs."""
    ours = TorchEngine(model)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    difference = max(
        abs(our_token - their_token)
        for our_pair, their_pair in zip(
            ours.token_log_probs(list(pairs)), engine.score(sources, targets), strict=True
        )
        for our_token, their_token in zip(our_pair, their_pair, strict=True)
    )
    greedy = SearchSettings(beam=1, stop="count")
    outputs = zip(
        ours.translate(sources, greedy, _EXTRA_TOKENS),
        engine.translate(sources, beam=1, max_extra_tokens=_EXTRA_TOKENS),
        strict=True,
    )
    equal = sum(our_best[0].ids == their_best[0].ids for our_best, their_best in outputs)
    return Verification(
        pairs=len(pairs),
        inputs=inputs,
        largest_difference=difference,
        equal_outputs=equal / len(pairs),
    )


def choose_pairs(run: RunDirectory, model: Transformer) -> tuple[list[Pair], str]:
    """Take pairs from the run's own validation text, or draw some at random if it has none."""
    longest = model.config.fitting(1000)
    sizes = (model.vocab.source_size, model.vocab.target_size)
    shards = own_shards(run, "valid")
    if shards is not None:
        # Every nth, because the text may be sorted.
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

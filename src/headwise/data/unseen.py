"""Text cut in three by its source sentences, so that what a model is tested on it never saw."""

import hashlib
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from headwise.errors import DataError

Pair = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Pairs to train on, to validate on and to test on; no source is in two, however spelled."""

    train: list[Pair]
    valid: list[Pair]
    test: list[tuple[str, tuple[str, ...]]]
    """Sources, each once, with all the translations that there are of it."""
    left_out: int
    """Pairs whose source is another spelling of one to test on."""


def sentence_key(text: str) -> str:
    """Return what is left of a sentence without case, accents, punctuation and spaces."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    # Folded again: taking characters apart can bring capitals to light.
    return "".join(character for character in plain.casefold() if character.isalnum())


def split_by_source(pairs: Iterable[Pair], *, test: int, valid: int) -> Split:
    """Hold out so many source sentences to test on, and so many to validate on.

    Which ones is decided by their letters alone: the same on every machine, in whatever order the
    pairs come. Spellings of one sentence that differ in case, accents, punctuation or spaces stay
    together.
    """
    groups: dict[str, dict[str, list[str]]] = {}
    for source, target in pairs:
        spellings = groups.setdefault(sentence_key(source), {})
        spellings.setdefault(source, []).append(target)
    if len(groups) <= test + valid:
        raise DataError(
            f"{len(groups):,} different source sentences are too few to hold out {test + valid:,}"
        )
    order = sorted(groups, key=_draw)
    tested, validated = set(order[:test]), set(order[test : test + valid])
    held_out: list[tuple[str, tuple[str, ...]]] = []
    left_out = 0
    for key in order[:test]:
        (source, targets), *others = sorted(groups[key].items())
        held_out.append((source, tuple(dict.fromkeys(targets))))
        left_out += sum(len(targets) for _, targets in others)
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for key, spellings in groups.items():
        if key not in tested:
            part = parts[key in validated]
            part += [
                (source, target) for source, targets in spellings.items() for target in targets
            ]
    return Split(train=parts[0], valid=parts[1], test=held_out, left_out=left_out)


def _draw(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=8).digest()

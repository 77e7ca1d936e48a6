"""Subwords: learned with SentencePiece, and carried as one.

Paper: §5.1, byte-pair encoding with a vocabulary that source and target share.
"""

import io
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, Self, TypeVar

import sentencepiece

from headwise.config import Vocab
from headwise.errors import DataError

_LONGEST_LINE = 4000
"""Characters of a line that SentencePiece is given at a time; it would skip a longer one."""


_MOST_SAMPLED = 1 << 30
"""Characters of the text that subwords are learned from, which are all kept in memory."""


_TOO_MANY = re.compile(r"value <= (\d+)")
"""What SentencePiece says where the text has fewer subwords than asked for."""


class SubwordSettings(Protocol):
    """What a config says about subwords; DataConfig describes these settings."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def subwords(self) -> str: ...
    @property
    def byte_fallback(self) -> bool: ...
    @property
    def normalization(self) -> str: ...


class Subwords:
    """A learned subword model: text to ids and back, for any text without NUL and U+2581.

    With byte fallback and identity normalisation, decoding what was encoded gives the text back to
    the last space.
    """

    def __init__(self, model: bytes) -> None:
        """Load a model from its serialised form, refusing one with other special ids than ours."""
        self.model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, ValueError) as error:
            raise DataError(f"this is not a SentencePiece model: {error}") from error
        special = [
            getattr(self._processor, f"{name}_id")() for name in ("pad", "unk", "bos", "eos")
        ]
        if special != [Vocab.pad, Vocab.unk, Vocab.bos, Vocab.eos]:
            raise DataError(
                f"this SentencePiece model has pad, unk, bos, eos = {special}, not 0 to 3"
            )

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        data: SubwordSettings,
        *,
        symbols: Sequence[str] = (),
        controls: Sequence[str] = (),
        may_be_fewer: bool = False,
    ) -> Self:
        """Learn a model of `data.vocab_size` entries; say what size the text allows if not that.

        Each of `symbols` gets an entry of its own, whether or not it occurs in the lines. So does
        each of `controls`, as which no text is encoded. With `may_be_fewer`, a text that has not so
        many subwords gives as many as it has.

        Paper: §5.1.
        """
        if may_be_fewer:
            lines = list(lines)  # They may be needed twice.
        try:
            return cls(_trained(lines, data, symbols, controls, data.vocab_size))
        except (RuntimeError, ValueError) as error:
            largest = _TOO_MANY.search(str(error))
            if may_be_fewer and largest:
                return cls(_trained(lines, data, symbols, controls, int(largest[1])))
            raise DataError(_size_advice(str(error), data.vocab_size)) from error

    def __reduce__(self) -> tuple[type["Subwords"], tuple[bytes]]:
        """Travel to another process as the serialised model."""
        return Subwords, (self.model,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Subwords) and self.model == other.model

    def __hash__(self) -> int:
        return hash(self.model)

    def __len__(self) -> int:
        """Return the number of entries, special ids included."""
        return int(self._processor.vocab_size())

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without bos or eos."""
        ids: list[int] = self._processor.encode(text)
        return ids

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of several texts: as `encode`, one after the other, but faster."""
        # One thread: whoever wants more starts processes, and each would start as many threads.
        ids: list[list[int]] = self._processor.encode(texts, num_threads=1)
        return ids

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids; special ids leave no trace in it."""
        text: str = self._processor.decode(ids)
        return text

    def id_of(self, token: str) -> int:
        """Return the id of a subword; that of unk if there is no such subword."""
        number: int = self._processor.piece_to_id(token)
        return number

    def tokens(self, ids: list[int]) -> list[str]:
        """Return the subword that each id stands for."""
        tokens: list[str] = self._processor.id_to_piece(ids)
        return tokens


def _trained(
    lines: Iterable[str],
    data: SubwordSettings,
    symbols: Sequence[str],
    controls: Sequence[str],
    size: int,
) -> bytes:
    """Have SentencePiece learn a model of a size, and return its serialised form."""
    serialised = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=_short_lines(lines),
        model_writer=serialised,
        vocab_size=size,
        model_type=data.subwords,
        byte_fallback=data.byte_fallback,
        # Rare characters are spelled in bytes if they may be; otherwise none is left out.
        character_coverage=0.9995 if data.byte_fallback else 1.0,
        normalization_rule_name=data.normalization,
        remove_extra_whitespaces=False,
        pad_id=Vocab.pad,
        unk_id=Vocab.unk,
        bos_id=Vocab.bos,
        eos_id=Vocab.eos,
        user_defined_symbols=list(symbols),
        control_symbols=list(controls),
        minloglevel=2,
    )
    return serialised.getvalue()


Texts = TypeVar("Texts", bound=tuple[str, ...])


def sample_pairs(pairs: Iterable[tuple[str, str]], count: int, seed: int) -> list[tuple[str, str]]:
    """Draw up to `count` pairs at random from any number of them, keeping no more than that."""
    return sample_texts(pairs, count, seed, unit="pairs")


def sample_texts(texts: Iterable[Texts], count: int, seed: int, *, unit: str) -> list[Texts]:
    """Draw up to `count` texts, or tuples of texts, keeping no more than that in memory.

    The draw depends on the seed and on the texts alone. A sample of more than _MOST_SAMPLED
    characters is a DataError.
    """
    generator = random.Random(f"subwords {seed}")  # noqa: S311 - a sample, not a secret
    kept: list[Texts] = []
    characters = 0
    for index, text in enumerate(texts):
        if index < count:
            kept.append(text)
        elif (slot := generator.randrange(index + 1)) < count:
            characters -= sum(map(len, kept[slot]))
            kept[slot] = text
        else:
            continue
        characters += sum(map(len, text))
        if characters > _MOST_SAMPLED:
            raise DataError(
                f"the {unit} to learn subwords from have more than {_MOST_SAMPLED:,} characters "
                f"(after {index + 1:,} {unit} of text): lower data.sample_{unit}, now {count:,}"
            )
    return kept


def _short_lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        for start in range(0, len(line), _LONGEST_LINE):
            yield line[start : start + _LONGEST_LINE]


def _size_advice(message: str, size: int) -> str:
    """Turn SentencePiece's complaint about the vocabulary's size into advice."""
    if largest := _TOO_MANY.search(message):
        return (
            f"the text supports at most {int(largest[1]):,} subwords, not {size:,}: "
            f"set data.vocab_size={largest[1]} or less, or give more text"
        )
    if smallest := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return (
            f"the characters of the text alone need {int(smallest[1]):,} entries, "
            f"and data.vocab_size is {size:,}: set it to more"
        )
    return f"SentencePiece could not learn subwords from this text: {message}"

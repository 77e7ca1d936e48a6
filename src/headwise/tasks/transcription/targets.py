"""Transcriptions as token ids: characters or subwords."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from headwise.config import TargetsConfig, Vocab
from headwise.data import Subwords
from headwise.data.subwords import sample_texts
from headwise.data.tokenizer import load_stream, load_table
from headwise.errors import DataError, RequestError
from headwise.files import Folder

STREAM = "target"
"""What the stream of transcriptions is called, in the tokenizer and in the shards."""

_FIRST_ID = max(Vocab.pad, Vocab.unk, Vocab.bos, Vocab.eos) + 1
_MOST_CHARACTERS = 20_000
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


class Targets(Protocol):
    """A vocabulary of transcriptions; `Subwords` is one."""

    def __len__(self) -> int:
        """Return the number of entries, special ids included."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without bos or eos."""
        ...

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""
        ...

    def tokens(self, ids: list[int]) -> list[str]:
        """Return what each id stands for, for people."""
        ...


class Characters:
    """One entry for each character of the training texts."""

    def __init__(self, characters: Sequence[str]) -> None:
        self.characters = tuple(characters)
        self._ids = {each: number for number, each in enumerate(self.characters, start=_FIRST_ID)}

    @classmethod
    def of(cls, found: Collection[str]) -> "Characters":
        """List the characters that were found."""
        if len(found) > _MOST_CHARACTERS:
            raise DataError(
                f"the texts have {len(found):,} different characters, more than "
                f"{_MOST_CHARACTERS:,}: set data.targets=subwords"
            )
        return cls(sorted(found))

    @classmethod
    def load(cls, folder: Path | Folder) -> "Characters":
        """Load the characters of prepared data or of a run."""
        table = load_table(folder, STREAM)
        found = table.get("characters") if isinstance(table, Mapping) else None
        if not isinstance(found, list) or not _are_characters(found):
            path = Folder.of(folder).path / "tokenizer" / f"{STREAM}.json"
            raise DataError(f"{path}: not a table of different characters")
        return cls(found)

    def __len__(self) -> int:
        """Return the number of entries, special ids included."""
        return _FIRST_ID + len(self.characters)

    def table(self) -> dict[str, object]:
        """Return what is stored of them."""
        return {"characters": self.characters}

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; that of unk for a character that training has not seen."""
        return [self._ids.get(each, Vocab.unk) for each in text]

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids; other special ids than unk leave no trace in it."""
        kept = (each for each in ids if each >= _FIRST_ID or each == Vocab.unk)
        return "".join(_UNKNOWN if each == Vocab.unk else self._of(each) for each in kept)

    def tokens(self, ids: list[int]) -> list[str]:
        """Return the character that each id stands for."""
        return [self.decode([each]) for each in ids]

    def _of(self, number: int) -> str:
        return self.characters[number - _FIRST_ID]


def load_targets(folder: Path | Folder, data: TargetsConfig) -> Targets:
    """Load the vocabulary of prepared data or of a run."""
    if data.targets == "characters":
        return Characters.load(folder)
    return load_stream(folder, STREAM)


def learn_subwords(texts: Iterable[str], data: TargetsConfig, seed: int) -> Subwords:
    """Learn subwords from a sample of the texts."""
    sample = sample_texts(((text,) for text in texts), data.sample_examples, seed, unit="examples")
    return Subwords.learn((text for (text,) in sample), data, may_be_fewer=True)


def traceable_target(text: str, targets: Targets, most_tokens: int) -> list[int]:
    """Return the ids of a text whose attention is asked for, or raise RequestError."""
    # Python passes bytes of an argument that are not UTF-8 as lone surrogates.
    if "\0" in text or any(map(_is_half, text)):
        raise RequestError("the target has a NUL character, or bytes that are not UTF-8, in it")
    ids = targets.encode(text) if len(text) <= 16 * most_tokens else None
    if not ids or len(ids) > most_tokens:
        raise RequestError(f"give a target of at least 1 and at most {most_tokens:,} tokens")
    return ids


def _are_characters(found: list[object]) -> bool:
    is_list = 0 < len(found) <= _MOST_CHARACTERS and all(map(_is_character, found))
    return is_list and len(set(found)) == len(found)


def _is_character(each: object) -> bool:
    return isinstance(each, str) and len(each) == 1 and each != "\0" and not _is_half(each)


def _is_half(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"

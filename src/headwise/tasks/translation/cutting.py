"""Texts, cut into sentences to translate."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headwise.data import Subwords
from headwise.errors import RequestError
from headwise.tasks.translation.sentences import split_sentences, split_to_fit

_HALF_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Part:
    """A sentence of a text."""

    text: str
    ids: list[int]

    @property
    def wanted(self) -> bool:
        """Whether there is anything to translate besides white space."""
        return bool(self.text.strip())


@dataclass(frozen=True)
class Job:
    """A text and its sentences."""

    text: str
    parts: list[Part]
    is_split: bool


@dataclass(frozen=True)
class CutTexts:
    """Texts cut into sentences."""

    jobs: list[Job]

    @property
    def sources(self) -> list[list[int]]:
        """The ids of every sentence to translate."""
        return [part.ids for job in self.jobs for part in job.parts if part.wanted]

    @property
    def places(self) -> list[tuple[int, int]]:
        """For each of `sources`: the index of its text, and its index within the text."""
        return [
            (number, place)
            for number, job in enumerate(self.jobs)
            for place, part in enumerate(job.parts)
            if part.wanted
        ]


def cut_texts(
    texts: Sequence[str], subwords: Subwords, *, longest: int, language: str, split: bool
) -> CutTexts:
    """Cut texts into sentences with `split`, and texts of more than `longest` tokens anyway."""
    return CutTexts([_job(text, subwords, longest, language, split) for text in texts])


def _job(text: str, subwords: Subwords, longest: int, language: str, split: bool) -> Job:
    if "\0" in text:
        raise RequestError("a text with a NUL character cannot be translated")
    if _HALF_PAIR.search(text):
        raise RequestError("a text with half of a surrogate pair is not Unicode text")
    if not text.strip():
        return Job(text, [], False)
    # Check the number of characters first: encoding an absurdly long text would take long.
    if len(text) <= 16 * longest:
        sentences = split_sentences(text, language) if split else [text]
        parts = _parts(sentences, subwords)
        if all(len(part.ids) <= longest for part in parts):
            return Job(text, parts, len(parts) > 1)
    pieces = split_to_fit(text, subwords, longest, language)
    return Job(text, _parts(pieces, subwords), True)


def _parts(texts: list[str], subwords: Subwords) -> list[Part]:
    stripped = [text.strip() for text in texts]
    # One call for many texts; for few, the overhead of SentencePiece's batch call is larger.
    ids = subwords.encode_all(stripped) if len(texts) > 16 else list(map(subwords.encode, stripped))
    return [Part(text, each) for text, each in zip(texts, ids, strict=True)]

"""What a search has under way: sentences of several clients, and how much room there is."""

from collections import Counter
from dataclasses import dataclass, field

from headwise.decoding import Hypothesis, SearchSettings
from headwise.serving.fairness import Ticket
from headwise.tasks.translation.engine import OngoingSearch

_MOST_SENTENCES = 128
_MOST_TOKENS = 16_384
"""What a search may have under way: sentences, and tokens: of their hypotheses' sources, and of
their sources alone if all were as long as the longest."""


@dataclass(frozen=True)
class Source:
    """A sentence to translate, given as ids, and how to search."""

    ids: list[int]
    settings: SearchSettings

    @property
    def tokens(self) -> int:
        """How much of a search it takes."""
        return (len(self.ids) + 1) * self.settings.beam


SearchTicket = Ticket[Source, list[Hypothesis]]


@dataclass(frozen=True)
class Lane:
    """What sentences that are searched together have in common."""

    settings: SearchSettings
    is_bulk: bool


@dataclass(frozen=True, eq=False)
class Sentence:
    """One sentence of a request."""

    ticket: SearchTicket
    place: int
    source: Source


@dataclass(eq=False)
class Running:
    """A search, its sentences, and how many tokens of them are each client's."""

    search: OngoingSearch
    sentences: dict[int, Sentence]
    tokens: Counter[str] = field(default_factory=Counter)
    turn: int = 0
    """When it was last its turn."""

    def has_room(self, source: Source, shares: float) -> bool:
        """Return whether a sentence may join, where so many times the usual may be under way."""
        size, most_tokens = len(self.sentences), _MOST_TOKENS * shares
        if not size:
            return True
        tokens = self.tokens.total() + source.tokens
        if size >= _MOST_SENTENCES * shares or tokens > most_tokens:
            return False
        longest = max(len(each.source.ids) for each in self.sentences.values())
        return (size + 1) * (max(longest, len(source.ids)) + 1) <= most_tokens

    def enter(self, number: int, sentence: Sentence) -> None:
        self.sentences[number] = sentence
        self.tokens[sentence.ticket.client] += sentence.source.tokens

    def leave(self, number: int) -> Sentence:
        sentence = self.sentences.pop(number)
        client = sentence.ticket.client
        self.tokens[client] -= sentence.source.tokens
        if not self.tokens[client]:
            del self.tokens[client]
        return sentence

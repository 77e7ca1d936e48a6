"""CTranslate2 as a Translator's engine: groups of sentences, each searched by one worker.

The library cannot be interrupted, nor anything be added to what it is searching for.
"""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from headwise.decoding import Found, Hypothesis, SearchSettings
from headwise.errors import RequestError
from headwise.interop.ctranslate2.engine import CTranslate2Engine

_GATHER_SECONDS = 0.02
"""How long a worker that has become free waits for as many sentences as are under way."""


class GroupingEngine:
    """CTranslate2's engine as a Translator asks for translations."""

    def __init__(self, engine: CTranslate2Engine) -> None:
        self._engine = engine
        self.workers = engine.workers
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="group")
        self._begun: set[Future[list[list[Hypothesis]]]] = set()

    @property
    def is_free(self) -> bool:
        """Whether a worker would search a group at once. None waits: callers choose the next."""
        return len(self._begun) < self.workers

    def translate(
        self,
        sources: list[list[int]],
        settings: SearchSettings,
        max_extra_tokens: int,
        prefixes: list[list[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search as near to our own way as CTranslate2 can: it knows no other stop than "count"."""
        if prefixes is not None:
            raise RequestError("a forced beginning needs the torch engine")
        return self._translate(sources, settings, max_extra_tokens, divided=True)

    def begin(
        self, sources: list[list[int]], settings: SearchSettings, max_extra_tokens: int
    ) -> Future[list[list[Hypothesis]]]:
        """Have a worker translate sentences, while others do others."""
        group = self._threads.submit(
            self._translate, sources, settings, max_extra_tokens, divided=False
        )
        self._begun.add(group)
        group.add_done_callback(self._begun.discard)
        return group

    def search(
        self,
        settings: SearchSettings,
        max_extra_tokens: int,
        on_ready: Callable[[], None] = lambda: None,
    ) -> "GroupSearch":
        """Begin a search that goes on in groups."""
        return GroupSearch(self, settings, max_extra_tokens, on_ready)

    def _translate(
        self,
        sources: list[list[int]],
        settings: SearchSettings,
        max_extra_tokens: int,
        *,
        divided: bool,
    ) -> list[list[Hypothesis]]:
        return self._engine.translate(
            sources,
            beam=settings.beam,
            alpha=settings.alpha,
            nbest=settings.nbest,
            max_extra_tokens=max_extra_tokens,
            min_length=settings.min_length,
            penalty=settings.penalty,
            divided=divided,
        )

    def token_log_probs(self, pairs: list[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return the log-probability of each token of each target, then that of its end."""
        return self._engine.score([source for source, _ in pairs], [target for _, target in pairs])


class GroupSearch:
    """A search by a library that cannot be interrupted: groups of sentences, one for each worker.

    While some are searched, others are read and answered, and those that come in the meantime make
    the next group.
    """

    def __init__(
        self,
        engine: GroupingEngine,
        settings: SearchSettings,
        max_extra_tokens: int,
        on_ready: Callable[[], None],
    ) -> None:
        self._engine, self._settings, self._extra = engine, settings, max_extra_tokens
        self._on_ready = on_ready
        self._groups: dict[Future[list[list[Hypothesis]]], list[int]] = {}
        self._unwanted: set[int] = set()
        self._idle_since = time.monotonic()

    def __len__(self) -> int:
        """Return how many sentences are under way."""
        return sum(map(len, self._groups.values()))

    @property
    def is_ready(self) -> bool:
        """Whether a group is done."""
        return any(group.done() for group in self._groups)

    def accepts(self, newcomers: int) -> bool:
        """Return whether a worker is free, and has enough to do or has waited for it."""
        if not self._engine.is_free:
            return False
        waited = time.monotonic() - self._idle_since
        return newcomers >= len(self) or waited > _GATHER_SECONDS

    def add(self, sources: Mapping[int, list[int]]) -> None:
        """Give a group to a worker."""
        group = self._engine.begin(list(sources.values()), self._settings, self._extra)
        self._groups[group] = list(sources)
        group.add_done_callback(lambda _: self._on_ready())

    def advance(self) -> Found:
        """Return what groups have found that are done; where none is, wait for one."""
        done, _ = wait(self._groups, return_when=FIRST_COMPLETED)
        self._idle_since = time.monotonic()
        found: Found = []
        for group in done:
            found += zip(self._groups.pop(group), group.result(), strict=True)
        wanted = [each for each in found if each[0] not in self._unwanted]
        self._unwanted.difference_update(number for number, _ in found)
        return wanted

    def drop(self, numbers: Collection[int]) -> None:
        """Forget some sentences; their group is searched to its end."""
        self._unwanted.update(numbers)

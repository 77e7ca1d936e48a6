"""CTranslate2 as a Translator's engine: groups of sentences, each searched by one worker.

CTranslate2 cannot interrupt a search or add sentences to it.
"""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from headwise.decoding import Found, Hypothesis, SearchSettings
from headwise.errors import RequestError
from headwise.interop.ctranslate2.engine import CTranslate2Engine

_GATHER_SECONDS = 0.02
"""How long a free worker waits for as many sentences as are being searched."""


class GroupingEngine:
    """A CTranslate2Engine with the interface of `headwise.tasks.engine.Engine`."""

    def __init__(self, engine: CTranslate2Engine) -> None:
        self._engine = engine
        self.workers = engine.workers
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="group")
        self._running: set[Future[list[list[Hypothesis]]]] = set()

    @property
    def is_free(self) -> bool:
        """Whether a worker is free. Groups are never queued: callers choose the next."""
        return len(self._running) < self.workers

    def translate(
        self,
        sources: list[list[int]],
        settings: SearchSettings,
        max_extra_tokens: int,
        prefixes: list[list[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search as CTranslate2 does: it stops by "count" only."""
        if prefixes is not None:
            raise RequestError("a forced beginning needs the torch engine")
        return self._translate(sources, settings, max_extra_tokens, divided=True)

    def begin(
        self, sources: list[list[int]], settings: SearchSettings, max_extra_tokens: int
    ) -> Future[list[list[Hypothesis]]]:
        """Start to translate sentences with one worker."""
        group = self._threads.submit(
            self._translate, sources, settings, max_extra_tokens, divided=False
        )
        self._running.add(group)
        group.add_done_callback(self._running.discard)
        return group

    def search(
        self,
        settings: SearchSettings,
        max_extra_tokens: int,
        on_ready: Callable[[], None] = lambda: None,
    ) -> "GroupSearch":
        """Start a search in groups."""
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
        """Return the log-probability of each token of each target, then of its eos."""
        return self._engine.score([source for source, _ in pairs], [target for _, target in pairs])


class GroupSearch:
    """A search in groups of sentences, one for each worker.

    Sentences that arrive while all workers are busy make the next group.
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
        self._dropped: set[int] = set()
        self._idle_since = time.monotonic()

    def __len__(self) -> int:
        """Return how many sentences are being searched."""
        return sum(map(len, self._groups.values()))

    @property
    def is_ready(self) -> bool:
        """Whether a group is done."""
        return any(group.done() for group in self._groups)

    def accepts(self, newcomers: int) -> bool:
        """Return whether a worker is free and has enough sentences, or has waited for them."""
        if not self._engine.is_free:
            return False
        waited = time.monotonic() - self._idle_since
        return newcomers >= len(self) or waited > _GATHER_SECONDS

    def add(self, sources: Mapping[int, list[int]]) -> None:
        """Start a group."""
        group = self._engine.begin(list(sources.values()), self._settings, self._extra)
        self._groups[group] = list(sources)
        group.add_done_callback(lambda _: self._on_ready())

    def advance(self) -> Found:
        """Return the results of finished groups; wait for one if there is none."""
        done, _ = wait(self._groups, return_when=FIRST_COMPLETED)
        self._idle_since = time.monotonic()
        found: Found = []
        for group in done:
            found += zip(self._groups.pop(group), group.result(), strict=True)
        wanted = [each for each in found if each[0] not in self._dropped]
        self._dropped.difference_update(number for number, _ in found)
        return wanted

    def drop(self, numbers: Collection[int]) -> None:
        """Discard the results of some sentences; their group still runs to its end."""
        self._dropped.update(numbers)

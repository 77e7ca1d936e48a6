"""Find the served models by name or by languages."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headwise.decoding import SearchSettings
from headwise.errors import ConfigError
from headwise.serving.limits import RefusedError
from headwise.serving.workers import Workers
from headwise.serving.writing import CallSoon, GenerationSearch
from headwise.tasks.language_model.generator import Generator
from headwise.tasks.translation.engine import OngoingSearch
from headwise.tasks.translation.translator import Translator


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """A model and its name."""

    name: str
    translator: Translator
    card: dict[str, Any] = field(default_factory=dict)
    """Facts about it for people, as JSON."""
    workers: Workers | None = None
    """The processes that search with it; None: the server's own."""

    def search(
        self,
        settings: SearchSettings,
        on_ready: Callable[[], None],
        client_of: Callable[[int], str],
        is_bulk: bool,
    ) -> OngoingSearch:
        """Begin a search that sentences can be added to at any time."""
        if self.workers is None:
            return self.translator.search(settings, on_ready)
        extra = self.translator.config.decode.max_extra_tokens
        return self.workers.search(self.name, settings, extra, on_ready, client_of, is_bulk)

    @property
    def is_free(self) -> bool:
        """Whether a search that begins now would run at once."""
        return self.workers is not None or self.translator.is_free

    def shares(self) -> int:
        """Return how many processes search with it."""
        return 1 if self.workers is None else max(1, self.workers.num_ready)

    @property
    def source(self) -> str:
        """The source language's code; empty if the run has none."""
        return self.translator.config.data.source_language

    @property
    def target(self) -> str:
        """The target language's code."""
        return self.translator.config.data.target_language

    @property
    def has_languages(self) -> bool:
        """Whether it can be found by its languages."""
        return bool(self.source and self.target)


@dataclass(frozen=True, kw_only=True)
class GenerationModel:
    """A language model and its name."""

    name: str
    generator: Generator
    loaded_at: int = field(default_factory=lambda: int(time.time()))
    """Seconds since 1970."""

    def search(self, call_soon: CallSoon, on_step: Callable[[int, int], None]) -> GenerationSearch:
        """Begin to write continuations, which can be added at any time."""
        return GenerationSearch(self.generator, call_soon, on_step)


class Models:
    """All models that have a queue: those that translate, and those that continue a text."""

    def __init__(
        self,
        models: Sequence[ServedModel],
        generators: Sequence[GenerationModel] = (),
        *,
        others: Mapping[str, str] | None = None,
    ) -> None:
        """`others` are the names of models of other tasks, with the paths that they answer."""
        self.all, self.generators = tuple(models), tuple(generators)
        """`all` are those that translate."""
        self._others = others or {}
        self._by_name: dict[str, ServedModel] = {}
        self._by_pair: dict[tuple[str, str], ServedModel] = {}
        names = [*(model.name for model in models), *(model.name for model in generators)]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"two runs are called {name!r}: rename the directory of one of them"
                )
        for model in models:
            self._by_name[model.name] = model
            if model.has_languages:
                self._by_pair.setdefault(_pair(model.source, model.target), model)

    def named(self, name: str) -> ServedModel:
        """Find a model by its name."""
        if name in self._others:
            raise cannot(name, "translate", self._others[name])
        if name not in self._by_name:
            known = ", ".join(self._by_name)
            raise RefusedError(404, f"there is no model of that name: the models are {known}")
        return self._by_name[name]

    def generator(self, name: str | None) -> GenerationModel:
        """Find a language model by its name; by default the first."""
        for model in self.generators:
            if name in (None, model.name):
                return model
        known = ", ".join(model.name for model in self.generators)
        raise RefusedError(
            404, f"there is no language model of that name: there is {known}", field="model"
        )

    def between(self, source: str, target: str) -> ServedModel:
        """Find the model between two languages; of several, the first.

        From "auto" it is the only model into the target: the language is not detected.
        """
        source, target = _pair(source, target)
        if source == "auto":
            into = [model for pair, model in self._by_pair.items() if pair[1] == target]
            if len(into) == 1:
                return into[0]
            if into:
                raise RefusedError(
                    400,
                    "languages are not detected, and there are several models into that "
                    "target: name the source",
                )
        found = self._by_pair.get((source, target))
        if found is None:
            pairs = ", ".join(f"{each.source} to {each.target}" for each in self._by_pair.values())
            raise RefusedError(
                400,
                "no model translates between these languages: "
                + (
                    f"there is {pairs}"
                    if pairs
                    else "the run's config.toml has no data.source_language and target_language; "
                    "/v1/translate finds models by their names"
                ),
            )
        return found

    def find(self, name: str | None, source: str | None, target: str | None) -> ServedModel:
        """Find the model that a request means: by name, by languages, or the first of all."""
        if name is not None:
            model = self.named(name)
            asked = _pair(source or model.source, target or model.target)
            if asked != _pair(model.source, model.target):
                raise RefusedError(400, "this model does not translate between these languages")
            return model
        if not self.all:
            raise none_can("translate", self.paths())
        if source is None and target is None:
            return self.all[0]
        if target is None:
            raise RefusedError(400, "a source language needs a target language: name it as target")
        return self.between(source or "auto", target)

    def paths(self) -> dict[str, str]:
        """Return the names of all models of all tasks, with the paths that they answer."""
        return {**{model.name: "/v1/translate" for model in self.all}, **self._others}

    def languages(self) -> dict[str, list[str]]:
        """Return the source languages, each with its target languages."""
        targets: dict[str, list[str]] = {}
        for model in self._by_pair.values():
            targets.setdefault(model.source, []).append(model.target)
        return targets


def cannot(name: str, verb: str, path: str) -> RefusedError:
    """Return the refusal of what a model cannot do, which says what it can."""
    return RefusedError(400, f"{name} cannot {verb}: it answers {path}")


def none_can(verb: str, models: Mapping[str, str]) -> RefusedError:
    """Return the refusal of what no model can do, which says what they can."""
    able = ", ".join(f"{name} answers {path}" for name, path in models.items())
    return RefusedError(400, f"no model here can {verb}: {able}")


def _pair(source: str, target: str) -> tuple[str, str]:
    """Normalize language codes: EN is en."""
    return source.lower(), target.lower()

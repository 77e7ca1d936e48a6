"""A whole config, and the table of tasks that decides which sections it has."""

import dataclasses
import difflib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, Self

from typing_extensions import TypeVar

from headwise.config.model import Assembly, ModelConfig, Vocab
from headwise.config.recurrent import RecurrentConfig
from headwise.config.sections import (
    FEWEST_CLASSES,
    ClassificationDataConfig,
    DataConfig,
    DecodeConfig,
    GenerateConfig,
    MaskedDataConfig,
    NoDecodeConfig,
    ParsingDataConfig,
    ParsingDecodeConfig,
    TextDataConfig,
)
from headwise.config.train import TrainConfig
from headwise.errors import ConfigError

FORMAT_VERSION = 1
"""The recipe format's version; a run's config.toml states the one it was written in."""


class Section(Protocol):
    """A part of a config: a frozen dataclass that checks itself."""

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


D = TypeVar("D", default=DataConfig)
S = TypeVar("S", default=DecodeConfig)
M = TypeVar("M", bound=ModelConfig | RecurrentConfig, default=ModelConfig)

MODELS: dict[str, type[Section]] = {"transformer": ModelConfig, "recurrent": RecurrentConfig}
"""The sections of the values of `model.kind`."""


@dataclass(frozen=True, kw_only=True)
class Config(Generic[D, S, M]):
    """One experiment: a recipe with every value filled in.

    Which classes `data` and `decode` are is decided by the task, and which `model` is by its kind.
    A bare `Config` is that of translation with a Transformer.
    """

    task: str = "translation"
    data: D = None  # type: ignore[assignment]  # The task's own, with its defaults.
    model: M = field(default_factory=ModelConfig)  # type: ignore[assignment]
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: S = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        row = task_row(self.task)
        model: Any = self.model
        for name, kind in row.sections(getattr(model, "kind", "transformer")).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, kind())
            if type(getattr(self, name)) is not kind:
                raise ConfigError(f"{name} = {getattr(self, name)!r} must be a {kind.__name__}")
        _require_kind(model.kind, self.task)
        if model.kind == "transformer" and model.aligned_input and not row.is_aligned:
            raise ConfigError(
                f"model.aligned_input = true must be false with task = {self.task!r}, whose "
                "outputs do not follow the source word by word"
            )
        if row.assembly != "seq2seq" and model.num_decoder_layers != model.num_layers:
            raise ConfigError(
                f"model.num_decoder_layers = {model.num_decoder_layers} must be model.num_layers = "
                f"{model.num_layers} with task = {self.task!r}, whose model is one stack: leave it "
                "out"
            )
        if row.assembly != "classifier" and getattr(model, "pooling", "class-token") == "mean":
            raise ConfigError(
                f"model.pooling = 'mean' must be 'class-token' with task = {self.task!r}, which "
                "does not classify: leave it out"
            )
        row.check(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build a config from a recipe's tables; what they leave out is the paper's."""
        version = values.get("format_version", FORMAT_VERSION)
        if type(version) is not int or version < 1:
            raise ConfigError(f"format_version = {version!r} must be a whole number from 1")
        if version > FORMAT_VERSION:
            raise ConfigError(
                f"format_version = {version} is newer than the {FORMAT_VERSION} that this "
                "Headwise reads: upgrade Headwise"
            )
        task = values.get("task", cls.task)
        kind = _model_kind(values)
        _require_kind(kind, task)
        sections = task_row(task).sections(kind)
        known = [*sections, "task", "format_version"]
        for key in values:
            if key not in known:
                raise ConfigError(unknown_key(key, [*known, *all_keys(task)]))
        built: dict[str, Any] = {
            name: _build_section(kind, values[name])
            for name, kind in sections.items()
            if name in values
        }
        return cls(task=task, **built)

    def to_dict(self) -> dict[str, Any]:
        """Return the tables of the recipe that builds exactly this config."""
        return {"format_version": FORMAT_VERSION, **dataclasses.asdict(self)}

    def to_toml(self) -> str:
        """Write the recipe that builds exactly this config."""
        lines: list[str] = []
        for key, value in self.to_dict().items():
            if isinstance(value, dict):
                lines += ["", f"[{key}]", *(f"{k} = {toml_value(v)}" for k, v in value.items())]
            else:
                lines.append(f"{key} = {toml_value(value)}")
        return "\n".join(lines) + "\n"


LanguageModelConfig = Config[TextDataConfig, GenerateConfig]
ParsingConfig = Config[ParsingDataConfig, ParsingDecodeConfig]
ClassificationConfig = Config[ClassificationDataConfig, NoDecodeConfig]
MaskedLanguageModelConfig = Config[MaskedDataConfig, NoDecodeConfig]

AnyConfig = Config[Any, Any, Any]
"""The config of any task, for code that serves them all."""


@dataclass(frozen=True, kw_only=True)
class TaskRow:
    """One row of the table of tasks."""

    data: type[Section]
    decode: type[Section]
    module: str
    """The task as "module:object". It is imported when it is needed: most of it needs torch."""
    verb: str
    """The command that uses a trained run, as in `headwise translate`."""
    assembly: Assembly
    """What its models are built of."""
    inputs: str
    """Its options on the command line as "module:object", which must import quickly."""
    served: str = ""
    """How it is served, as "module:object"; empty where it cannot be."""
    recipe: str = ""
    """The recipe that is taken where its files are given and no recipe; empty: the base model."""
    kinds: tuple[str, ...] = ("transformer",)
    """The values of `model.kind` that it takes."""
    is_aligned: bool = False
    """Whether its batches have the source position that each target position has reached, which
    `model.aligned_input` needs."""
    vocab: Callable[[AnyConfig], Vocab] = lambda config: Vocab.shared(config.data.vocab_size)
    """The vocabulary that a config asks for, where there is no tokenizer yet."""
    check: Callable[[AnyConfig], None] = lambda _: None
    """Raises ConfigError where sections do not fit each other."""

    def sections(self, kind: str = "transformer") -> dict[str, type[Section]]:
        """Return the classes of a config's sections by their names, for a `model.kind`."""
        kinds: tuple[type[Section], ...] = (self.data, MODELS[kind], TrainConfig, self.decode)
        return {kind.name: kind for kind in kinds}


def _check_translation(config: AnyConfig) -> None:
    if config.model.tying == "three-way" and not config.data.joint:
        raise ConfigError(
            "model.tying = 'three-way' needs data.joint = true: one matrix, one vocabulary"
        )


def _check_language_model(config: AnyConfig) -> None:
    context, model = config.data.context, config.model
    if model.positions == "learned" and model.max_positions < context:
        raise ConfigError(
            f"model.max_positions = {model.max_positions} must be at least data.context = "
            f"{context}: learned positions cover no more"
        )
    if config.train.batch_tokens < context:
        raise ConfigError(
            f"train.batch_tokens = {config.train.batch_tokens} must be at least data.context = "
            f"{context}: a batch has whole blocks"
        )
    if config.train.bleu_pairs:
        raise ConfigError("train.bleu_pairs must be 0: a language model does not translate")


def _parsing_vocab(config: AnyConfig) -> Vocab:
    return Vocab(source_size=config.data.vocab_size, target_size=_USUAL_SYMBOLS)


def _check_parsing(config: AnyConfig) -> None:
    if config.model.tying == "three-way":
        raise ConfigError(
            "model.tying = 'three-way' must be 'two-way' or 'untied' with task = 'parsing': words "
            "and symbols of trees are two vocabularies"
        )
    if config.train.bleu_pairs:
        raise ConfigError("train.bleu_pairs must be 0: a parser does not translate")


def _masked_vocab(config: AnyConfig) -> Vocab:
    return replace(Vocab.shared(config.data.vocab_size), mask=config.data.vocab_size - 1)


def _check_masked(config: AnyConfig) -> None:
    longest, model = config.data.context + 2, config.model
    if model.positions == "learned" and model.max_positions < longest:
        raise ConfigError(
            f"model.max_positions = {model.max_positions} must be at least data.context + 2 = "
            f"{longest}: learned positions cover no more"
        )
    if config.train.batch_tokens < longest:
        raise ConfigError(
            f"train.batch_tokens = {config.train.batch_tokens} must be at least data.context + 2 "
            f"= {longest}: a batch has whole blocks"
        )
    if config.train.bleu_pairs:
        raise ConfigError("train.bleu_pairs must be 0: a masked language model does not translate")


def _classification_vocab(config: AnyConfig) -> Vocab:
    return Vocab(source_size=config.data.vocab_size, target_size=FEWEST_CLASSES)


def _check_classification(config: AnyConfig) -> None:
    longest, model = config.data.longest, config.model
    if model.positions == "learned" and model.max_positions < longest:
        raise ConfigError(
            f"model.max_positions = {model.max_positions} must be at least data.longest = "
            f"{longest}: learned positions cover no more"
        )
    if config.train.batch_tokens < longest:
        raise ConfigError(
            f"train.batch_tokens = {config.train.batch_tokens} must be at least data.longest = "
            f"{longest}: a batch has whole texts"
        )
    if model.tying != "three-way":
        raise ConfigError(
            f"model.tying = {model.tying!r} must be left out with task = 'classification', whose "
            "model has a single embedding"
        )
    if config.train.bleu_pairs:
        raise ConfigError("train.bleu_pairs must be 0: a classifier does not translate")


_USUAL_SYMBOLS = 106
"""The target vocabulary of an English treebank, special ids included."""

TASKS: dict[str, TaskRow] = {
    "translation": TaskRow(
        data=DataConfig,
        decode=DecodeConfig,
        module="headwise.tasks.translation.task:TASK",
        verb="translate",
        assembly="seq2seq",
        inputs="headwise.tasks.translation.inputs:INPUTS",
        kinds=("transformer", "recurrent"),
        check=_check_translation,
    ),
    "language-model": TaskRow(
        data=TextDataConfig,
        decode=GenerateConfig,
        module="headwise.tasks.language_model.task:TASK",
        verb="generate",
        assembly="decoder",
        inputs="headwise.tasks.language_model.inputs:INPUTS",
        served="headwise.tasks.language_model.serving:SERVED",
        recipe="lm-tiny",
        check=_check_language_model,
    ),
    "parsing": TaskRow(
        data=ParsingDataConfig,
        decode=ParsingDecodeConfig,
        module="headwise.tasks.parsing.task:TASK",
        verb="parse",
        assembly="seq2seq",
        inputs="headwise.tasks.parsing.inputs:INPUTS",
        served="headwise.tasks.parsing.serving:SERVED",
        recipe="parsing-small",
        is_aligned=True,
        vocab=_parsing_vocab,
        check=_check_parsing,
    ),
    "masked-language-model": TaskRow(
        data=MaskedDataConfig,
        decode=NoDecodeConfig,
        module="headwise.tasks.masked_language_model.task:TASK",
        verb="fill",
        assembly="masked",
        inputs="headwise.tasks.masked_language_model.inputs:INPUTS",
        vocab=_masked_vocab,
        check=_check_masked,
    ),
    "classification": TaskRow(
        data=ClassificationDataConfig,
        decode=NoDecodeConfig,
        module="headwise.tasks.classification.task:TASK",
        verb="classify",
        assembly="classifier",
        inputs="headwise.tasks.classification.inputs:INPUTS",
        served="headwise.tasks.classification.serving:SERVED",
        recipe="text-tiny",
        vocab=_classification_vocab,
        check=_check_classification,
    ),
}


def task_row(task: object) -> TaskRow:
    """Return a task's row of the table."""
    if not isinstance(task, str) or task not in TASKS:
        raise ConfigError(f"task = {task!r} is unknown: there is {', '.join(map(repr, TASKS))}")
    return TASKS[task]


def _model_kind(values: dict[str, Any]) -> str:
    """Return the `model.kind` of a recipe's tables."""
    model = values.get("model", {})
    kind = model.get("kind", "transformer") if isinstance(model, dict) else "transformer"
    if not isinstance(kind, str) or kind not in MODELS:
        raise ConfigError(f"model.kind = {kind!r} must be one of {', '.join(map(repr, MODELS))}")
    return kind


def _require_kind(kind: str, task: object) -> None:
    if kind not in task_row(task).kinds:
        raise ConfigError(f"model.kind = {kind!r} must be 'transformer' with task = {task!r}")


def all_keys(task: object = "translation") -> list[str]:
    """List every key that `--set` takes, as section.key, whatever the `model.kind`."""
    row = task_row(task)
    sections = [row.sections(kind).values() for kind in row.kinds]
    keys = [f"{kind.name}.{key}" for each in sections for kind in each for key in _keys(kind)]
    return ["task", *dict.fromkeys(keys)]


def _build_section(kind: type[Section], table: Any) -> Section:
    if not isinstance(table, dict):
        raise ConfigError(f"{kind.name} = {table!r} must be a table: write [{kind.name}]")
    for key in table:
        if key not in _keys(kind):
            others = [name for name, each in MODELS.items() if key in _keys(each)]
            if kind.name == "model" and others:
                has = next(name for name, each in MODELS.items() if each is kind)
                raise ConfigError(
                    f"model.{key} is a setting of model.kind = {others[0]!r}, not of {has!r}"
                )
            valid = [f"{kind.name}.{name}" for name in _keys(kind)]
            raise ConfigError(unknown_key(f"{kind.name}.{key}", valid))
    return kind(**table)


def _keys(kind: type[Section]) -> list[str]:
    return [f.name for f in dataclasses.fields(kind)]


def unknown_key(key: str, valid: list[str]) -> str:
    """Say that a key is unknown, and which one may have been meant."""
    # A key without its section comes first: it is right but for that.
    near = [name for name in valid if name.split(".")[-1] == key]
    near += difflib.get_close_matches(key, valid, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else "`headwise config` prints every key"
    return f"unknown key {key!r}: {hint}"


def toml_value(value: object) -> str:
    """Write a string, number or boolean as TOML."""
    # JSON writes strings, numbers and booleans as TOML does; nan and inf are refused above. TOML
    # has \U escapes as well, and takes no DEL as it is.
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)

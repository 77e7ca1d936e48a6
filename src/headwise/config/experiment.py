"""A whole config: one experiment."""

import dataclasses
import difflib
import json
from dataclasses import dataclass, field
from typing import Any, Generic, Self, cast

from typing_extensions import TypeVar

from headwise.config.classification import (
    AudioClassificationDataConfig,
    ClassificationDataConfig,
    ImageClassificationDataConfig,
)
from headwise.config.model import CONVOLVED_FRAMES, ENCODERS_ALONE, ModelConfig
from headwise.config.recurrent import RecurrentConfig
from headwise.config.sections import (
    DataConfig,
    DecodeConfig,
    GenerateConfig,
    MaskedDataConfig,
    NoDecodeConfig,
    ParsingDataConfig,
    ParsingDecodeConfig,
    TextDataConfig,
)
from headwise.config.tasks import MODELS, TEXT, Section, TaskRow, task_row
from headwise.config.train import TrainConfig
from headwise.config.transcription import (
    AudioTranscriptionDataConfig,
    ImageTranscriptionDataConfig,
)
from headwise.errors import ConfigError

FORMAT_VERSION = 1
"""The recipe format's version; a run's config.toml states the one it was written in."""


D = TypeVar("D", default=DataConfig)
S = TypeVar("S", default=DecodeConfig)
M = TypeVar("M", bound=ModelConfig | RecurrentConfig, default=ModelConfig)


@dataclass(frozen=True, kw_only=True)
class Config(Generic[D, S, M]):
    """One experiment: a recipe with every value filled in.

    Which classes `data` and `decode` are is decided by the task and, where it has several kinds of
    input, by `data.input`; which `model` is, by its kind.
    A bare `Config` is that of translation with a Transformer.
    """

    task: str = "translation"
    data: D = None  # type: ignore[assignment]  # The task's own, with its defaults.
    model: M = field(default_factory=ModelConfig)  # type: ignore[assignment]
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: S = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        row, model = self.row, cast("Any", self.model)
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
        if getattr(model, "subsampling", "stack") == "convolution":
            stack = getattr(self.data, "stack", None)
            if stack is None:
                raise ConfigError(
                    "model.subsampling = 'convolution' must be 'stack' unless data.input = "
                    "'audio': only sounds have frames"
                )
            if stack != CONVOLVED_FRAMES:
                raise ConfigError(
                    f"model.subsampling = 'convolution' needs data.stack = {CONVOLVED_FRAMES}, not "
                    f"{stack}: two convolutions of stride 2 make that many frames one position"
                )
        for key, default in (("embedding_norm", False), ("token_types", 0)):
            value = getattr(model, key, default)
            if row.assembly not in ENCODERS_ALONE and value != default:
                raise ConfigError(
                    f"model.{key} = {toml_value(value)} must be {toml_value(default)} with task = "
                    f"{self.task!r}, whose model has a decoder: leave it out"
                )
        row.check(self)

    @property
    def row(self) -> TaskRow:
        """The row of the table of tasks that this is a config of."""
        return task_row(self.task, getattr(self.data, "input", TEXT))

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
        sections = task_row(task, _input(values)).sections(kind)
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
ImageClassificationConfig = Config[ImageClassificationDataConfig, NoDecodeConfig]
AudioClassificationConfig = Config[AudioClassificationDataConfig, NoDecodeConfig]
ImageTranscriptionConfig = Config[ImageTranscriptionDataConfig, DecodeConfig]
AudioTranscriptionConfig = Config[AudioTranscriptionDataConfig, DecodeConfig]
MaskedLanguageModelConfig = Config[MaskedDataConfig, NoDecodeConfig]

AnyConfig = Config[Any, Any, Any]
"""The config of any task, for code that serves them all."""


def _input(values: dict[str, Any]) -> object:
    """Return the `data.input` of a recipe's tables."""
    data = values.get("data", {})
    return data.get("input", TEXT) if isinstance(data, dict) else TEXT


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
    """List every key that `--set` takes, as section.key, whatever `model.kind` and `data.input`."""
    row = task_row(task)
    rows = (row, *row.others.values())
    sections = [each.sections(kind).values() for each in rows for kind in each.kinds]
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

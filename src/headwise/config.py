"""Everything an experiment can vary, with the paper's base model as the defaults.

`Config` has one section for each part: task, data, model, train, decode. `TASKS` lists the tasks
and their sections; those that differ between tasks are in task_sections.py. An empty recipe is the
paper's base model; a recipe states only its differences. Sections are frozen, take keywords only,
and check themselves when they are made, whether by a TOML file, `--set` or Python code.
"""

import dataclasses
import difflib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Protocol, Self

from typing_extensions import TypeVar

from headwise.checks import (
    check_types,
    require,
    require_at_least,
    require_at_most,
    require_not_negative,
    require_share,
)
from headwise.errors import ConfigError
from headwise.task_sections import (
    LONGEST_CONTINUATION,
    SMALLEST_VOCABULARY,
    STRONGEST_PENALTY,
    WIDEST_BEAM,
    DataConfig,
    DecodeConfig,
    GenerateConfig,
    NoDecodeConfig,
    ParsingDataConfig,
    ParsingDecodeConfig,
    TextDataConfig,
)

__all__ = [
    "FORMAT_VERSION",
    "LONGEST_CONTINUATION",
    "SMALLEST_VOCABULARY",
    "STRONGEST_PENALTY",
    "TASKS",
    "WIDEST_BEAM",
    "AnyConfig",
    "Assembly",
    "Config",
    "DataConfig",
    "DecodeConfig",
    "GenerateConfig",
    "LanguageModelConfig",
    "ModelConfig",
    "NoDecodeConfig",
    "ParsingConfig",
    "ParsingDataConfig",
    "ParsingDecodeConfig",
    "Section",
    "TaskRow",
    "TextDataConfig",
    "TrainConfig",
    "Vocab",
    "all_keys",
    "task_row",
    "toml_value",
    "unknown_key",
]

FORMAT_VERSION = 1
"""The recipe format's version; a run's config.toml states the one it was written in."""


@dataclass(frozen=True, kw_only=True)
class Vocab:
    """The sizes of a model's vocabularies and their special ids.

    Source sequences end in eos; targets start from `start` and end in eos. A model with a single
    vocabulary has two equal sizes.
    """

    name: ClassVar[str] = "vocab"

    source_size: int
    target_size: int
    pad: int = 0
    unk: int = 1
    bos: int = 2
    eos: int = 3
    start: int = 2
    """The id that a decoder reads first: our own vocabularies start with bos."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, SMALLEST_VOCABULARY, "source_size", "target_size")

    def size(self, side: Literal["source", "target"]) -> int:
        """Return how many entries one of the vocabularies has."""
        return self.source_size if side == "source" else self.target_size

    @classmethod
    def shared(cls, size: int) -> Self:
        """Make the vocabulary that source and target have in common."""
        return cls(source_size=size, target_size=size)


Assembly = Literal["seq2seq", "decoder"]
"""What a model is built of: encoder and decoder, or a decoder alone (a language model)."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The model (§3) and the dropout inside it (§5.4)."""

    name: ClassVar[str] = "model"

    kind: Literal["transformer"] = "transformer"
    """The architecture."""
    d_model: int = 512
    """Width of every sub-layer's input and output."""
    d_ff: int = 2048
    """Inner width of the feed-forward sub-layer."""
    num_layers: int = 6
    """Layers of the encoder, and as many of the decoder (the paper's N)."""
    num_heads: int = 8
    """Attention heads (the paper's h)."""
    d_k: int = 0
    """Width of a head's queries and keys; 0 means d_model / num_heads and is replaced by it."""
    d_v: int = 0
    """Width of a head's values; 0 means d_model / num_heads and is replaced by it."""
    attention_bias: bool = True
    """Biases on attention's projections: absent from the formula, present in Table 3's counts."""
    norm_order: Literal["post", "pre"] = "post"
    """LayerNorm after the residual sum (the paper), or before the sub-layer with final norms."""
    norm_epsilon: float = 1e-6
    """What LayerNorm adds to the variance; the paper is silent, and this is the value of the
    authors' first public code."""
    activation: Literal["relu", "gelu", "gelu_tanh"] = "relu"
    """What stands between the two products of the feed-forward sub-layer (§3.3): ReLU, or as a
    departure from the paper GELU, exact or in its tanh approximation (GPT-2's)."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Fixed sinusoids of any length, or a learned vector for each position (Table 3 E)."""
    max_positions: int = 1024
    """Longest sequence that learned positions cover; sinusoids have no limit and ignore it."""
    tying: Literal["three-way", "two-way", "untied"] = "three-way"
    """One matrix for both embeddings and the output; for target and output; or three matrices."""
    scale_embeddings: bool = True
    """Whether embeddings are multiplied by sqrt(d_model) (§3.4); without it, a departure from the
    paper, they are added to the positions as they are (GPT-2)."""
    dropout: float = 0.1
    """Rate on each sub-layer's output and on the sums of embeddings and positions."""
    attention_dropout: float = 0.0
    """Rate on the attention weights; the paper's parser uses it, its translation models do not."""
    aligned_input: bool = False
    """Whether the decoder's input also has the encoder's output at the next unread word: a
    departure from the paper, for tasks whose outputs follow the source word by word (parsing)."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(self, 1, "d_model", "d_ff", "num_layers", "num_heads", "max_positions")
        require_at_most(self, 1_000, "num_layers")
        if self.positions == "sinusoidal":
            require(self, "d_model", self.d_model % 2 == 0, "even, to pair sines with cosines")
        require_not_negative(self, "d_k", "d_v")
        for key in ("d_k", "d_v"):
            if getattr(self, key) == 0:
                require(
                    self,
                    "num_heads",
                    self.d_model % self.num_heads == 0,
                    f"a divisor of model.d_model = {self.d_model}, or set model.d_k and model.d_v",
                )
                object.__setattr__(self, key, self.d_model // self.num_heads)
        require_share(self, "dropout", "attention_dropout")
        require(self, "norm_epsilon", 0 < self.norm_epsilon < math.inf, "a number above 0")

    def fitting(self, tokens: int) -> int:
        """Return so many tokens, or as many as a sequence may have besides its start or end."""
        return min(tokens, self.max_positions - 1) if self.positions == "learned" else tokens

    def count_parameters(self, vocab: Vocab, assembly: Assembly = "seq2seq") -> int:
        """Count the trainable parameters without building the model."""
        d, h, biases = self.d_model, self.num_heads, int(self.attention_bias)
        projections = h * (2 * self.d_k + self.d_v)
        attention = (d + biases) * projections + h * self.d_v * d + biases * d
        feed_forward = (d + 1) * self.d_ff + (self.d_ff + 1) * d
        norm = 2 * d
        layer = attention + feed_forward + 2 * norm
        if assembly == "decoder":
            stacks, layers = 1, layer
            rows = (2 if self.tying == "untied" else 1) * vocab.target_size
        else:
            stacks, layers = 2, layer + (layer + attention + norm)  # Encoder, then decoder.
            rows = {
                "three-way": vocab.target_size,
                "two-way": vocab.source_size + vocab.target_size,
                "untied": vocab.source_size + 2 * vocab.target_size,
            }[self.tying]
        final_norms = stacks * norm if self.norm_order == "pre" else 0
        positions = stacks * self.max_positions * d if self.positions == "learned" else 0
        return self.num_layers * layers + final_norms + positions + rows * d


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the model is trained (§5)."""

    name: ClassVar[str] = "train"

    batch_tokens: int = 25_000
    """Tokens of each side in one batch; an update takes `accumulate` such batches."""
    accumulate: int = 1
    """Batches of each process whose gradients make one update: how small machines reach a large
    batch."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What products are computed in; weights and sums stay in float32."""
    compile: bool = False
    """Whether torch compiles the training step: for accelerators; on CPUs it measured slower."""
    schedule: Literal["paper", "inverse-sqrt", "linear", "cosine"] = "paper"
    """The paper's learning rate, or warm-up to `peak_rate` followed by the decay named."""
    peak_rate: float = 0.0
    """Learning rate at the end of warm-up; the paper's schedule has its own and wants 0 here."""
    warmup_steps: int = 4000
    """Updates over which the learning rate rises."""
    decay_by: Literal["steps", "clock"] = "steps"
    """What a linear or cosine decay follows to zero: `max_steps`, or `max_minutes`."""
    adam_beta1: float = 0.9
    """Decay of Adam's mean of gradients."""
    adam_beta2: float = 0.98
    """Decay of Adam's mean of squared gradients."""
    adam_epsilon: float = 1e-9
    """What Adam adds to the root of the latter."""
    clip_norm: float = 0.0
    """Longest gradient that is taken as it is; a longer one is scaled to this. 0 never scales."""
    label_smoothing: float = 0.1
    """Probability mass taken from the right token and spread over all others."""
    max_steps: int = 100_000
    """Updates after which training ends."""
    max_epochs: int = 0
    """Passes over the data after which training ends; 0 sets no such limit."""
    max_tokens: int = 0
    """Target tokens after which training ends; 0 sets no such limit."""
    max_minutes: float = 0.0
    """Minutes of wall clock after which training ends; 0 sets no such limit."""
    patience: int = 0
    """Validations without a better result after which training ends; 0 sets no such limit."""
    bleu_pairs: int = 0
    """Validation pairs to translate at each validation; with any, BLEU decides which is best."""
    log_every_steps: int = 50
    """Updates that one line of metrics.jsonl sums up."""
    save_every_steps: int = 0
    """Updates from one checkpoint, with its validation, to the next; 0 leaves it to the clock."""
    save_every_minutes: float = 10.0
    """Minutes from one checkpoint, with its validation, to the next; 0 leaves it to the steps."""
    keep_last: int = 5
    """Checkpoints kept beside the best one; never fewer than `average_last`."""
    average_last: int = 5
    """Checkpoints whose weights are averaged into the final model."""
    seed: int = 1
    """What every random number is derived from."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(
            self,
            1,
            "batch_tokens",
            "accumulate",
            "warmup_steps",
            "max_steps",
            "log_every_steps",
            "average_last",
        )
        # With a single one there would be nothing to fall back on when it turns out damaged.
        require_at_least(self, 2, "keep_last")
        require_not_negative(
            self,
            "peak_rate",
            "clip_norm",
            "max_epochs",
            "max_tokens",
            "max_minutes",
            "patience",
            "bleu_pairs",
            "save_every_steps",
            "save_every_minutes",
            "seed",
        )
        if self.decay_by == "clock":
            require(
                self,
                "decay_by",
                self.schedule in ("linear", "cosine") and self.max_minutes > 0,
                "'steps' unless the schedule is 'linear' or 'cosine' and train.max_minutes is set",
            )
        if self.schedule == "paper":
            require(
                self,
                "peak_rate",
                self.peak_rate == 0,
                "0 with train.schedule = 'paper', which sets it",
            )
        else:
            require(
                self,
                "peak_rate",
                self.peak_rate > 0,
                f"above 0 with train.schedule = {self.schedule!r}",
            )
        require_share(self, "label_smoothing", "adam_beta1", "adam_beta2")
        require(self, "adam_epsilon", 0 < self.adam_epsilon < math.inf, "a number above 0")
        require(
            self,
            "save_every_minutes",
            self.save_every_minutes > 0 or self.save_every_steps > 0,
            "above 0 where train.save_every_steps is 0, or nothing would ever be saved",
        )


class Section(Protocol):
    """A part of a config: a frozen dataclass that checks itself."""

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


D = TypeVar("D", default=DataConfig)
S = TypeVar("S", default=DecodeConfig)


@dataclass(frozen=True, kw_only=True)
class Config(Generic[D, S]):
    """One experiment: a recipe with every value filled in.

    Which classes `data` and `decode` are is decided by the task. A bare `Config` is translation's.
    """

    task: str = "translation"
    data: D = None  # type: ignore[assignment]  # The task's own, with its defaults.
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    decode: S = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        row = task_row(self.task)
        for name, kind in row.sections().items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, kind())
            if type(getattr(self, name)) is not kind:
                raise ConfigError(f"{name} = {getattr(self, name)!r} must be a {kind.__name__}")
        if self.model.aligned_input and not row.is_aligned:
            raise ConfigError(
                f"model.aligned_input = true must be false with task = {self.task!r}, whose "
                "outputs do not follow the source word by word"
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
        sections = task_row(task).sections()
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

AnyConfig = Config[Any, Any]
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
    is_aligned: bool = False
    """Whether its batches have the source position that each target position has reached, which
    `model.aligned_input` needs."""
    vocab: Callable[[AnyConfig], Vocab] = lambda config: Vocab.shared(config.data.vocab_size)
    """The vocabulary that a config asks for, where there is no tokenizer yet."""
    check: Callable[[AnyConfig], None] = lambda _: None
    """Raises ConfigError where sections do not fit each other."""

    def sections(self) -> dict[str, type[Section]]:
        """Return the classes of a config's sections by their names."""
        kinds: tuple[type[Section], ...] = (self.data, ModelConfig, TrainConfig, self.decode)
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
        is_aligned=True,
        vocab=_parsing_vocab,
        check=_check_parsing,
    ),
}


def task_row(task: object) -> TaskRow:
    """Return a task's row of the table."""
    if not isinstance(task, str) or task not in TASKS:
        raise ConfigError(f"task = {task!r} is unknown: there is {', '.join(map(repr, TASKS))}")
    return TASKS[task]


def all_keys(task: object = "translation") -> list[str]:
    """List every key that `--set` takes, as section.key."""
    sections = task_row(task).sections()
    return ["task"] + [f"{name}.{key}" for name, kind in sections.items() for key in _keys(kind)]


def _build_section(kind: type[Section], table: Any) -> Section:
    if not isinstance(table, dict):
        raise ConfigError(f"{kind.name} = {table!r} must be a table: write [{kind.name}]")
    for key in table:
        if key not in _keys(kind):
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

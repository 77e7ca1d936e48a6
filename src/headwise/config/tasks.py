"""The table of tasks: which sections a config of each has, and where its parts are."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from headwise.config.classification import (
    FEWEST_CLASSES,
    AudioClassificationDataConfig,
    ClassificationDataConfig,
    ImageClassificationDataConfig,
)
from headwise.config.model import Assembly, ModelConfig, Vocab
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
from headwise.config.train import TrainConfig
from headwise.config.transcription import (
    AudioTranscriptionDataConfig,
    ImageTranscriptionDataConfig,
)
from headwise.errors import ConfigError

if TYPE_CHECKING:
    from headwise.config.experiment import AnyConfig

TEXT = "text"
"""The value of `data.input` that is meant where there is none."""


class Section(Protocol):
    """A part of a config: a frozen dataclass that checks itself."""

    name: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


MODELS: dict[str, type[Section]] = {"transformer": ModelConfig, "recurrent": RecurrentConfig}
"""The sections of the values of `model.kind`."""


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
    input: str = TEXT
    """Its value of `data.input`, which a recipe need not state for the first row of a task; where
    there is no such setting, the input is text."""
    kinds: tuple[str, ...] = ("transformer",)
    """The values of `model.kind` that it takes."""
    is_aligned: bool = False
    """Whether its batches have the source position that each target position has reached, which
    `model.aligned_input` needs."""
    vocab: Callable[["AnyConfig"], Vocab] = lambda config: Vocab.shared(config.data.vocab_size)
    """The vocabulary that a config asks for, where there is no tokenizer yet."""
    check: Callable[["AnyConfig"], None] = lambda _: None
    """Raises ConfigError where sections do not fit each other."""
    others: "Mapping[str, TaskRow]" = field(default_factory=dict)
    """The same task with other inputs, by the value of `data.input`."""

    def sections(self, kind: str = "transformer") -> dict[str, type[Section]]:
        """Return the classes of a config's sections by their names, for a `model.kind`."""
        kinds: tuple[type[Section], ...] = (self.data, MODELS[kind], TrainConfig, self.decode)
        return {kind.name: kind for kind in kinds}


def _check_translation(config: "AnyConfig") -> None:
    if config.model.tying == "three-way" and not config.data.joint:
        raise ConfigError(
            "model.tying = 'three-way' needs data.joint = true: one matrix, one vocabulary"
        )


def _check_language_model(config: "AnyConfig") -> None:
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


def _parsing_vocab(config: "AnyConfig") -> Vocab:
    return Vocab(source_size=config.data.vocab_size, target_size=_USUAL_SYMBOLS)


def _check_parsing(config: "AnyConfig") -> None:
    if config.model.tying == "three-way":
        raise ConfigError(
            "model.tying = 'three-way' must be 'two-way' or 'untied' with task = 'parsing': words "
            "and symbols of trees are two vocabularies"
        )
    if config.train.bleu_pairs:
        raise ConfigError("train.bleu_pairs must be 0: a parser does not translate")


def _masked_vocab(config: "AnyConfig") -> Vocab:
    return replace(Vocab.shared(config.data.vocab_size), mask=config.data.vocab_size - 1)


def _check_masked(config: "AnyConfig") -> None:
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


def _classification_vocab(config: "AnyConfig") -> Vocab:
    return Vocab(source_size=config.data.vocab_size, target_size=FEWEST_CLASSES)


def _image_vocab(config: "AnyConfig") -> Vocab:
    return Vocab.of_vectors(config.data.patch_width, FEWEST_CLASSES)


def _audio_vocab(config: "AnyConfig") -> Vocab:
    return Vocab.of_vectors(config.data.frame_width, FEWEST_CLASSES)


def _check_classification(config: "AnyConfig") -> None:
    longest, model = config.data.longest, config.model
    is_text = config.row.input == TEXT
    what = "data.longest" if is_text else "the positions of an example"
    if model.positions == "learned" and model.max_positions < longest:
        raise ConfigError(
            f"model.max_positions = {model.max_positions} must be at least {what} = {longest}: "
            "learned positions cover no more"
        )
    if config.train.batch_tokens < longest:
        raise ConfigError(
            f"train.batch_tokens = {config.train.batch_tokens} must be at least {what} = "
            f"{longest}: a batch has whole examples"
        )
    if model.tying != "three-way":
        raise ConfigError(
            f"model.tying = {model.tying!r} must be left out with task = 'classification', whose "
            "model has a single embedding"
        )
    if config.train.bleu_pairs:
        raise ConfigError("train.bleu_pairs must be 0: a classifier does not translate")


def _line_vocab(config: "AnyConfig") -> Vocab:
    return Vocab.of_vectors(config.data.patch_width, _target_size(config))


def _spoken_vocab(config: "AnyConfig") -> Vocab:
    return Vocab.of_vectors(config.data.frame_width, _target_size(config))


def _target_size(config: "AnyConfig") -> int:
    is_cut = config.data.targets == "subwords"
    size: int = config.data.vocab_size if is_cut else _USUAL_CHARACTERS
    return size


def _check_transcription(config: "AnyConfig") -> None:
    longest, model = config.data.longest, config.model
    if model.tying == "three-way":
        raise ConfigError(
            "model.tying = 'three-way' must be 'two-way' or 'untied' with task = 'transcription', "
            "whose source has no embeddings"
        )
    if model.positions == "learned" and model.max_positions < longest:
        raise ConfigError(
            f"model.max_positions = {model.max_positions} must be at least the positions of an "
            f"example = {longest}: learned positions cover no more"
        )
    if config.train.batch_tokens < longest:
        raise ConfigError(
            f"train.batch_tokens = {config.train.batch_tokens} must be at least the positions of "
            f"an example = {longest}: a batch has whole examples"
        )
    if config.train.bleu_pairs:
        raise ConfigError("train.bleu_pairs must be 0: a transcriber does not translate")


_USUAL_CHARACTERS = 80
"""The target vocabulary of English, special ids included."""

_USUAL_SYMBOLS = 106
"""The target vocabulary of an English treebank, special ids included."""

_CLASSIFICATION = TaskRow(
    data=ClassificationDataConfig,
    decode=NoDecodeConfig,
    module="headwise.tasks.classification.task:TEXT",
    verb="classify",
    assembly="classifier",
    inputs="headwise.tasks.classification.inputs:TEXT",
    served="headwise.tasks.classification.serving:TEXT",
    recipe="text-tiny",
    vocab=_classification_vocab,
    check=_check_classification,
)

_TRANSCRIPTION = TaskRow(
    data=ImageTranscriptionDataConfig,
    decode=DecodeConfig,
    module="headwise.tasks.transcription.task:IMAGES",
    verb="transcribe",
    assembly="seq2seq",
    inputs="headwise.tasks.transcription.inputs:IMAGES",
    served="headwise.tasks.transcription.serving:IMAGES",
    recipe="read-tiny",
    input="images",
    vocab=_line_vocab,
    check=_check_transcription,
)

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
    "classification": replace(
        _CLASSIFICATION,
        others={
            "images": replace(
                _CLASSIFICATION,
                input="images",
                data=ImageClassificationDataConfig,
                module="headwise.tasks.classification.task:IMAGES",
                inputs="headwise.tasks.classification.inputs:IMAGES",
                served="headwise.tasks.classification.serving:IMAGES",
                recipe="vit-tiny",
                vocab=_image_vocab,
            ),
            "audio": replace(
                _CLASSIFICATION,
                input="audio",
                data=AudioClassificationDataConfig,
                module="headwise.tasks.classification.task:AUDIO",
                inputs="headwise.tasks.classification.inputs:AUDIO",
                served="headwise.tasks.classification.serving:AUDIO",
                recipe="speech-tiny",
                vocab=_audio_vocab,
            ),
        },
    ),
    "transcription": replace(
        _TRANSCRIPTION,
        others={
            "audio": replace(
                _TRANSCRIPTION,
                input="audio",
                data=AudioTranscriptionDataConfig,
                module="headwise.tasks.transcription.task:AUDIO",
                inputs="headwise.tasks.transcription.inputs:AUDIO",
                served="headwise.tasks.transcription.serving:AUDIO",
                recipe="listen-tiny",
                vocab=_spoken_vocab,
            ),
        },
    ),
}


def task_row(task: object, of_input: object = TEXT) -> TaskRow:
    """Return a task's row of the table, for a value of `data.input`."""
    if not isinstance(task, str) or task not in TASKS:
        raise ConfigError(f"task = {task!r} is unknown: there is {', '.join(map(repr, TASKS))}")
    row = TASKS[task]
    if of_input in (TEXT, row.input):  # Where there is no such setting, the task's first.
        return row
    if not isinstance(of_input, str) or of_input not in row.others:
        known = ", ".join(map(repr, (row.input, *row.others)))
        raise ConfigError(f"data.input = {of_input!r} must be {known} with task = {task!r}")
    return row.others[of_input]


def task_rows() -> Iterator[tuple[str, TaskRow]]:
    """Yield every row with the name of its task, those of other inputs as well."""
    for task, row in TASKS.items():
        yield task, row
        yield from ((task, other) for other in row.others.values())

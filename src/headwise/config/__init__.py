"""Everything an experiment can vary, with the paper's base model as the defaults.

`Config` has one section for each part: task, data, model, train, decode. `TASKS` lists the tasks
and their sections; those that differ between tasks are in sections.py, classification.py and
transcription.py. An
empty recipe is the paper's base model; a recipe states only its differences. Sections are frozen,
take keywords only, and check themselves when they are made, whether by a TOML file, `--set` or
Python code.
"""

from headwise.config.classification import (
    FEWEST_CLASSES,
    AudioClassificationDataConfig,
    ClassificationDataConfig,
    ImageClassificationDataConfig,
    LabelsConfig,
)
from headwise.config.experiment import (
    FORMAT_VERSION,
    AnyConfig,
    AudioClassificationConfig,
    AudioTranscriptionConfig,
    ClassificationConfig,
    Config,
    ImageClassificationConfig,
    ImageTranscriptionConfig,
    LanguageModelConfig,
    MaskedLanguageModelConfig,
    ParsingConfig,
    all_keys,
    toml_value,
    unknown_key,
)
from headwise.config.model import CONVOLVED_FRAMES, Assembly, ModelConfig, Vocab
from headwise.config.recurrent import RecurrentConfig
from headwise.config.sections import (
    LONGEST_CONTINUATION,
    SMALLEST_VOCABULARY,
    STRONGEST_PENALTY,
    WIDEST_BEAM,
    DataConfig,
    DecodeConfig,
    GenerateConfig,
    MaskedDataConfig,
    NoDecodeConfig,
    ParsingDataConfig,
    ParsingDecodeConfig,
    TextDataConfig,
)
from headwise.config.tasks import TASKS, TEXT, Section, TaskRow, task_row, task_rows
from headwise.config.train import TrainConfig
from headwise.config.transcription import (
    AudioTranscriptionDataConfig,
    ImageTranscriptionDataConfig,
    TargetsConfig,
)
from headwise.config.vectors import FramesConfig

__all__ = [
    "CONVOLVED_FRAMES",
    "FEWEST_CLASSES",
    "FORMAT_VERSION",
    "LONGEST_CONTINUATION",
    "SMALLEST_VOCABULARY",
    "STRONGEST_PENALTY",
    "TASKS",
    "TEXT",
    "WIDEST_BEAM",
    "AnyConfig",
    "Assembly",
    "AudioClassificationConfig",
    "AudioClassificationDataConfig",
    "AudioTranscriptionConfig",
    "AudioTranscriptionDataConfig",
    "ClassificationConfig",
    "ClassificationDataConfig",
    "Config",
    "DataConfig",
    "DecodeConfig",
    "FramesConfig",
    "GenerateConfig",
    "ImageClassificationConfig",
    "ImageClassificationDataConfig",
    "ImageTranscriptionConfig",
    "ImageTranscriptionDataConfig",
    "LabelsConfig",
    "LanguageModelConfig",
    "MaskedDataConfig",
    "MaskedLanguageModelConfig",
    "ModelConfig",
    "NoDecodeConfig",
    "ParsingConfig",
    "ParsingDataConfig",
    "ParsingDecodeConfig",
    "RecurrentConfig",
    "Section",
    "TargetsConfig",
    "TaskRow",
    "TextDataConfig",
    "TrainConfig",
    "Vocab",
    "all_keys",
    "task_row",
    "task_rows",
    "toml_value",
    "unknown_key",
]

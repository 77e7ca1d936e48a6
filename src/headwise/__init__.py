"""The Transformer of "Attention Is All You Need": exact, readable, fast on CPUs.

Importing this package is cheap: torch is imported only once a name that needs it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    from headwise.config import Config, Vocab
    from headwise.data import ParallelFiles, TsvFile, prepare
    from headwise.errors import HeadwiseError
    from headwise.model import Transformer, check_batch
    from headwise.recipes import load_recipe
    from headwise.tasks.classification.classifier import Classification, Classifier
    from headwise.tasks.classification.files import LabelledFiles
    from headwise.tasks.language_model.files import TextFiles
    from headwise.tasks.language_model.generator import Generation, Generator
    from headwise.tasks.masked_language_model.filler import Filled, MaskFiller
    from headwise.tasks.parsing.files import TreeFiles
    from headwise.tasks.parsing.parser import Parse, Parser
    from headwise.tasks.transcription.files import TranscribedFiles
    from headwise.tasks.transcription.transcriber import Transcriber, Transcription
    from headwise.tasks.translation.translator import Translation, Translator
    from headwise.training import TrainingStep
    from headwise.workflows.train import train

__all__ = [
    "Classification",
    "Classifier",
    "Config",
    "Filled",
    "Generation",
    "Generator",
    "HeadwiseError",
    "LabelledFiles",
    "MaskFiller",
    "ParallelFiles",
    "Parse",
    "Parser",
    "TextFiles",
    "TrainingStep",
    "TranscribedFiles",
    "Transcriber",
    "Transcription",
    "Transformer",
    "Translation",
    "Translator",
    "TreeFiles",
    "TsvFile",
    "Vocab",
    "check_batch",
    "load_recipe",
    "prepare",
    "train",
]

_HOMES = {
    "Classification": "headwise.tasks.classification.classifier",
    "Classifier": "headwise.tasks.classification.classifier",
    "Config": "headwise.config",
    "Filled": "headwise.tasks.masked_language_model.filler",
    "Generation": "headwise.tasks.language_model.generator",
    "Generator": "headwise.tasks.language_model.generator",
    "HeadwiseError": "headwise.errors",
    "LabelledFiles": "headwise.tasks.classification.files",
    "MaskFiller": "headwise.tasks.masked_language_model.filler",
    "ParallelFiles": "headwise.data",
    "Parse": "headwise.tasks.parsing.parser",
    "Parser": "headwise.tasks.parsing.parser",
    "TextFiles": "headwise.tasks.language_model.files",
    "TrainingStep": "headwise.training",
    "TranscribedFiles": "headwise.tasks.transcription.files",
    "Transcriber": "headwise.tasks.transcription.transcriber",
    "Transcription": "headwise.tasks.transcription.transcriber",
    "Transformer": "headwise.model",
    "Translation": "headwise.tasks.translation.translator",
    "Translator": "headwise.tasks.translation.translator",
    "TreeFiles": "headwise.tasks.parsing.files",
    "TsvFile": "headwise.data",
    "Vocab": "headwise.config",
    "check_batch": "headwise.model",
    "load_recipe": "headwise.recipes",
    "prepare": "headwise.data",
    "train": "headwise.workflows.train",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'headwise' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

"""§3 of the paper, in its order: attention, layers, embeddings, positions, the whole model.

`build_model` makes a model of these parts: the paper's `Transformer`, a `LanguageModel`, or a
`SequenceClassifier`.
`Recurrent` is what the paper measures itself against.

Shapes, everywhere in this folder:

    B batch      S source length    T target length    D d_model    H heads
    K per head   F d_ff             V vocabulary       W beam

A line that changes a shape ends with the new one. Masks are True where attention is allowed.
The model knows token ids and never text; it holds no loss and no mode.
"""

from headwise.model.batch import check_aligned, check_batch
from headwise.model.build import Seq2Seq, build_model
from headwise.model.classifier import SequenceClassifier
from headwise.model.decoder import LanguageModel
from headwise.model.masks import Allowed
from headwise.model.recurrent import Recurrent, RecurrentState
from headwise.model.state import State
from headwise.model.trace import StackTrace, Trace
from headwise.model.transformer import Transformer

__all__ = [
    "Allowed",
    "LanguageModel",
    "Recurrent",
    "RecurrentState",
    "Seq2Seq",
    "SequenceClassifier",
    "StackTrace",
    "State",
    "Trace",
    "Transformer",
    "build_model",
    "check_aligned",
    "check_batch",
]

"""The one place where models are constructed."""

from typing import Literal, overload

from headwise.config import Assembly, ModelConfig, RecurrentConfig, Vocab
from headwise.model.classifier import SequenceClassifier
from headwise.model.decoder import LanguageModel
from headwise.model.masked import MaskedLanguageModel
from headwise.model.recurrent import Recurrent
from headwise.model.transformer import Transformer

Seq2Seq = Transformer | Recurrent
"""A model with a source and a target: both kinds train, search and are traced in the same way."""

AnyModel = Seq2Seq | LanguageModel | SequenceClassifier | MaskedLanguageModel


@overload
def build_model(config: ModelConfig, vocab: Vocab, assembly: Literal["seq2seq"]) -> Transformer: ...
@overload
def build_model(
    config: ModelConfig | RecurrentConfig, vocab: Vocab, assembly: Literal["seq2seq"]
) -> Seq2Seq: ...
@overload
def build_model(
    config: ModelConfig, vocab: Vocab, assembly: Literal["decoder"]
) -> LanguageModel: ...
@overload
def build_model(
    config: ModelConfig, vocab: Vocab, assembly: Literal["classifier"]
) -> SequenceClassifier: ...
@overload
def build_model(
    config: ModelConfig, vocab: Vocab, assembly: Literal["masked"]
) -> MaskedLanguageModel: ...
@overload
def build_model(
    config: ModelConfig | RecurrentConfig, vocab: Vocab, assembly: Assembly
) -> AnyModel: ...
def build_model(
    config: ModelConfig | RecurrentConfig, vocab: Vocab, assembly: Assembly
) -> AnyModel:
    """Build a model with its first weights, drawn from torch's default generator."""
    if isinstance(config, RecurrentConfig):
        assert assembly == "seq2seq", "a recurrent model has an encoder and a decoder"
        return Recurrent(config, vocab)
    if assembly == "decoder":
        return LanguageModel(config, vocab)
    if assembly == "classifier":
        return SequenceClassifier(config, vocab)
    if assembly == "masked":
        return MaskedLanguageModel(config, vocab)
    return Transformer(config, vocab)

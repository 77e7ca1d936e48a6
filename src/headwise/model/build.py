"""The one place where models are constructed."""

from typing import Literal, overload

from headwise.config import Assembly, ModelConfig, Vocab
from headwise.model.decoder import LanguageModel
from headwise.model.transformer import Transformer


@overload
def build_model(config: ModelConfig, vocab: Vocab, assembly: Literal["seq2seq"]) -> Transformer: ...
@overload
def build_model(
    config: ModelConfig, vocab: Vocab, assembly: Literal["decoder"]
) -> LanguageModel: ...
@overload
def build_model(
    config: ModelConfig, vocab: Vocab, assembly: Assembly
) -> Transformer | LanguageModel: ...
def build_model(
    config: ModelConfig, vocab: Vocab, assembly: Assembly
) -> Transformer | LanguageModel:
    """Build a model with its first weights, drawn from torch's default generator."""
    if assembly == "decoder":
        return LanguageModel(config, vocab)
    return Transformer(config, vocab)

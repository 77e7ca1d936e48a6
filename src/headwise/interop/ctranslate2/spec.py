"""A Transformer in CTranslate2's layout."""

import math
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from headwise.config import ModelConfig, RecurrentConfig, Vocab
from headwise.errors import ConfigError
from headwise.interop.ctranslate2.files import library
from headwise.model import Recurrent, Seq2Seq, Transformer
from headwise.model.attention import MultiHeadAttention
from headwise.model.layers import Layer, Stack
from headwise.model.positions import LearnedPositions, sinusoids

SINUSOIDS = 8192
"""Sinusoidal positions to store: CTranslate2's own formula differs from ours."""

_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh"}
"""CTranslate2's names of the values of `model.activation`."""

_NAMES_BYTES = 1 << 16
"""An upper bound for the names, shapes and scales of a layer of each stack."""


def require_expressible(model: Seq2Seq) -> Transformer:
    """Return the model, or raise ConfigError if CTranslate2 cannot express it."""
    if isinstance(model, Recurrent):
        raise ConfigError(
            "CTranslate2 cannot express model.kind = 'recurrent': it has Transformers only; "
            "translate with torch instead"
        )
    config = model.config
    if config.d_k != config.d_v:
        raise ConfigError(
            f"CTranslate2 cannot express model.d_k = {config.d_k} with model.d_v = {config.d_v}: "
            "its heads have one width for queries, keys and values; translate with torch instead"
        )
    if config.attention != "full":
        raise ConfigError(
            f"CTranslate2 cannot express model.attention = {config.attention!r}: its encoders "
            "attend to all positions; translate with torch instead"
        )
    if config.positions == "rotary":
        raise ConfigError(
            "CTranslate2 cannot express model.positions = 'rotary' here: it has rotations for "
            "decoders without an encoder only; translate with torch instead"
        )
    if config.aligned_input:
        raise ConfigError(
            "CTranslate2 cannot express model.aligned_input = true: its decoders read no source "
            "positions; decode with torch instead"
        )
    return model


def count_positions(model: Transformer) -> int:
    """Return the longest sequence, end token included, that the converted model can take."""
    return model.config.max_positions if model.config.positions == "learned" else SINUSOIDS


def largest_file(config: ModelConfig | RecurrentConfig, vocab: Vocab) -> int:
    """Return an upper bound for the size of a model.bin in bytes, in any quantization."""
    if isinstance(config, RecurrentConfig):
        return 0
    # The file has no tied matrices, and a table of positions on both sides.
    parameters = replace(config, tying="untied").count_parameters(vocab)
    positions = 0 if config.positions == "learned" else 2 * SINUSOIDS * config.d_model
    names = _NAMES_BYTES * (max(config.num_layers, config.num_decoder_layers) + 1)
    return 4 * (parameters + positions) + names


def make_spec(model: Transformer, source: list[str], target: list[str]) -> Any:
    """Make the specification of a model with the tokens of its two vocabularies."""
    specs = library().specs
    require_expressible(model)
    config = model.config
    heads, is_pre_norm = config.num_heads, config.norm_order == "pre"
    activation = getattr(specs.common_spec.Activation, _ACTIVATIONS[config.activation])
    spec = specs.transformer_spec.TransformerSpec(
        specs.transformer_spec.TransformerEncoderSpec(
            config.num_layers, heads, is_pre_norm, activation=activation
        ),
        specs.transformer_spec.TransformerDecoderSpec(
            config.num_decoder_layers, heads, is_pre_norm, activation=activation
        ),
    )
    _set_stack(spec.encoder, model.encoder)
    _set_stack(spec.decoder, model.decoder)
    # Whether both are scaled by sqrt(d_model) before positions are added.
    spec.encoder.scale_embeddings = config.scale_embeddings
    spec.decoder.scale_embeddings = config.scale_embeddings
    assert isinstance(model.source_embedding, nn.Embedding), "translation reads words"
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_embedding.weight)
    spec.decoder.projection.weight = _array(model.output.weight)
    for side, positions in (
        (spec.encoder, model.source_positions),
        (spec.decoder, model.target_positions),
    ):
        side.position_encodings.encodings = _array(_table(positions, config.d_model))
    spec.register_source_vocabulary(_with_other_end(source))
    spec.register_target_vocabulary(target)
    spec.config.layer_norm_epsilon = _norm_epsilon(model)
    return spec


def _with_other_end(tokens: list[str]) -> list[str]:
    """Rename the source's eos.

    CTranslate2 translates a source of only "</s>" to nothing without running the model; with
    another name, it runs the model, as we do.
    """
    end = "<end>"
    while end in tokens:
        end = f"<{end}>"
    return [*tokens[: Vocab.eos], end, *tokens[Vocab.eos + 1 :]]


def _set_stack(spec: Any, stack: Stack) -> None:
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        assert isinstance(layer, Layer)
        _set_self_attention(layer_spec.self_attention, layer.self_attention)
        _set_norm(layer_spec.self_attention.layer_norm, layer.self_attention_residual.norm)
        if layer.cross_attention is not None and layer.cross_attention_residual is not None:
            _set_cross_attention(layer_spec.attention, layer.cross_attention)
            _set_norm(layer_spec.attention.layer_norm, layer.cross_attention_residual.norm)
        inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
        _set_linear(layer_spec.ffn.linear_0, inner.weight, inner.bias)
        _set_linear(layer_spec.ffn.linear_1, outer.weight, outer.bias)
        _set_norm(layer_spec.ffn.layer_norm, layer.feed_forward_residual.norm)
    if stack.final_norm is not None:
        _set_norm(spec.layer_norm, stack.final_norm)


def _set_self_attention(spec: Any, attention: MultiHeadAttention) -> None:
    """Set queries, keys and values as one matrix; its order is ours."""
    fused, out = attention.in_projection, attention.out_projection
    _set_linear(spec.linear[0], fused.weight, fused.bias)
    _set_linear(spec.linear[1], out.weight, out.bias)
    spec.queries_scale = _scale(attention)


def _set_cross_attention(spec: Any, attention: MultiHeadAttention) -> None:
    """Set queries, and keys and values as one matrix."""
    fused, out = attention.in_projection, attention.out_projection
    queries = attention.num_heads * attention.d_k
    for linear, rows in ((spec.linear[0], slice(queries)), (spec.linear[1], slice(queries, None))):
        _set_linear(linear, fused.weight[rows], None if fused.bias is None else fused.bias[rows])
    _set_linear(spec.linear[2], out.weight, out.bias)
    spec.queries_scale = _scale(attention)


def _scale(attention: MultiHeadAttention) -> float:
    """Return 1 / sqrt(d_k), which CTranslate2 would derive from d_model / num_heads."""
    return 1 / math.sqrt(attention.d_k)


def _set_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = _array(weight)
    if bias is not None:
        spec.bias = _array(bias)


def _set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _table(positions: nn.Module, d_model: int) -> Tensor:
    if isinstance(positions, LearnedPositions):
        return positions.weight
    return sinusoids(SINUSOIDS, d_model)


def _norm_epsilon(model: Transformer) -> float:
    layer = model.encoder.layers[0]
    assert isinstance(layer, Layer)
    return float(layer.feed_forward_residual.norm.eps)


def _array(tensor: Tensor) -> Any:
    # A copy: CTranslate2 quantises in place, and the model is needed for verification.
    return tensor.detach().float().cpu().numpy().copy()

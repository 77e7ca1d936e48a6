"""torch.nn.Transformer with our weights: the same function, implemented independently.

Its layers are post-norm as the paper's; the two norms it adds after its stacks are removed, its
dropout inside attention weights and feed-forward layers is switched off, and embeddings, scale,
positions and the tied output are put around it.
"""

import math

import torch
from torch import Tensor, nn

from headwise.model import Transformer
from headwise.model.layers import Layer
from headwise.model.positions import sinusoids

_EPSILON = 1e-6


class TorchTwin(nn.Module):
    def __init__(self, ours: Transformer) -> None:
        super().__init__()
        config = ours.config
        assert config.tying == "three-way"
        assert config.d_k == config.d_v == config.d_model // config.num_heads
        self.embedding = nn.Embedding(ours.vocab.target_size, config.d_model)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_layers,
            config.num_layers,
            config.d_ff,
            dropout=0.0,
            batch_first=True,
            norm_first=config.norm_order == "pre",
            layer_norm_eps=_EPSILON,
        )
        if config.norm_order == "post":
            self.transformer.encoder.norm = None
            self.transformer.decoder.norm = None
        self.pad = ours.vocab.pad
        self.load_state_dict(translated(ours))

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        length = tgt_in.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).triu(1)
        hidden = self.transformer(
            self.embed(src),
            self.embed(tgt_in),
            tgt_mask=causal,
            src_key_padding_mask=src == self.pad,
            memory_key_padding_mask=src == self.pad,
        )
        return nn.functional.linear(hidden, self.embedding.weight)

    def embed(self, ids: Tensor) -> Tensor:
        width = self.embedding.weight.shape[1]
        positions = sinusoids(ids.shape[1], width).to(self.embedding.weight.dtype)
        embedded: Tensor = self.embedding(ids) * math.sqrt(width) + positions
        return embedded


def translated(ours: Transformer) -> dict[str, Tensor]:
    """Return our weights under torch's names."""
    weights: dict[str, Tensor] = {"embedding.weight": ours.output.weight}
    for side, stack in (("encoder", ours.encoder), ("decoder", ours.decoder)):
        for number, layer in enumerate(stack.layers):
            assert isinstance(layer, Layer)
            there = f"transformer.{side}.layers.{number}"
            attentions = [("self_attn", layer.self_attention)]
            residuals = [layer.self_attention_residual]
            if layer.cross_attention is not None and layer.cross_attention_residual is not None:
                attentions.append(("multihead_attn", layer.cross_attention))
                residuals.append(layer.cross_attention_residual)
            residuals.append(layer.feed_forward_residual)
            for name, attention in attentions:
                weights[f"{there}.{name}.in_proj_weight"] = attention.in_projection.weight
                weights[f"{there}.{name}.in_proj_bias"] = attention.in_projection.bias
                weights[f"{there}.{name}.out_proj.weight"] = attention.out_projection.weight
                weights[f"{there}.{name}.out_proj.bias"] = attention.out_projection.bias
            for position, linear in ((1, layer.feed_forward.inner), (2, layer.feed_forward.outer)):
                weights[f"{there}.linear{position}.weight"] = linear.weight
                weights[f"{there}.linear{position}.bias"] = linear.bias
            for position, residual in enumerate(residuals, 1):
                weights[f"{there}.norm{position}.weight"] = residual.norm.weight
                weights[f"{there}.norm{position}.bias"] = residual.norm.bias
        if stack.final_norm is not None:
            weights[f"transformer.{side}.norm.weight"] = stack.final_norm.weight
            weights[f"transformer.{side}.norm.bias"] = stack.final_norm.bias
    return {name: weight.detach().clone() for name, weight in weights.items()}

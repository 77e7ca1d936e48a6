"""A plain PyTorch baseline: torch.nn.Transformer, logits of all tokens, F.cross_entropy.

It computes the same function as our model: dropout only where the paper has it, no extra norms, and
masks only if there is padding.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.config import ModelConfig, Vocab
from headwise.model.positions import sinusoids


class PlainTorchStep(nn.Module):
    positions: Tensor
    causal: Tensor

    def __init__(self, config: ModelConfig, vocab_size: int, length: int, smoothing: float) -> None:
        super().__init__()
        self.smoothing = smoothing
        self.scale = math.sqrt(config.d_model)
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_layers,
            config.num_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        self.transformer.encoder.norm = None
        self.transformer.decoder.norm = None
        for layer in (*self.transformer.encoder.layers, *self.transformer.decoder.layers):
            layer.self_attn.dropout = 0.0
            layer.dropout.p = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("positions", sinusoids(length, config.d_model).float())
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(length))

    def embed(self, ids: Tensor) -> Tensor:
        positions = self.positions[: ids.shape[1]]
        embedded: Tensor = self.dropout(self.embedding(ids) * self.scale + positions)
        return embedded

    def forward(self, src: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> Tensor:
        padded = src == Vocab.pad
        mask = padded if bool(padded.any()) else None
        length = tgt_in.shape[1]
        hidden = self.transformer(
            self.embed(src),
            self.embed(tgt_in),
            tgt_mask=self.causal[:length, :length],
            tgt_is_causal=True,
            src_key_padding_mask=mask,
            memory_key_padding_mask=mask,
        )
        logits = F.linear(hidden, self.embedding.weight)
        size = logits.shape[-1]
        return F.cross_entropy(
            logits.flatten(0, 1),
            tgt_out.flatten(),
            ignore_index=Vocab.pad,
            label_smoothing=self.smoothing * size / (size - 1),
        )


def torch_adam(parameters: Iterable[Tensor]) -> torch.optim.Adam:
    return torch.optim.Adam(parameters, lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)


@contextmanager
def torchs_own_products() -> Iterator[None]:
    """Let torch choose the library for float32 products inside, as it does for everybody else."""
    setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, setting.fp32_precision = setting.fp32_precision, "none"
    try:
        yield
    finally:
        setting.fp32_precision = before

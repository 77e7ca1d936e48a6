"""Our rotation of queries and keys is that of transformers' Llama."""

import pytest
import torch

from headwise.model.positions import rotate, rotations

transformers = pytest.importorskip("transformers", reason="`make peers` installs transformers")


def test_a_rotation_is_llamas() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    heads, d_k, length = 3, 14, 53
    config = transformers.LlamaConfig(
        hidden_size=heads * d_k, num_attention_heads=heads, head_dim=d_k
    )
    generator = torch.Generator().manual_seed(1)
    queries, keys = torch.randn(2, 2, heads, length, d_k, generator=generator)
    cosines, sines = llama.LlamaRotaryEmbedding(config)(queries, torch.arange(length)[None])
    expected = llama.apply_rotary_pos_emb(queries, keys, cosines, sines)
    table = rotations(length, d_k).float()
    for ours, theirs in zip((queries, keys), expected, strict=True):
        # Their angles are in single precision.
        torch.testing.assert_close(rotate(ours, table), theirs, rtol=0, atol=1e-5)

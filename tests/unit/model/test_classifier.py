"""The encoder alone, pooled to a class."""

from collections.abc import Callable

import pytest
import torch

from headwise.config import ModelConfig, Vocab
from headwise.model import SequenceClassifier, Trace, Transformer
from headwise.model.classifier import class_probabilities
from tests.conftest import make_batch, model_config

VOCAB = Vocab(source_size=23, target_size=3)

Variant = dict[str, object]
VARIANTS: list[Variant] = [
    {},
    {"pooling": "mean"},
    {"norm_order": "pre", "pooling": "mean", "positions": "learned"},
    {"positions": "rotary", "d_k": 6, "activation": "gelu"},
    {"attention": "window", "window": 5, "pooling": "mean"},
]


def build(**changes: object) -> SequenceClassifier:
    torch.manual_seed(7)
    return SequenceClassifier(model_config(**changes), VOCAB)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_is_the_transformers_encoder_pooled(variant: Variant) -> None:
    model = build(**variant).eval()
    other = {key: value for key, value in variant.items() if key != "pooling"}
    whole = Transformer(model_config(**other), Vocab.shared(23)).eval()
    shared = {name: weights for name, weights in model.state_dict().items() if "head" not in name}
    missing = whole.load_state_dict(shared, strict=False)
    assert not missing.unexpected_keys
    src = make_batch()[0]
    src[2, 6:] = VOCAB.pad
    trace = Trace()
    scores = model(src, (src != VOCAB.pad).sum(1), trace=trace)
    seen: list[torch.Tensor] = []
    whole.encoder.register_forward_hook(lambda *args: seen.append(args[2][0]))
    for row in range(len(src)):
        ids = src[row][src[row] != VOCAB.pad][None]
        whole.hidden(ids, torch.tensor([[VOCAB.bos]]))
        vector = seen[row][0] if model.config.pooling == "class-token" else seen[row].mean(0)
        torch.testing.assert_close(model.head(vector), scores[row], rtol=0, atol=1e-12)
    assert [tuple(layer.shape) for layer in trace.encoder.self_attention] == [(5, 3, 11, 11)] * 2


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("attention_bias", [True, False])
def test_the_parameter_count_is_the_models(variant: Variant, attention_bias: bool) -> None:
    model = build(attention_bias=attention_bias, **variant)
    found = sum(parameter.numel() for parameter in model.parameters())
    assert model.config.count_parameters(VOCAB, "classifier") == found


@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_and_neighbours_change_no_score(variant: Variant) -> None:
    model = build(**variant).eval()
    src = make_batch()[0]
    alone = model(src[:1])
    longer = torch.cat((src, torch.full((5, 7), VOCAB.pad)), 1)
    longer[1:] = 5
    lengths = torch.tensor([src.shape[1], *[longer.shape[1]] * 4])
    torch.testing.assert_close(model(longer, lengths)[:1], alone, rtol=0, atol=1e-5)


def test_the_first_loss_is_near_chance() -> None:
    model = build(d_model=64, d_ff=128, num_heads=4, d_k=16, d_v=16).eval()
    scores = model(make_batch(rows=50)[0])
    assert float(scores.detach().std()) < 2
    assert float(model.head.bias.detach().abs().max()) == 0


def test_probabilities_sum_to_one_unless_labels_are_several() -> None:
    scores = torch.randn(7, 5, generator=torch.Generator().manual_seed(1)) * 30
    one = class_probabilities(scores, is_multi_label=False)
    assert torch.allclose(one.sum(1), torch.ones(7, dtype=torch.float64), rtol=0, atol=1e-12)
    several = class_probabilities(scores, is_multi_label=True)
    torch.testing.assert_close(several, 1 / (1 + (-scores.double()).exp()))


def test_the_encoder_has_the_names_of_the_transformers(build: Callable[..., Transformer]) -> None:
    names = set(build().state_dict())
    assert {name for name in _classifier_names() if not name.startswith("head.")} <= names


def _classifier_names() -> set[str]:
    config: ModelConfig = model_config()
    return set(SequenceClassifier(config, VOCAB).state_dict())

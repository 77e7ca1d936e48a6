"""What BERT adds to the input of an encoder alone: a norm, and vectors of token types."""

import pytest
import torch
from torch import Tensor

from headwise.config import Assembly, Config, ModelConfig, Vocab
from headwise.errors import ConfigError
from headwise.model import SequenceClassifier, build_model
from headwise.model.masked import MaskedLanguageModel
from headwise.model.positions import LearnedPositions
from tests.conftest import make_batch, model_config

IDS = Vocab(source_size=23, target_size=3)
VECTORS = Vocab.of_vectors(width=13, target_size=3)
TEXT = Vocab.shared(23)

Changes = dict[str, object]
OPTIONS: list[Changes] = [
    {"embedding_norm": True},
    {"token_types": 2},
    {"embedding_norm": True, "token_types": 3, "positions": "learned", "max_positions": 31},
]
POSITIONS: list[Changes] = [
    {},
    {"positions": "learned", "max_positions": 31},
    {"positions": "rotary", "d_k": 6},
    {"scale_embeddings": False},
]


def build(vocab: Vocab, **changes: object) -> SequenceClassifier:
    """Make a classifier in which norms are not the identity."""
    torch.manual_seed(7)
    model = SequenceClassifier(model_config(**changes), vocab)
    with torch.no_grad():
        if model.source_norm is not None:
            model.source_norm.weight.normal_()
            model.source_norm.bias.normal_()
    return model.eval()


def source(vocab: Vocab) -> Tensor:
    """Draw sources of 11 positions, the class token among them."""
    if not vocab.source_width:
        return make_batch()[0]
    return torch.randn(5, 10, vocab.source_width, generator=torch.Generator().manual_seed(3))


def read_by_encoder(model: SequenceClassifier, src: Tensor) -> Tensor:
    """Return what enters the first layer [B, S, D]."""
    seen: list[Tensor] = []
    handle = model.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model(src)
    handle.remove()
    (x,) = seen
    return x


def summed(model: SequenceClassifier, src: Tensor) -> Tensor:
    """Add embeddings and positions by hand [B, S, D]."""
    config, is_text = model.config, isinstance(model.source_embedding, torch.nn.Embedding)
    embedded: Tensor = model.source_embedding(src)
    if is_text and config.scale_embeddings:
        embedded = embedded * config.d_model**0.5
    if config.positions == "rotary":
        return embedded
    positions: Tensor = model.source_positions(0, embedded.shape[1])
    return embedded + positions


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("vocab", [IDS, VECTORS], ids=["ids", "vectors"])
@pytest.mark.parametrize("changes", POSITIONS)
@pytest.mark.parametrize("token_types", [0, 2])
def test_the_norm_is_torchs_on_the_sum(vocab: Vocab, changes: Changes, token_types: int) -> None:
    changes = {**changes, "token_types": token_types, "norm_epsilon": 1e-3}
    model, src = build(vocab, embedding_norm=True, **changes), source(vocab)
    norm = torch.nn.LayerNorm(14, eps=1e-3)
    assert model.source_norm is not None
    norm.load_state_dict(model.source_norm.state_dict())
    expected = summed(model, src)
    if model.source_types is not None:
        expected = expected + model.source_types.weight[0]
    torch.testing.assert_close(read_by_encoder(model, src), norm(expected), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("vocab", [IDS, VECTORS], ids=["ids", "vectors"])
@pytest.mark.parametrize("changes", POSITIONS)
def test_the_first_type_is_added_to_every_position(vocab: Vocab, changes: Changes) -> None:
    model, src = build(vocab, token_types=2, **changes), source(vocab)
    assert model.source_types is not None
    first = model.source_types(torch.zeros(5, 11, dtype=torch.long))
    expected = summed(model, src) + first
    torch.testing.assert_close(read_by_encoder(model, src), expected, rtol=0, atol=1e-12)


def test_what_is_normalised_is_dropped_afterwards() -> None:
    model, src = build(IDS, embedding_norm=True, dropout=0.25), source(IDS)
    normalised = read_by_encoder(model, src)
    dropped = read_by_encoder(model.train(), src)
    is_kept = dropped != 0
    assert 0.15 < 1 - float(is_kept.float().mean()) < 0.35
    torch.testing.assert_close(dropped[is_kept], normalised[is_kept] / 0.75, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("norm_order", ["post", "pre"])
@pytest.mark.parametrize(
    ("assembly", "vocab"), [("classifier", IDS), ("classifier", VECTORS), ("masked", TEXT)]
)
def test_the_parameter_count_is_the_models(
    options: Changes, norm_order: str, assembly: Assembly, vocab: Vocab
) -> None:
    config = model_config(norm_order=norm_order, **options)
    model = build_model(config, vocab, assembly)
    found = sum(parameter.numel() for parameter in model.parameters())
    assert config.count_parameters(vocab, assembly) == found
    assert found > model_config(norm_order=norm_order).count_parameters(vocab, assembly)


@pytest.mark.parametrize("assembly", ["seq2seq", "decoder"])
def test_models_with_a_decoder_do_not_have_them(assembly: Assembly) -> None:
    config = model_config(embedding_norm=True, token_types=2)
    assert config.count_parameters(TEXT, assembly) == model_config().count_parameters(
        TEXT, assembly
    )


def test_only_models_with_the_options_have_their_tensors() -> None:
    plain = set(SequenceClassifier(model_config(), IDS).state_dict())
    both = set(build(IDS, embedding_norm=True, token_types=2).state_dict())
    assert both - plain == {"source_types.weight", "source_norm.weight", "source_norm.bias"}
    assert plain < both


def test_a_classifier_starts_from_a_masked_models_norm_and_types() -> None:
    torch.manual_seed(1)
    config = model_config(
        embedding_norm=True, token_types=2, positions="learned", max_positions=31, pooling="mean"
    )
    masked = MaskedLanguageModel(config, TEXT).eval()
    assert masked.source_norm is not None
    torch.nn.init.normal_(masked.source_norm.bias)
    classifier = SequenceClassifier(config, IDS).eval()
    weights = masked.state_dict()
    del weights["output.weight"]
    missing = classifier.load_state_dict(weights, strict=False)
    assert (missing.unexpected_keys, missing.missing_keys) == ([], ["head.weight", "head.bias"])
    assert isinstance(classifier.source_positions, LearnedPositions)
    src = make_batch()[0]
    torch.testing.assert_close(classifier.pooled(src), masked.hidden(src).mean(1))


def test_the_first_type_learns_and_the_others_stay() -> None:
    model, src = build(IDS, embedding_norm=True, token_types=3), source(IDS)
    model(src).square().sum().backward()
    assert model.source_types is not None
    assert model.source_norm is not None
    for parameter in (model.source_norm.weight, model.source_norm.bias):
        assert parameter.grad is not None
        assert bool(parameter.grad.abs().min() > 0)
    gradient = model.source_types.weight.grad
    assert gradient is not None
    assert bool(gradient[0].abs().min() > 0)
    assert bool((gradient[1:] == 0).all())


@pytest.mark.parametrize("task", ["translation", "parsing", "language-model"])
@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("embedding_norm", True, r"model\.embedding_norm = true must be false"),
        ("token_types", 2, r"model\.token_types = 2 must be 0"),
    ],
)
def test_a_model_with_a_decoder_is_refused(
    task: str, key: str, value: object, complaint: str
) -> None:
    tying = "two-way" if task == "parsing" else "three-way"
    tables = {"task": task, "model": {"tying": tying}}
    assert Config.from_dict(tables).task == task
    with pytest.raises(ConfigError, match=rf"{complaint} with task = '{task}'.*: leave it out"):
        Config.from_dict({"task": task, "model": {"tying": tying, key: value}})


@pytest.mark.parametrize(
    "tables",
    [
        {"task": "masked-language-model"},
        {"task": "classification"},
        {"task": "classification", "data": {"input": "images"}},
        {"task": "classification", "data": {"input": "audio"}},
    ],
)
def test_encoders_alone_take_them(tables: dict[str, object]) -> None:
    config = Config.from_dict({**tables, "model": {"embedding_norm": True, "token_types": 2}})
    model = ModelConfig(embedding_norm=True, token_types=2)
    assert config.model == model


def test_types_are_counted_from_0() -> None:
    with pytest.raises(ConfigError, match=r"model\.token_types = -1 must be a number, 0 or more"):
        ModelConfig(token_types=-1)

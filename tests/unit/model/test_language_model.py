"""The decoder-only model: cached generation against full recomputation of each row alone."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.decoding import SamplingSettings, SearchSettings, beam_search, sample
from headwise.errors import DataError
from headwise.model import LanguageModel, State, Trace, Transformer, build_model
from headwise.model.layers import FeedForward
from tests import reference
from tests.conftest import VOCAB, model_config

Build = Callable[..., LanguageModel]

GPT2: dict[str, object] = {
    "norm_order": "pre",
    "activation": "gelu_tanh",
    "norm_epsilon": 1e-5,
    "positions": "learned",
    "scale_embeddings": False,
}
VARIANTS: list[dict[str, object]] = [
    {},
    {"norm_order": "pre"},
    {"positions": "learned", "max_positions": 64},
    {"positions": "rotary", "d_k": 6},
    {"activation": "gelu", "tying": "untied"},
    GPT2,
    {"attention": "window", "window": 5},
]


@pytest.fixture
def build_lm() -> Build:
    """Return a function that builds a small seeded model whose norms and biases all differ."""

    def make(**changes: object) -> LanguageModel:
        torch.manual_seed(7)
        model = build_model(model_config(**changes), VOCAB, "decoder").eval()
        for parameter in model.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        return model

    return make


def make_ids(*shape: int, seed: int = 3) -> Tensor:
    return torch.randint(23, shape, generator=torch.Generator().manual_seed(seed))


def alone(model: LanguageModel, ids: list[int]) -> Tensor:
    """Recompute a sequence from its beginning; return the logits of its next token."""
    logits: Tensor = model(torch.tensor([ids]))[0, -1]
    return logits


@pytest.mark.parametrize("tying", ["three-way", "two-way", "untied"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_the_parameter_count_is_the_language_models(
    tying: str, positions: str, norm_order: str
) -> None:
    config = model_config(tying=tying, positions=positions, norm_order=norm_order, d_k=6)
    with torch.device("meta"):
        model = build_model(config, VOCAB, "decoder")
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert config.count_parameters(VOCAB, "decoder") == counted


def test_shapes_and_names(build_lm: Build) -> None:
    model = build_lm(positions="learned", norm_order="pre")
    ids = make_ids(5, 11)
    assert model.hidden(ids).shape == (5, 11, 14)
    assert model(ids).shape == (5, 11, 23)
    logits, _ = model.step(ids[:, -1], model.start(ids))
    assert logits.shape == (5, 23)
    assert not logits.requires_grad
    outside = [name for name, _ in model.named_parameters() if not name.startswith("decoder.layer")]
    assert outside == [
        "embedding.weight",
        "positions.weight",
        "decoder.final_norm.weight",
        "decoder.final_norm.bias",
    ]
    assert model.output.weight is model.embedding.weight
    untied = build_lm(tying="untied")
    assert "output.weight" in dict(untied.named_parameters())
    assert untied.output.weight is not untied.embedding.weight


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("length", [1, 37, 60])  # The cache's first room is 64.
def test_cached_generation_equals_recomputation(
    build_lm: Build, variant: dict[str, object], length: int
) -> None:
    model, ids = build_lm(**(variant | {"max_positions": 128})), make_ids(3, 80)
    full = model(ids)
    state = model.start(ids[:, :length])
    for position in range(length - 1, ids.shape[1]):
        logits, state = model.step(ids[:, position], state)
        torch.testing.assert_close(logits, full[:, position], rtol=0, atol=1e-10)
    assert state.length == ids.shape[1]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("lengths", [(5, 1, 9, 3), (1, 1, 1, 1), (40, 2, 7, 40)])
def test_prompts_of_different_lengths_are_each_continued_as_if_alone(
    build_lm: Build, variant: dict[str, object], lengths: tuple[int, ...]
) -> None:
    """Reorder, repeat and drop rows on the way, as a beam does."""
    model = build_lm(**variant)
    prompts = make_ids(4, max(lengths))  # Padding is whatever happens to be there.
    rows = [prompts[row, :length].tolist() for row, length in enumerate(lengths)]
    state = model.start(prompts, torch.tensor(lengths))
    generator = torch.Generator().manual_seed(5)
    for step in range(20):
        logits, state = model.step(torch.tensor([row[-1] for row in rows]), state)
        for row, found in zip(rows, logits, strict=True):
            torch.testing.assert_close(found, alone(model, row), rtol=0, atol=1e-10)
        if step in (3, 8, 9):
            count = 6 if step == 3 else 3
            chosen = torch.randint(len(rows), (count,), generator=generator)
            state, rows = state.select(chosen), [rows[row] for row in chosen.tolist()]
        tokens = torch.randint(23, (len(rows),), generator=generator).tolist()
        rows = [[*row, token] for row, token in zip(rows, tokens, strict=True)]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(
    "variant", [{}, GPT2 | {"max_positions": 90}, {"attention": "window", "window": 4}]
)
def test_prompts_take_the_places_of_others(
    build_lm: Build, variant: dict[str, object], width: int
) -> None:
    """A new prompt may be shorter or longer than what is there, or come before the first step."""
    model = build_lm(**variant)
    generator = torch.Generator().manual_seed(5)

    def draw(count: int) -> list[int]:
        return torch.randint(23, (count,), generator=generator).tolist()

    def started(*lengths: int) -> tuple[State, list[list[list[int]]]]:
        prompts = [draw(length) for length in lengths]
        padded = [ids + draw(max(lengths) - len(ids)) for ids in prompts]
        state = model.start(torch.tensor(padded), torch.tensor(lengths))
        rows = torch.arange(len(lengths)).repeat_interleave(width)
        return state.select(rows, width), [[ids] * width for ids in prompts]

    state, beams = started(4, 1, 6)
    arrivals = {0: (1, 1), 2: (0, 30), 5: (1, 2), 6: (2, 70), 9: (0, 1)}
    for step in range(14):
        if step in arrivals:
            place, length = arrivals[step]
            other, (beams[place],) = started(length)
            state = state.replace(torch.tensor([place]), other)
        fed = torch.tensor([row[-1] for beam in beams for row in beam])
        logits, state = model.step(fed, state)
        for number, row in enumerate(row for beam in beams for row in beam):
            torch.testing.assert_close(logits[number], alone(model, row), rtol=0, atol=1e-10)
        parents = torch.randint(width, (3, width), generator=generator)
        state = state.select((parents + torch.arange(3)[:, None] * width).flatten(), width)
        beams = [
            [[*beam[parent], *draw(1)] for parent in followed]
            for beam, followed in zip(beams, parents.tolist(), strict=True)
        ]


def test_a_replaced_state_that_was_never_stepped(build_lm: Build) -> None:
    """Both caches are empty, or only the first."""
    model = build_lm()
    for prompt in ([5], [5, 6, 7]):
        state = model.start(torch.tensor([[3], [4]]))
        state = state.replace(torch.tensor([1]), model.start(torch.tensor([prompt])))
        logits, _ = model.step(torch.tensor([3, prompt[-1]]), state)
        torch.testing.assert_close(logits[0], alone(model, [3]), rtol=0, atol=1e-5)
        torch.testing.assert_close(logits[1], alone(model, prompt), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("double")
def test_a_full_context_is_continued_from_its_last_half(build_lm: Build) -> None:
    model = build_lm(positions="learned", max_positions=12)
    ids = make_ids(2, 12)
    state = model.start(ids)
    _, state = model.step(ids[:, -1], state)
    with pytest.raises(DataError, match="a sequence of 13 tokens is longer than the 12 positions"):
        model.step(ids[:, -1], state)
    half = torch.cat((ids[:, -6:], ids[:, :1]), 1)
    logits, _ = model.step(half[:, -1], model.start(half))
    torch.testing.assert_close(logits, model(half)[:, -1], rtol=0, atol=1e-10)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_later_id_changes_no_earlier_logit(build_lm: Build, variant: dict[str, object]) -> None:
    model, ids = build_lm(**variant), make_ids(3, 19)
    before = model(ids)
    changed = ids.clone()
    changed[:, 7:] = (ids[:, 7:] + 1) % 23
    after = model(changed)
    assert torch.equal(after[:, :7], before[:, :7])
    assert (after[:, 7:] != before[:, 7:]).any(dim=-1).all()


@pytest.mark.usefixtures("double")
def test_search_and_sampling_take_prompts(build_lm: Build) -> None:
    model = build_lm(**GPT2)
    prompts = [[5, 6, 7], [8], [9, 10]]
    lengths = torch.tensor([3, 1, 2])
    padded = torch.tensor([ids + [0] * (3 - len(ids)) for ids in prompts])
    first, limits = torch.tensor([7, 8, 10]), torch.tensor([6, 6, 6])
    greedy = SearchSettings(beam=1, stop="count")
    found = beam_search(model.step, model.start(padded, lengths), first, limits, greedy, VOCAB)
    drawn = sample(
        model.step,
        model.start(padded, lengths),
        first,
        limits,
        [(1,), (2,), (3,)],
        SamplingSettings(top_k=1),
        VOCAB,
    )
    wide = SearchSettings(beam=3)
    together = beam_search(model.step, model.start(padded, lengths), first, limits, wide, VOCAB)
    for number, prompt in enumerate(prompts):
        ids = list(prompt)
        while len(ids) < len(prompt) + 6:
            logits = alone(model, ids)
            logits[[VOCAB.pad, VOCAB.bos]] = -math.inf
            if (token := int(logits.argmax())) == VOCAB.eos:
                break
            ids.append(token)
        assert list(found[number][0].ids) == list(drawn[number].ids) == ids[len(prompt) :]
        (single,) = beam_search(
            model.step,
            model.start(torch.tensor([prompt])),
            first[number : number + 1],
            limits[:1],
            wide,
            VOCAB,
        )
        assert single[0].ids == together[number][0].ids
        assert single[0].log_prob == pytest.approx(together[number][0].log_prob, abs=1e-10)


def test_a_trace_records_self_attention_only(build_lm: Build) -> None:
    model, ids, trace = build_lm(), make_ids(2, 11), Trace()
    traced = model.hidden(ids, trace)
    torch.testing.assert_close(traced, model.hidden(ids), rtol=0, atol=1e-5)
    assert [weights.shape for weights in trace.decoder.self_attention] == [(2, 3, 11, 11)] * 2
    for weights in trace.decoder.self_attention:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 11))
        assert (weights.triu(1) == 0).all()
    assert trace.decoder.cross_attention == []
    assert trace.encoder.self_attention == []


def test_decoding_needs_eval(build_lm: Build) -> None:
    model, ids = build_lm(), make_ids(2, 3)
    state = model.start(ids)
    model.train()
    with pytest.raises(AssertionError, match="call eval"):
        model.start(ids)
    with pytest.raises(AssertionError, match="call eval"):
        model.step(ids[:, -1], state)


def test_embeddings_are_scaled_unless_switched_off(build_lm: Build) -> None:
    for scale, factor in ((True, math.sqrt(14)), (False, 1.0)):
        model, ids = build_lm(scale_embeddings=scale), make_ids(2, 11)
        seen: list[Tensor] = []
        model.decoder.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0]))
        model.hidden(ids)
        positions = np.stack([reference.positional_encoding(p, 14) for p in range(11)])
        expected = model.embedding(ids).detach().numpy() * factor + positions
        np.testing.assert_allclose(seen[0].detach().numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh"])
def test_the_activation_is_its_formula(activation: str) -> None:
    torch.manual_seed(0)
    layer = FeedForward(model_config(activation=activation)).double()
    x = torch.randn(2, 3, 14, dtype=torch.float64)
    w1, b1 = (p.detach().numpy() for p in layer.inner.parameters())
    w2, b2 = (p.detach().numpy() for p in layer.outer.parameters())
    inner = x.numpy() @ w1.T + b1
    normal = 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
    near = np.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3))
    expected = {
        "relu": np.maximum(0, inner),
        "gelu": inner * normal,
        "gelu_tanh": 0.5 * inner * (1 + near),
    }[activation]
    np.testing.assert_allclose(layer(x).detach().numpy(), expected @ w2.T + b2, atol=1e-12)
    parameters = tuple(layer.parameters())
    assert torch.autograd.gradcheck(lambda y, *_: layer(y), (x.requires_grad_(), *parameters))


def test_building_chooses_the_assembly() -> None:
    config, vocab = model_config(tying="untied"), Vocab(source_size=19, target_size=23)
    assert isinstance(build_model(config, vocab, "seq2seq"), Transformer)
    model = build_model(config, vocab, "decoder")
    assert isinstance(model, LanguageModel)
    assert model.embedding.weight.shape == model.output.weight.shape == (23, 14)

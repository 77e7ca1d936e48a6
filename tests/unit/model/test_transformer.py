import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from headwise.config import Config, ModelConfig, Vocab
from headwise.errors import ConfigError, DataError
from headwise.model import Allowed, State, Trace, Transformer
from headwise.model.cache import KeyValueCache
from headwise.model.dropout import dropout
from headwise.model.layers import FeedForward, Layer, Residual, Stack
from headwise.model.positions import LearnedPositions
from headwise.training import TrainingStep
from tests import reference
from tests.conftest import VOCAB, make_batch, model_config

Build = Callable[..., Transformer]


def layers(stack: Stack) -> list[Layer]:
    found = [layer for layer in stack.layers if isinstance(layer, Layer)]
    assert len(found) == len(stack.layers)
    return found


def learned(positions: nn.Module) -> nn.Parameter:
    """Return the table of learned positions."""
    assert isinstance(positions, LearnedPositions)
    return positions.weight


VARIANTS: list[dict[str, object]] = [
    {},
    {"norm_order": "pre"},
    {"positions": "learned"},
    {"positions": "rotary", "d_k": 6},
    {"num_decoder_layers": 1},
    {"num_decoder_layers": 3},
    {"activation": "gelu", "norm_epsilon": 1e-2},
    {"activation": "gelu_tanh", "scale_embeddings": False},
    {"attention_bias": False},
    {"d_k": 4, "d_v": 6},
    {"attention": "window", "window": 4},
]


@pytest.mark.parametrize("tying", ["two-way", "untied"])
def test_shapes(build: Build, tying: str) -> None:
    model = build(Vocab(source_size=19, target_size=23), tying=tying).eval()
    src, tgt_in, _ = make_batch(vocab=model.vocab)
    assert model.hidden(src, tgt_in).shape == (5, 13, 14)
    assert model(src, tgt_in).shape == (5, 13, 23)
    logits, _ = model.step(tgt_in[:, 0], model.start(src))
    assert logits.shape == (5, 23)
    assert not logits.requires_grad


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_changes_nothing(build: Build, variant: dict[str, object]) -> None:
    model = build(**variant)
    src, tgt_in, _ = make_batch()
    alone = model(src[:1], tgt_in[:1])
    padded_src = torch.cat((src, torch.full((5, 7), VOCAB.pad)), dim=1)
    padded_src[1:] = 5  # neighbours that are longer
    padded_tgt = torch.cat((tgt_in, torch.full((5, 3), VOCAB.pad)), dim=1)
    among = model(padded_src, padded_tgt)[:1, : tgt_in.shape[1]]
    torch.testing.assert_close(among, alone, rtol=0, atol=1e-12)
    model.float()
    single = model(padded_src, padded_tgt)[:1, : tgt_in.shape[1]]
    torch.testing.assert_close(single, alone.float(), rtol=0, atol=1e-5)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_future_changes_no_past_logit(build: Build, variant: dict[str, object]) -> None:
    model = build(**variant)
    src, tgt_in, _ = make_batch()
    before = model(src, tgt_in)
    changed = tgt_in.clone()
    changed[:, 7:] = 4 + (tgt_in[:, 7:] - 3) % 19
    after = model(src, changed)
    torch.testing.assert_close(after[:, :7], before[:, :7], rtol=0, atol=0)
    assert (after[:, 7:] != before[:, 7:]).any(dim=-1).all()


def test_every_source_token_matters(build: Build) -> None:
    model = build()
    src, tgt_in, _ = make_batch(rows=1)
    before = model(src, tgt_in)
    for position in range(src.shape[1]):
        changed = src.clone()
        changed[0, position] = 22 if src[0, position] != 22 else 21
        assert not torch.allclose(model(changed, tgt_in), before)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
def test_cached_decoding_equals_full_decoding(build: Build, variant: dict[str, object]) -> None:
    model = build(**variant).eval()
    for parameter in model.parameters():  # At first all norms are alike, and biases are zero.
        parameter.data += 0.1 * torch.randn_like(parameter)
    src, tgt_in, _ = make_batch(target=37)  # beyond the cache's first room
    src[2, 6:] = VOCAB.pad
    full = model(src, tgt_in)
    state = model.start(src)
    for position in range(tgt_in.shape[1]):
        logits, state = model.step(tgt_in[:, position], state)
        torch.testing.assert_close(logits, full[:, position], rtol=0, atol=1e-12)
    assert state.length == tgt_in.shape[1]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("padded", [False, True])
def test_a_selected_state_goes_on_as_its_rows(build: Build, padded: bool) -> None:
    """Reorder, repeat and drop rows in mid-sentence, as a beam does."""
    model = build().eval()
    src, tgt_in, _ = make_batch()
    if padded:
        src[2, 6:] = VOCAB.pad
    rows = torch.tensor([2, 2, 0, 4])
    full = model(src[rows], tgt_in[rows])
    state = model.start(src)
    for position in range(3):
        _, state = model.step(tgt_in[:, position], state)
    state = state.select(rows)
    for position in range(3, tgt_in.shape[1]):
        logits, state = model.step(tgt_in[rows, position], state)
        torch.testing.assert_close(logits, full[:, position], rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("padded", [False, True])
def test_rows_that_share_a_source_see_their_own_past_alone(build: Build, padded: bool) -> None:
    """As in a beam, every row continues some row of its source, and sources leave."""
    model = build().eval()
    src = make_batch()[0]
    if padded:
        src[2, 6:] = VOCAB.pad
    generator = torch.Generator().manual_seed(3)

    def numbers(high: int, count: int) -> torch.Tensor:
        return torch.randint(high, (count,), generator=generator)

    sources, width = torch.arange(src.shape[0]), 3
    tokens = torch.full((src.shape[0], 1), VOCAB.bos)
    state = model.start(src)
    for position in range(20):  # beyond the cache's first room
        logits, state = model.step(tokens[:, -1], state)
        full = model(src[sources], tokens)[:, -1]
        torch.testing.assert_close(logits, full, rtol=0, atol=1e-12)
        before = 1 if position == 0 else width
        staying = torch.arange(tokens.shape[0] // before)
        if position in (4, 9, 10):
            staying = staying[1:]
        followed = numbers(before, staying.shape[0] * width)
        rows = staying.repeat_interleave(width) * before + followed
        new = 4 + numbers(int(src.max()) - 4, rows.shape[0])
        tokens, sources = torch.cat((tokens[rows], new[:, None]), 1), sources[rows]
        state = state.select(rows, width)
    # Each row with a cache of its own again.
    rows = torch.tensor([4, 0, 0])
    tokens, sources, state = tokens[rows], sources[rows], state.select(rows)
    for _ in range(2):
        logits, state = model.step(tokens[:, -1], state)
        full = model(src[sources], tokens)[:, -1]
        torch.testing.assert_close(logits, full, rtol=0, atol=1e-12)
        tokens = torch.cat((tokens, 4 + numbers(9, 3)[:, None]), 1)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("variant", [{}, {"positions": "learned", "max_positions": 46}])
def test_sources_come_and_leave_while_others_go_on(
    build: Build, width: int, variant: dict[str, object]
) -> None:
    """Every row is continued as if it were alone, whatever came after it or has left."""
    model = build(**variant).eval()
    generator = torch.Generator().manual_seed(3)

    def number(high: int) -> int:
        return int(torch.randint(high, (1,), generator=generator))

    # The source of each place and the tokens of its rows; None if the place is not in use.
    places: list[tuple[torch.Tensor, list[list[int]]] | None] = []

    def new_sources(*lengths: int) -> State:
        src = torch.full((len(lengths), max(lengths)), VOCAB.pad)
        for row, length in enumerate(lengths):
            src[row, :length] = torch.tensor([4 + number(19) for _ in range(length)])
            places.append((src[row, :length], [[VOCAB.bos]] * width))
        return model.start(src).select(rows_of(*range(len(lengths))) // width, width)

    def rows_of(*sources: int) -> torch.Tensor:
        return torch.tensor([n * width + row for n in sources for row in range(width)])

    state = new_sources(5, 5)
    columns, widths = [], []
    for step in range(50):
        ids = [tokens[-1] for place in places for tokens in (place[1] if place else [[7]] * width)]
        logits, state = model.step(torch.tensor(ids), state)
        for n, place in enumerate(places):
            for row, tokens in enumerate(place[1] if place else []):
                assert place is not None
                alone = model(place[0][None], torch.tensor([tokens]))[0, -1]
                torch.testing.assert_close(logits[n * width + row], alone, rtol=0, atol=1e-12)
        follows = [number(width) for _ in range(len(places) * width)]
        rows = rows_of(*range(len(places))) // width * width + torch.tensor(follows)
        state = state.select(rows, width)
        for n, place in enumerate(places):
            if place is not None:
                heads = follows[n * width : (n + 1) * width]
                places[n] = (place[0], [[*place[1][head], 4 + number(19)] for head in heads])
        if step in (3, 12):  # The second leaves; later the first, which is the longest.
            gone = 1 if step == 3 else 0
            state, places[gone] = state.reset(torch.tensor([gone])), None
        if step == 5:  # A longer source arrives.
            state = state.replace(torch.tensor([1]), new_sources(19))
            places[1] = places.pop()
        if step == 9:  # Two more places, for two new sources.
            state = state.select(rows_of(0, 1, 0, 0), width).reset(torch.tensor([2, 3]))
            state = state.replace(torch.tensor([3, 2]), new_sources(2, 9))
            places[2], places[3] = places[3], places[2]
        if step in (20, 30):  # A new source replaces an unfinished one.
            state = state.replace(torch.tensor([0]), new_sources(40 if step == 20 else 4))
            places[0] = places.pop()
        assert state.memories is not None
        widths.append(state.memories[0].keys.shape[2])
        if step == 40:  # Only the second and the last stay.
            state, places = state.select(rows_of(1, 3), width), [places[1], places[3]]
        columns.append(state.caches[0].length)
    assert [len(place[1][0]) for place in places if place] == [45, 41]
    assert state.length == 44
    # The longest past, and a tree of branches that have not met yet.
    assert min(columns[30:]) <= (50 if width == 1 else 70)
    widths = [width for width, _ in itertools.groupby(widths)]
    assert widths == [5, 19, 40, 19], "padding leaves with the source that needed it"
    assert max(columns) <= 128, "dead branches are removed"


def test_a_state_is_selected_before_its_first_step(build: Build) -> None:
    model = build().eval()
    src, tgt_in, _ = make_batch()
    rows = torch.tensor([1, 3])
    logits, _ = model.step(tgt_in[rows, 0], model.start(src).select(rows))
    torch.testing.assert_close(logits, model(src, tgt_in)[rows, 0], rtol=0, atol=1e-5)


def test_stepping_a_state_twice_is_caught(build: Build) -> None:
    model = build().eval()
    src, tgt_in, _ = make_batch()
    state = model.start(src)
    model.step(tgt_in[:, 0], state)
    with pytest.raises(AssertionError, match="stepped already"):
        model.step(tgt_in[:, 0], state)
    rows = torch.arange(src.shape[0]).repeat_interleave(2)
    _, state = model.step(tgt_in[:, 0], model.start(src))
    first, second = state.select(rows, 2), state.select(rows, 2)
    model.step(tgt_in[rows, 1], first)
    with pytest.raises(AssertionError, match="stepped already"):
        model.step(tgt_in[rows, 1], second)


def test_a_step_is_for_a_model_that_drops_nothing(build: Build) -> None:
    model = build()
    src, tgt_in, _ = make_batch()
    with pytest.raises(AssertionError, match="call eval"):
        model.train().step(tgt_in[:, 0], model.start(src))


@pytest.mark.usefixtures("double")
def test_steps_use_the_weights_that_the_model_has_when_they_start(build: Build) -> None:
    model, other = build().eval(), build().eval()
    src, tgt_in, _ = make_batch()
    model.step(tgt_in[:, 0], model.start(src))
    for name, parameter in model.named_parameters():
        parameter.data = other.get_parameter(name).data + 0.01
    logits, _ = model.step(tgt_in[:, 0], model.start(src))
    torch.testing.assert_close(logits, model(src, tgt_in[:, :1])[:, 0], rtol=0, atol=1e-12)


def test_steps_in_half_precision_equal_full_decoding(build: Build) -> None:
    model = build(norm_order="pre").eval()
    src, tgt_in, _ = make_batch()
    with torch.autocast("cpu", torch.bfloat16):
        full = model(src, tgt_in)
        state = model.start(src)
        for position in range(tgt_in.shape[1]):
            logits, state = model.step(tgt_in[:, position], state)
            torch.testing.assert_close(logits, full[:, position], rtol=0.02, atol=0.02)


def test_growing_the_cache_copies_it_rarely(build: Build) -> None:
    model = build(num_layers=1).eval()
    state = model.start(make_batch()[0])
    rooms = set()
    for _ in range(100):
        _, state = model.step(torch.full((5,), 7), state)
        buffers = state.caches[0]._buffers
        assert buffers is not None
        rooms.add(buffers[0].data_ptr())
    assert len(rooms) == 2  # 64, then twice as much


def test_the_cache_takes_any_number_of_positions_at_a_time() -> None:
    keys, values = torch.randn(2, 3, 100, 5), torch.randn(2, 3, 100, 7)
    cache, end = KeyValueCache(), 0
    for count in (1, 15, 1, 40, 3, 40):
        start, end = end, end + count
        seen = cache.append(keys[:, :, start:end], values[:, :, start:end])
        assert torch.equal(seen[0], keys[:, :, :end])
        assert torch.equal(seen[1], values[:, :, :end])
    assert cache.length == end == 100


def test_cross_attention_keys_are_computed_once(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build().eval()
    attention = layers(model.decoder)[0].cross_attention
    assert attention is not None
    original, calls = attention.keys_values, 0

    def counted(memory: Tensor, rotation: Tensor | None = None) -> tuple[Tensor, Tensor]:
        nonlocal calls
        calls += 1
        return original(memory, rotation)

    monkeypatch.setattr(attention, "keys_values", counted)
    state = model.start(make_batch()[0])
    for _ in range(3):
        _, state = model.step(torch.full((5,), 7), state)
    assert calls == 1


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_attention_of_one_layer_is_that_of_the_trace(
    build: Build, variant: dict[str, object]
) -> None:
    model, (src, tgt_in, _) = build(**variant).eval(), make_batch()
    src[0, 6:] = VOCAB.pad
    trace = Trace()
    model.hidden(src, tgt_in, trace=trace)
    assert len(trace.decoder.cross_attention) == model.config.num_decoder_layers
    for layer, expected in enumerate(trace.decoder.cross_attention):
        weights = model.cross_attention(src, tgt_in, layer)
        torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-6)


def test_a_trace_records_every_layer_and_changes_nothing(build: Build) -> None:
    model = build().eval()
    src, tgt_in, _ = make_batch()
    src[1, 4:] = VOCAB.pad
    trace = Trace()
    traced = model.hidden(src, tgt_in, trace=trace)
    torch.testing.assert_close(traced, model.hidden(src, tgt_in), rtol=0, atol=1e-5)
    for recorded, shape in (
        (trace.encoder.self_attention, (5, 3, 11, 11)),
        (trace.decoder.self_attention, (5, 3, 13, 13)),
        (trace.decoder.cross_attention, (5, 3, 13, 11)),
    ):
        assert [weights.shape for weights in recorded] == [shape] * 2
        for weights in recorded:
            torch.testing.assert_close(weights.sum(-1), torch.ones(shape[:-1]))
    assert trace.encoder.cross_attention == []
    assert (trace.decoder.cross_attention[0][1, :, :, 4:] == 0).all()
    assert (trace.decoder.self_attention[0].triu(1) == 0).all()


def test_a_batch_without_padding_makes_no_masks_for_it(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    masks: list[Tensor | None] = []
    original = Allowed.mask

    def spy(self: Allowed, num_queries: int, num_keys: int, device: torch.device) -> Tensor | None:
        masks.append(original(self, num_queries, num_keys, device))
        return masks[-1]

    monkeypatch.setattr(Allowed, "mask", spy)
    src, tgt_in, _ = make_batch()
    build(num_layers=1).hidden(src, tgt_in)
    assert [mask is None for mask in masks] == [True, False, True]  # causal self-attention only


def test_tying(build: Build) -> None:
    three, two, none = (build(tying=t) for t in ("three-way", "two-way", "untied"))
    assert three.output.weight is three.target_embedding.weight is three.source_embedding.weight
    assert two.output.weight is two.target_embedding.weight is not two.source_embedding.weight
    weights = {id(e.weight) for e in (none.output, none.target_embedding, none.source_embedding)}
    assert len(weights) == 3
    with pytest.raises(ConfigError, match="needs one vocabulary, but the source has 7 .* 11"):
        Transformer(model_config(), Vocab(source_size=7, target_size=11))


def test_embeddings_are_scaled_by_the_root_of_d_model(build: Build) -> None:
    model = build().eval()
    seen: list[torch.Tensor] = []
    model.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    src, tgt_in, _ = make_batch()
    model.hidden(src, tgt_in)
    embedded = model.source_embedding(src).detach().numpy()
    positions = np.stack([reference.positional_encoding(p, 14) for p in range(11)])
    expected = embedded * math.sqrt(14) + positions
    np.testing.assert_allclose(seen[0].detach().numpy(), expected, atol=1e-5)


def test_post_norm_is_the_papers_and_adds_no_norm_after_the_stacks(build: Build) -> None:
    post, pre = build(), build(norm_order="pre")
    assert post.encoder.final_norm is None
    assert post.decoder.final_norm is None
    assert isinstance(pre.encoder.final_norm, nn.LayerNorm)
    assert isinstance(pre.decoder.final_norm, nn.LayerNorm)
    x = torch.randn(3, 5, 14)
    double = np.asarray(x.numpy(), dtype=np.float64)
    for config, expected in (
        (model_config(), reference.layer_norm(double + 3 * double)),
        (model_config(norm_order="pre"), double + 3 * reference.layer_norm(double)),
    ):
        ours = Residual(config)(x, lambda y: 3 * y).detach().numpy()
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_dropout_is_on_the_sublayers_output_before_it_is_added() -> None:
    x, update = torch.randn(2, 3, 14), torch.randn(2, 3, 14)
    torch.manual_seed(4)
    dropped = dropout(update, 0.5)
    for norm_order, expected in (
        ("post", lambda norm: norm(x + dropped)),
        ("pre", lambda _: x + dropped),
    ):
        residual = Residual(model_config(norm_order=norm_order, dropout=0.5))
        torch.manual_seed(4)
        output = residual(x, lambda _: update)
        torch.testing.assert_close(output, expected(residual.norm), rtol=0, atol=1e-6)


def test_the_norms_add_the_epsilon_of_the_authors_code() -> None:
    x = torch.tensor([[[1e-3, -1e-3] * 7]], dtype=torch.float64)  # variance 1e-6
    ours = Residual(model_config()).double()(x, torch.zeros_like)
    torch.testing.assert_close(ours, x / math.sqrt(2e-6), rtol=1e-9, atol=0)


def test_the_feed_forward_layer_is_its_formula() -> None:
    torch.manual_seed(0)
    layer = FeedForward(model_config()).double()
    x = torch.randn(2, 3, 14, dtype=torch.float64)
    w1, b1 = (p.detach().numpy() for p in layer.inner.parameters())
    w2, b2 = (p.detach().numpy() for p in layer.outer.parameters())
    expected = np.maximum(0, x.numpy() @ w1.T + b1) @ w2.T + b2
    np.testing.assert_allclose(layer(x).detach().numpy(), expected, atol=1e-12)


def test_dropout_is_on_sublayers_and_embeddings_and_off_in_evaluation(build: Build) -> None:
    model = build(dropout=0.5)
    src, tgt_in, _ = make_batch()
    assert not torch.equal(model(src, tgt_in), model(src, tgt_in))
    model.eval()
    assert torch.equal(model(src, tgt_in), model(src, tgt_in))
    seen: list[torch.Tensor] = []
    model.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model.train()
    model.hidden(src, tgt_in)
    assert 0.3 < (seen[0] == 0).double().mean() < 0.7


def test_encoder_only_and_decoder_only_stacks_are_the_same_layers() -> None:
    torch.manual_seed(0)
    stack = Stack(model_config(), attends_to_memory=False)
    x = torch.randn(2, 7, 14)
    both_ways = stack(x, Allowed())
    language_model = stack(x, Allowed(causal=True))
    changed = x.clone()
    changed[:, 4:] = 0
    assert torch.equal(stack(changed, Allowed(causal=True))[:, :4], language_model[:, :4])
    assert not torch.allclose(stack(changed, Allowed())[:, :4], both_ways[:, :4])


def test_the_first_loss_of_the_base_model_is_within_one_nat_above_chance() -> None:
    config, vocab = Config(), Vocab.shared(37_000)
    torch.manual_seed(0)
    step = TrainingStep(Transformer(config.model, vocab), label_smoothing=0.1)
    with torch.no_grad():
        sums, count = step(*make_batch(rows=16, source=17, target=19, vocab=vocab))
    chance = math.log(37_000)
    assert chance < sums.nll / count < chance + 1


def test_first_weights_have_the_documented_spread() -> None:
    torch.manual_seed(0)
    config = ModelConfig(positions="learned", tying="untied", num_layers=1)
    model = Transformer(config, Vocab.shared(1000))
    for table in (
        model.output.weight,
        model.get_parameter("source_embedding.weight"),
        model.target_embedding.weight,
        learned(model.source_positions),
        learned(model.target_positions),
    ):
        assert table.std().item() == pytest.approx(512**-0.5, rel=0.02)
    layer = layers(model.decoder)[0]
    assert layer.cross_attention is not None
    glorot = [
        *layer.self_attention.in_projection.weight.split(512),
        layer.self_attention.out_projection.weight,
        *layer.cross_attention.in_projection.weight.split(512),
        layer.feed_forward.inner.weight,
        layer.feed_forward.outer.weight,
    ]
    for weight in glorot:
        limit = math.sqrt(6 / sum(weight.shape))
        assert weight.abs().max().item() == pytest.approx(limit, rel=0.01)
        assert weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.02)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name


def test_each_side_learns_positions_of_its_own(build: Build) -> None:
    model = build(positions="learned")
    src, tgt_in, _ = make_batch()
    memory = model.encode(src, Allowed())
    hidden = model.hidden(src, tgt_in)
    with torch.no_grad():
        learned(model.target_positions).mul_(2)
    assert torch.equal(model.encode(src, Allowed()), memory)
    assert not torch.allclose(model.hidden(src, tgt_in), hidden)
    with torch.no_grad():
        learned(model.source_positions).mul_(2)
    assert not torch.allclose(model.encode(src, Allowed()), memory)


def test_a_sequence_beyond_learned_positions_is_a_data_error(build: Build) -> None:
    model = build(positions="learned", max_positions=12)
    src, tgt_in, _ = make_batch()
    with pytest.raises(DataError, match="a sequence of 13 tokens is longer than the 12 positions"):
        model(src, tgt_in)

"""Aligned input: the encoder's output at one source position, added to each decoder input."""

import math
import tomllib
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from headwise.config import TASKS, DataConfig, DecodeConfig, ModelConfig, TaskRow
from headwise.errors import ConfigError, DataError
from headwise.interop.ctranslate2.spec import require_expressible
from headwise.model import Allowed, State, Trace, Transformer, check_aligned
from headwise.paper import describe_departures
from headwise.recipes import load_recipe
from headwise.training import TrainingStep
from tests.conftest import VOCAB, make_batch, model_config

Build = Callable[..., Transformer]
Variant = dict[str, object]

VARIANTS: list[Variant] = [
    {},
    {"norm_order": "pre"},
    {"positions": "learned"},
    {"positions": "rotary", "d_k": 6},
]


def aligned_with(tokens: list[int], length: int) -> list[int]:
    """Make up a source position for each token, of a source of `length`; any rule will do."""
    return [sum(tokens[: place + 1]) % length for place in range(len(tokens))]


def aligned_batch(source: int = 11, target: int = 13) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw a batch without padding, with source positions that depend on the tokens before."""
    src, tgt_in, tgt_out = make_batch(source=source, target=target)
    rows = [aligned_with(row, source) for row in tgt_in.tolist()]
    return src, tgt_in, torch.tensor(rows), tgt_out


def test_the_encoders_output_is_added_to_the_decoders_input(build: Build) -> None:
    model = build(aligned_input=True).eval()
    src, tgt_in, aligned, _ = aligned_batch()
    seen: list[Tensor] = []
    model.decoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    logits = model(src, tgt_in, aligned)
    memory = model.encode(src, Allowed())
    plain = model.target_embedding(tgt_in) * math.sqrt(14) + model.target_positions(0, 13)
    for row, positions in enumerate(aligned.tolist()):
        for place, position in enumerate(positions):
            expected = plain[row, place] + memory[row, position]
            torch.testing.assert_close(seen[0][row, place], expected, rtol=0, atol=1e-5)
    hidden = model.hidden(src, tgt_in, aligned)
    torch.testing.assert_close(logits, model.output(hidden), rtol=0, atol=0)


def test_the_sum_is_dropped_as_a_whole(build: Build) -> None:
    model = build(aligned_input=True, dropout=0.4)
    seen: list[Tensor] = []
    model.decoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    src, tgt_in, aligned, _ = aligned_batch()
    model.hidden(src, tgt_in, aligned)
    share = float((seen[0] == 0).double().mean())
    assert share == pytest.approx(0.4, abs=0.06)


def test_without_it_a_model_is_what_it_was(build: Build) -> None:
    plain, aligned = build(), build(aligned_input=True)
    weights, others = plain.state_dict(), aligned.state_dict()
    assert list(weights) == list(others)
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    config = aligned.config
    assert config.count_parameters(VOCAB) == model_config().count_parameters(VOCAB)
    assert config.count_parameters(VOCAB) == sum(p.numel() for p in aligned.parameters())
    src, _, _, _ = aligned_batch()
    assert plain.eval().start(src).encoded is None


@pytest.mark.parametrize("method", ["hidden", "forward", "cross_attention", "step"])
def test_source_positions_are_given_if_and_only_if_they_are_used(build: Build, method: str) -> None:
    src, tgt_in, aligned, _ = aligned_batch()

    def call(model: Transformer, positions: Tensor | None) -> None:
        if method == "step":
            given = None if positions is None else positions[:, 0]
            model.step(tgt_in[:, 0], model.start(src), given)
        elif method == "cross_attention":
            model.cross_attention(src, tgt_in, 0, positions)
        else:
            getattr(model, method)(src, tgt_in, positions)

    with pytest.raises(AssertionError, match="a model with aligned_input needs source positions"):
        call(build(aligned_input=True).eval(), None)
    with pytest.raises(AssertionError, match="source positions for a model without aligned_input"):
        call(build().eval(), aligned)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_future_changes_no_past_logit(build: Build, variant: Variant) -> None:
    model = build(aligned_input=True, **variant).eval()
    src, tgt_in, aligned, _ = aligned_batch()
    before = model(src, tgt_in, aligned)
    tokens, positions = tgt_in.clone(), aligned.clone()
    tokens[:, 7:] = 4 + (tgt_in[:, 7:] - 3) % 19
    positions[:, 7:] = (aligned[:, 7:] + 1) % src.shape[1]
    for changed in (model(src, tokens, aligned), model(src, tgt_in, positions)):
        torch.testing.assert_close(changed[:, :7], before[:, :7], rtol=0, atol=0)
        assert (changed[:, 7:] != before[:, 7:]).any(dim=-1).all()


@pytest.mark.usefixtures("double")
def test_rotary_attention_over_the_source_goes_by_the_distance_from_the_aligned_position(
    build: Build,
) -> None:
    model = build(aligned_input=True, positions="rotary", d_k=6).eval()
    # Of a source that is one token over and over, all outputs of the encoder are the same.
    src = torch.full((2, 11), 5)
    tgt_in, aligned = torch.full((2, 1), 7), torch.tensor([[3], [5]])
    weights = model.cross_attention(src, tgt_in, 1, aligned)[:, :, 0]  # [2, H, S]
    assert (weights.std(-1) > 1e-4).all()
    ratios = weights[:, :, 1:] / weights[:, :, :-1]
    torch.testing.assert_close(ratios[1, :, 2:], ratios[0, :, :-2], rtol=1e-9, atol=0)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
def test_padding_and_neighbours_change_nothing(build: Build, variant: Variant) -> None:
    model = build(aligned_input=True, **variant).eval()
    src, tgt_in, aligned, _ = aligned_batch()
    alone = model(src[:1], tgt_in[:1], aligned[:1])
    longer = torch.cat((src, torch.full((5, 7), VOCAB.pad)), 1)
    longer[1:] = 5
    padded = torch.cat((tgt_in, torch.full((5, 3), VOCAB.pad)), 1)
    positions = torch.cat((aligned, torch.full((5, 3), 10)), 1)
    among = model(longer, padded, positions)[:1, : tgt_in.shape[1]]
    torch.testing.assert_close(among, alone, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("variant", VARIANTS)
def test_cached_decoding_equals_full_decoding(build: Build, variant: Variant) -> None:
    model = build(aligned_input=True, **variant).eval()
    for parameter in model.parameters():  # At first all norms are alike, and biases are zero.
        parameter.data += 0.1 * torch.randn_like(parameter)
    src, tgt_in, aligned, _ = aligned_batch(target=37)
    src[2, 6:] = VOCAB.pad
    aligned[2] %= 6
    full = model(src, tgt_in, aligned)
    state = model.start(src)
    for place in range(tgt_in.shape[1]):
        logits, state = model.step(tgt_in[:, place], state, aligned[:, place])
        torch.testing.assert_close(logits, full[:, place], rtol=0, atol=1e-12)


Place = tuple[list[int], list[list[int]]]
"""A source, and the tokens of each of its rows."""


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("width", [1, 3])
def test_rows_go_on_as_if_alone_while_sources_come_and_leave(build: Build, width: int) -> None:
    """As in a beam: rows are reordered, sources leave, and others take their places."""
    model = build(aligned_input=True).eval()
    generator = torch.Generator().manual_seed(3)

    def draw(high: int) -> int:
        return int(torch.randint(high, (1,), generator=generator))

    def rows_of(*sources: int) -> Tensor:
        return torch.tensor([n * width + row for n in sources for row in range(width)])

    def start(*lengths: int) -> tuple[State, list[Place]]:
        sources = [[4 + draw(19) for _ in range(length)] for length in lengths]
        src = torch.tensor([ids + [VOCAB.pad] * (max(lengths) - len(ids)) for ids in sources])
        state = model.start(src).select(rows_of(*range(len(lengths))) // width, width)
        return state, [(ids, [[VOCAB.bos]] * width) for ids in sources]

    state, places = start(5, 3, 8)
    lengths = []
    for step in range(20):
        rows = [(source, tokens) for source, rows in places for tokens in rows]
        ids = torch.tensor([tokens[-1] for _, tokens in rows])
        aligned = [aligned_with(tokens, len(source))[-1] for source, tokens in rows]
        logits, state = model.step(ids, state, torch.tensor(aligned))
        for row, (source, tokens) in enumerate(rows):
            positions = torch.tensor([aligned_with(tokens, len(source))])
            alone = model(torch.tensor([source]), torch.tensor([tokens]), positions)[0, -1]
            torch.testing.assert_close(logits[row], alone, rtol=0, atol=1e-12)
        followed = [n * width + draw(width) for n in range(len(places)) for _ in range(width)]
        state = state.select(torch.tensor(followed), width)
        places = [
            (source, [[*rows[row % width], 4 + draw(19)] for row in followed[n * width :][:width]])
            for n, (source, rows) in enumerate(places)
        ]
        if step == 4:  # The longest leaves; the others change places.
            state, places = state.select(rows_of(1, 0), width), [places[1], places[0]]
        if step in (7, 12):  # A much longer source, then a short one, in the place of another.
            newer, added = start(17 if step == 7 else 4)
            state = state.reset(torch.tensor([1])).replace(torch.tensor([1]), newer)
            places = [places[0], *added]
        assert state.encoded is not None
        assert state.memories is not None
        assert state.encoded.shape == (len(places), state.memories[0].keys.shape[2], 14)
        lengths.append(state.encoded.shape[1])
    assert lengths == [8] * 4 + [5] * 3 + [17] * 5 + [4] * 8, "padding leaves with its source"


def test_the_encoder_learns_through_the_decoders_input(build: Build) -> None:
    """Without attention over the memory, the aligned input is its only way."""
    model = build(aligned_input=True)
    for name, parameter in model.named_parameters():
        if "cross_attention.out_projection" in name:
            nn.init.zeros_(parameter)
    src, tgt_in, aligned, tgt_out = aligned_batch()
    sums, _ = TrainingStep(model, label_smoothing=0.1)(src, tgt_in, aligned, tgt_out)
    sums.smoothed.backward()
    gradients = [parameter.grad for parameter in model.encoder.parameters()]
    assert all(gradient is not None and float(gradient.abs().sum()) > 0 for gradient in gradients)


@pytest.mark.usefixtures("double")
def test_gradients_are_those_of_finite_differences(build: Build) -> None:
    model = build(aligned_input=True)
    src, tgt_in, aligned, tgt_out = aligned_batch()
    src[2, 6:] = VOCAB.pad
    aligned[2] %= 6
    step = TrainingStep(model, label_smoothing=0.1)

    def loss() -> Tensor:
        sums, count = step(src, tgt_in, aligned, tgt_out)
        mean: Tensor = sums.smoothed / count
        return mean

    loss().backward()
    bias = model.encoder.get_parameter("layers.1.feed_forward.outer.bias")
    assert bias.grad is not None
    for place in range(3):
        values = []
        for shift in (1e-5, -2e-5):
            bias.data[place] += shift
            values.append(float(loss().detach()))
        bias.data[place] += 1e-5
        slope = (values[0] - values[1]) / 2e-5
        assert float(bias.grad[place]) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_trace_records_what_is_computed(build: Build, layer: int) -> None:
    model = build(aligned_input=True).eval()
    src, tgt_in, aligned, _ = aligned_batch()
    trace = Trace()
    traced = model.hidden(src, tgt_in, aligned, trace=trace)
    torch.testing.assert_close(traced, model.hidden(src, tgt_in, aligned), rtol=0, atol=1e-5)
    weights = model.cross_attention(src, tgt_in, layer, aligned)
    torch.testing.assert_close(weights, trace.decoder.cross_attention[layer], rtol=0, atol=1e-6)


def test_a_position_without_a_source_token_is_named() -> None:
    src, tgt_in, aligned, _ = aligned_batch()
    check_aligned(aligned, src, tgt_in, VOCAB)
    src[2, 6:] = VOCAB.pad
    aligned[2] = 5
    check_aligned(aligned, src, tgt_in, VOCAB)
    aligned[2, 4] = 6
    with pytest.raises(DataError, match="aligned row 2, position 4: .* at 6, the row has 6"):
        check_aligned(aligned, src, tgt_in, VOCAB)
    aligned[2, 4] = -1
    with pytest.raises(DataError, match="there is no source token at -1"):
        check_aligned(aligned, src, tgt_in, VOCAB)
    with pytest.raises(DataError, match=r"of shape \[5, 13\], as tgt_in, .* of shape \[5, 12\]"):
        check_aligned(aligned[:, 1:], src, tgt_in, VOCAB)
    with pytest.raises(DataError, match="integer positions .* not torch.float32"):
        check_aligned(aligned.float(), src, tgt_in, VOCAB)


def test_ctranslate2_cannot_express_it(build: Build) -> None:
    with pytest.raises(ConfigError, match="cannot express model.aligned_input = true: its decod"):
        require_expressible(build(aligned_input=True, d_k=5, d_v=5))


@pytest.mark.parametrize("task", ["translation", "language-model"])
def test_a_task_without_alignment_refuses_it(task: str) -> None:
    overrides = [f"task={task}", "model.aligned_input=true"]
    with pytest.raises(ConfigError, match=f"must be false with task = '{task}', whose outputs"):
        load_recipe("base", overrides)


def test_it_is_a_departure_from_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    row = TaskRow(
        data=DataConfig,
        decode=DecodeConfig,
        module="",
        verb="parse",
        assembly="seq2seq",
        inputs="",
        is_aligned=True,
    )
    monkeypatch.setitem(TASKS, "aligned", row)
    config = load_recipe("base", ["task=aligned", "model.aligned_input=true"])
    assert config.model == ModelConfig(aligned_input=True)
    assert type(config).from_dict(tomllib.loads(config.to_toml())) == config
    assert describe_departures(config).splitlines()[-1] == (
        "  model.aligned_input = true, where §3.1 has a decoder whose input is embeddings and "
        "positions alone, also in §6.3"
    )

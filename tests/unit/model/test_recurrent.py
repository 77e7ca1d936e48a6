"""Recurrent models: as torch's layers compute them, step by step and whole."""

import pytest
import torch
from torch import Tensor, nn

from headwise.config import RecurrentConfig, Vocab
from headwise.errors import ConfigError
from headwise.model import Recurrent, RecurrentState, Trace, build_model
from tests.conftest import VOCAB, make_batch

KINDS = [
    (cell, attention, layers)
    for cell in ("lstm", "gru")
    for attention in ("additive", "none")
    for layers in (1, 2)
]


def build(cell: str, attention: str, layers: int = 2, **changes: object) -> Recurrent:
    torch.manual_seed(5)
    values: dict[str, object] = {"d_model": 14, "dropout": 0.0}
    config = RecurrentConfig(
        cell=cell,  # type: ignore[arg-type]
        attention=attention,  # type: ignore[arg-type]
        num_layers=layers,
        **(values | changes),  # type: ignore[arg-type]
    )
    return Recurrent(config, VOCAB).double().eval()


def padded_batch() -> tuple[Tensor, Tensor]:
    """Return sources of different lengths and target inputs."""
    src, tgt_in, _ = make_batch()
    src[1, 7:], src[3, 2:] = VOCAB.pad, VOCAB.pad
    return src, tgt_in


@pytest.mark.parametrize(("cell", "attention", "layers"), KINDS)
def test_steps_equal_the_whole_sequence(cell: str, attention: str, layers: int) -> None:
    model, (src, tgt_in) = build(cell, attention, layers), padded_batch()
    expected = model(src, tgt_in)
    state = model.start(src)
    for place in range(tgt_in.shape[1]):
        logits, state = model.step(tgt_in[:, place], state)
        torch.testing.assert_close(logits, expected[:, place], rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("attention", ["additive", "none"])
def test_the_decoder_is_torchs_own_layers(cell: str, attention: str) -> None:
    """Fed with the contexts that attention found, torch's layer over the sequence is the same."""
    model, (src, tgt_in) = build(cell, attention), padded_batch()
    state = model.start(src)
    x = model.target_embedding(tgt_in) * 14**0.5
    contexts = None
    if attention == "additive":
        trace = Trace()
        model.hidden(src, tgt_in, trace=trace)
        (weights,) = trace.decoder.cross_attention
        assert state.source is not None
        contexts = weights[:, 0] @ state.source.memory
        x = torch.cat((x, contexts), -1)
    for layer, states in zip(model.decoder, state.layers, strict=True):
        first = tuple(each[None].contiguous() for each in states)
        x, _ = layer(x, first if cell == "lstm" else first[0])
    if contexts is not None:
        assert model.join is not None
        x = torch.tanh(model.join(torch.cat((x, contexts), -1)))
    torch.testing.assert_close(model.hidden(src, tgt_in), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_attention_is_bahdanaus_formula(cell: str) -> None:
    model, (src, tgt_in) = build(cell, "additive", 1), padded_batch()
    weights = model.cross_attention(src, tgt_in, 0)
    state = model.start(src)
    assert model.attention is not None
    assert state.source is not None
    w, u, v = model.attention.query, model.attention.key.weight, model.attention.score.weight
    for row in range(src.shape[0]):
        length = int((src[row] != VOCAB.pad).sum())
        query = w.weight @ state.layers[0][0][row] + w.bias
        scores = [
            float(v[0] @ torch.tanh(query + u @ state.source.memory[row, place]))
            for place in range(length)
        ]
        expected = torch.tensor(scores, dtype=torch.float64).softmax(0)
        torch.testing.assert_close(weights[row, 0, 0, :length], expected, rtol=0, atol=1e-12)
        assert not weights[row, 0, :, length:].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@pytest.mark.parametrize(("cell", "attention", "layers"), KINDS)
def test_padding_and_other_rows_change_nothing(cell: str, attention: str, layers: int) -> None:
    model, (src, tgt_in) = build(cell, attention, layers), padded_batch()
    together = model(src, tgt_in)
    for row in range(src.shape[0]):
        real = src[row][src[row] != VOCAB.pad]
        alone = model(real[None], tgt_in[row, None])
        torch.testing.assert_close(together[row], alone[0], rtol=0, atol=1e-12)


def test_without_attention_the_source_is_read_backwards() -> None:
    model = build("lstm", "none", 1)
    src = torch.tensor([[5, 6, 7, VOCAB.eos, VOCAB.pad]])
    embedded = model.source_embedding(torch.tensor([[VOCAB.eos, 7, 6, 5]])) * 14**0.5
    (encoder,) = model.encoder
    _, last = encoder(embedded)
    for ours, theirs in zip(model.start(src).layers[0], last, strict=True):
        torch.testing.assert_close(ours, theirs[0])


@pytest.mark.parametrize("attention", ["additive", "none"])
def test_a_state_is_reordered_and_its_sources_replaced(attention: str) -> None:
    model, (src, tgt_in) = build("lstm", attention), padded_batch()

    def after(src: Tensor, ids: Tensor, rows_per_source: int = 1) -> RecurrentState:
        state = model.start(src)
        rows = torch.arange(src.shape[0]).repeat_interleave(rows_per_source)
        state = state.select(rows, rows_per_source)
        for column in ids.unbind(1):
            _, state = model.step(column, state)
        return state

    beams = torch.cat((tgt_in[:, :3], tgt_in[:, 3:6]), 1).view(-1, 3)  # Two rows each.
    state = after(src, beams, 2).select(torch.tensor([9, 8, 2, 2]), 2)
    following = torch.tensor([4, 5, 6, 7])
    logits, state = model.step(following, state)
    expected = []
    for row, token in zip([9, 8, 2, 2], following, strict=True):
        alone = after(src[row // 2, None], beams[row, None])
        expected.append(model.step(token[None], alone)[0][0])
    torch.testing.assert_close(logits, torch.stack(expected), rtol=0, atol=1e-12)

    other = after(src[3:4], beams[6:8], 2)
    state = state.replace(torch.tensor([1]), other)
    logits, _ = model.step(following, state)
    alone = after(src[3:4], beams[6:8], 2)
    torch.testing.assert_close(logits[2:], model.step(following[2:], alone)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("tying", ["three-way", "two-way", "untied"])
@pytest.mark.parametrize(("cell", "attention", "layers"), KINDS)
def test_parameters_are_counted(cell: str, attention: str, layers: int, tying: str) -> None:
    vocab = VOCAB if tying == "three-way" else Vocab(source_size=19, target_size=29)
    config = RecurrentConfig(
        cell=cell,  # type: ignore[arg-type]
        attention=attention,  # type: ignore[arg-type]
        num_layers=layers,
        tying=tying,  # type: ignore[arg-type]
        d_model=14,
    )
    model = build_model(config, vocab, "seq2seq")
    assert isinstance(model, Recurrent)
    assert sum(p.numel() for p in model.parameters()) == config.count_parameters(vocab)


def test_forget_gates_start_open() -> None:
    model = build("lstm", "additive", 1)
    (layer,) = model.decoder
    assert isinstance(layer, nn.LSTM)
    biases = sum(value for name, value in layer.named_parameters() if "bias" in name)
    assert isinstance(biases, Tensor)
    assert biases.view(4, 14).tolist() == [[0.0] * 14, [1.0] * 14, [0.0] * 14, [0.0] * 14]


def test_wrong_settings_name_both_keys() -> None:
    with pytest.raises(ConfigError, match=r"model\.d_model = 15 must be even"):
        RecurrentConfig(d_model=15)
    with pytest.raises(ConfigError, match="needs one vocabulary"):
        Recurrent(RecurrentConfig(), Vocab(source_size=9, target_size=8))


@pytest.mark.parametrize(("cell", "attention", "layers"), KINDS)
def test_half_precision_is_near(cell: str, attention: str, layers: int) -> None:
    model, (src, tgt_in) = build(cell, attention, layers).float(), padded_batch()
    expected = model(src, tgt_in)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(src, tgt_in)
        found.sum().backward()
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


def test_dropout_is_drawn_in_training_only() -> None:
    model, (src, tgt_in) = build("lstm", "additive", 2, dropout=0.5), padded_batch()
    assert torch.equal(model(src, tgt_in), model(src, tgt_in))
    model.train()
    first, second = (model(src, tgt_in) for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    first = model(src, tgt_in)
    torch.manual_seed(3)
    assert torch.equal(model(src, tgt_in), first)

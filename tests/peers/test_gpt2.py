"""Our language model is transformers' GPT-2, given the same weights."""

import pytest
import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.decoding import SearchSettings, beam_search
from headwise.model import LanguageModel, Trace, build_model
from headwise.model.layers import Layer
from headwise.model.positions import LearnedPositions
from tests.conftest import model_config

transformers = pytest.importorskip("transformers", reason="`make peers` installs transformers")

SIZE, CONTEXT, EOS = 29, 53, 3


@pytest.fixture
def pair() -> tuple[LanguageModel, torch.nn.Module]:
    """Make GPT-2 with random weights and our model with the same, both in double precision."""
    torch.manual_seed(5)
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=SIZE,
            n_positions=CONTEXT,
            n_embd=21,
            n_layer=2,
            n_head=3,
            n_inner=31,
            bos_token_id=EOS,
            eos_token_id=EOS,
            pad_token_id=EOS,
            attn_implementation="eager",
        )
    ).double()
    for parameter in theirs.parameters():  # Norms and biases are all alike at first.
        parameter.data += 0.2 * torch.randn_like(parameter)
    config = model_config(
        d_model=21,
        d_ff=31,
        num_heads=3,
        d_k=7,
        d_v=7,
        num_layers=2,
        norm_order="pre",
        activation="gelu_tanh",
        norm_epsilon=1e-5,
        positions="learned",
        max_positions=CONTEXT,
        scale_embeddings=False,
    )
    ours = build_model(config, Vocab.shared(SIZE), "decoder").double()
    copy_weights(theirs.transformer, ours)
    return ours.eval(), theirs.eval()


@torch.no_grad()
def copy_weights(theirs: torch.nn.Module, ours: LanguageModel) -> None:
    """Copy GPT-2's weights; its projections are stored transposed."""
    there = dict(theirs.named_parameters())
    final_norm = ours.decoder.final_norm
    assert final_norm is not None
    assert isinstance(ours.positions, LearnedPositions)
    pairs: list[tuple[str, Tensor]] = [
        ("wte.weight", ours.embedding.weight),
        ("wpe.weight", ours.positions.weight),
        ("ln_f.weight", final_norm.weight),
        ("ln_f.bias", final_norm.bias),
    ]
    for number, layer in enumerate(ours.decoder.layers):
        assert isinstance(layer, Layer)
        for name, module in (
            ("ln_1", layer.self_attention_residual.norm),
            ("attn.c_attn", layer.self_attention.in_projection),
            ("attn.c_proj", layer.self_attention.out_projection),
            ("ln_2", layer.feed_forward_residual.norm),
            ("mlp.c_fc", layer.feed_forward.inner),
            ("mlp.c_proj", layer.feed_forward.outer),
        ):
            pairs += [
                (f"h.{number}.{name}.weight", module.weight),
                (f"h.{number}.{name}.bias", module.bias),
            ]
    assert {name for name, _ in pairs} == set(there)
    for name, ours_weight in pairs:
        weight: Tensor = there[name]
        is_projection = ".c_" in name and weight.dim() == 2
        assert (weight.t() if is_projection else weight).shape == ours_weight.shape, name
        ours_weight.copy_(weight.t() if is_projection else weight)


def test_logits_hidden_states_and_attention_are_equal(
    pair: tuple[LanguageModel, torch.nn.Module],
) -> None:
    ours, theirs = pair
    ids = torch.randint(SIZE, (5, CONTEXT), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = theirs(ids, output_hidden_states=True, output_attentions=True)
        torch.testing.assert_close(ours(ids), expected.logits, rtol=0, atol=1e-10)
        trace = Trace()
        hidden = ours.hidden(ids, trace)
    torch.testing.assert_close(hidden, expected.hidden_states[-1], rtol=0, atol=1e-10)
    for weights, their_weights in zip(
        trace.decoder.self_attention, expected.attentions, strict=True
    ):
        torch.testing.assert_close(weights, their_weights, rtol=0, atol=1e-10)


def test_gradients_are_equal(pair: tuple[LanguageModel, torch.nn.Module]) -> None:
    ours, theirs = pair
    ids = torch.randint(SIZE, (5, 17), generator=torch.Generator().manual_seed(1))
    for logits in (theirs(ids[:, :-1]).logits, ours(ids[:, :-1])):
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
    (layer, *_) = ours.decoder.layers
    assert isinstance(layer, Layer)
    assert isinstance(ours.positions, LearnedPositions)
    pairs = (
        (ours.embedding.weight, "transformer.wte.weight"),
        (ours.positions.weight, "transformer.wpe.weight"),
        (layer.feed_forward.inner.bias, "transformer.h.0.mlp.c_fc.bias"),
    )
    for parameter, name in pairs:
        expected = theirs.get_parameter(name).grad
        torch.testing.assert_close(parameter.grad, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("length", [1, 2, 11])
def test_greedy_generation_is_equal(
    pair: tuple[LanguageModel, torch.nn.Module], length: int
) -> None:
    ours, theirs = pair
    prompts = torch.randint(4, SIZE, (7, length), generator=torch.Generator().manual_seed(length))
    steps = 30
    settings = SearchSettings(beam=1, stop="count")
    limits = torch.full((7,), steps)
    found = beam_search(
        ours.step, ours.start(prompts), prompts[:, -1], limits, settings, ours.vocab
    )
    generate = theirs.generate
    assert callable(generate)
    generated = generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        max_new_tokens=steps,
        do_sample=False,
        # Ours are never output.
        suppress_tokens=[ours.vocab.pad, ours.vocab.bos],
    )
    lengths = set()
    for row, (hypothesis,) in zip(generated[:, length:].tolist(), found, strict=True):
        expected = row[: row.index(EOS)] if EOS in row else row
        assert list(hypothesis.ids) == expected
        lengths.add(len(expected))
    assert len(lengths) > 1 or lengths == {steps}

"""Vectors instead of words in the encoder of the encoder-decoder."""

import pytest
import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.decoding import SearchSettings, beam_search
from headwise.errors import ConfigError
from headwise.model import Trace, Transformer
from tests.conftest import model_config

VOCAB = Vocab.of_vectors(7, 19)
LENGTHS = torch.tensor([12, 5, 9])

VARIANTS: list[dict[str, object]] = [
    {},
    {"norm_order": "pre", "tying": "untied", "num_decoder_layers": 3},
    {"positions": "learned", "activation": "gelu"},
    {"positions": "rotary", "d_k": 6},
    {"attention": "window", "window": 5},
]
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def build(**changes: object) -> Transformer:
    torch.manual_seed(3)
    return Transformer(model_config(**{"tying": "two-way", **changes}), VOCAB)


def sources() -> Tensor:
    """Draw vectors [3, 11, 7]; beyond the lengths are large numbers that must not be read."""
    torch.manual_seed(5)
    vectors = torch.randn(3, 11, 7)
    for row, length in enumerate(LENGTHS.tolist()):
        vectors[row, length - 1 :] = 1e3
    return vectors


def targets(length: int = 6) -> Tensor:
    torch.manual_seed(7)
    return torch.randint(4, VOCAB.target_size, (3, length))


@pytest.mark.usefixtures("double")
@every_variant
def test_padding_and_neighbours_change_no_logit(variant: dict[str, object]) -> None:
    model, vectors, ids = build(**variant).eval(), sources(), targets()
    together = model(vectors, ids, lengths=LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(vectors[row : row + 1, : length - 1], ids[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@every_variant
def test_cached_decoding_equals_full_decoding(variant: dict[str, object]) -> None:
    model, vectors, ids = build(**variant).eval(), sources(), targets()
    expected = model(vectors, ids, lengths=LENGTHS)
    state = model.start(vectors, LENGTHS)
    for place in range(ids.shape[1]):
        logits, state = model.step(ids[:, place], state)
        torch.testing.assert_close(logits, expected[:, place], rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@every_variant
def test_a_cached_beam_search_is_one_that_recomputes(variant: dict[str, object]) -> None:
    """Each hypothesis has the log-probability that a full pass gives its tokens."""
    model, vectors = build(**variant).eval(), sources()
    limits = torch.full((3,), 8)
    settings = SearchSettings(beam=3, nbest=3)
    with torch.no_grad():
        found = beam_search(
            model.step,
            model.start(vectors, LENGTHS),
            torch.full((3,), VOCAB.start),
            limits,
            settings,
            VOCAB,
        )
        for row, hypotheses in enumerate(found):
            for each in hypotheses:
                ids = [VOCAB.start, *each.ids]
                logits = model(
                    vectors[row : row + 1], torch.tensor([ids]), lengths=LENGTHS[row : row + 1]
                )
                wanted = torch.tensor([[*each.ids, VOCAB.eos]])
                chosen = logits.log_softmax(2).gather(2, wanted[:, :, None]).sum()
                assert float(chosen) == pytest.approx(each.log_prob, abs=1e-10)


@every_variant
def test_the_parameter_count_is_the_models(variant: dict[str, object]) -> None:
    model = build(**variant)
    found = sum(parameter.numel() for parameter in model.parameters())
    assert model.config.count_parameters(VOCAB, "seq2seq") == found


def test_a_trace_has_the_class_token() -> None:
    trace, model = Trace(), build().eval()
    model.hidden(sources(), targets(), lengths=LENGTHS, trace=trace)
    assert {tuple(each.shape[2:]) for each in trace.encoder.self_attention} == {(12, 12)}
    assert {tuple(each.shape[2:]) for each in trace.decoder.cross_attention} == {(6, 12)}
    last = trace.decoder.cross_attention[-1]
    assert float(last[1, :, :, 5:].detach().abs().max()) == 0  # Beyond the second source's end.
    own = model.cross_attention(
        sources(), targets(), len(model.decoder.layers) - 1, lengths=LENGTHS
    )
    torch.testing.assert_close(own, last)


def test_one_matrix_for_vectors_and_tokens_is_an_error() -> None:
    with pytest.raises(ConfigError, match="three-way' needs one vocabulary"):
        build(tying="three-way")

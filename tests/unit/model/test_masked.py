"""A masked language model is the Transformer's encoder with an output projection."""

import pytest
import torch

from headwise.config import Vocab
from headwise.model import SequenceClassifier, Trace
from headwise.model.masked import MaskedLanguageModel
from headwise.training import TrainingStep
from tests.conftest import make_batch, model_config

VOCAB = Vocab.shared(23)


@pytest.mark.parametrize("tying", ["three-way", "untied"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_the_parameter_count_is_the_models(tying: str, positions: str) -> None:
    model = MaskedLanguageModel(model_config(tying=tying, positions=positions), VOCAB)
    found = sum(parameter.numel() for parameter in model.parameters())
    assert model.config.count_parameters(VOCAB, "masked") == found


def test_its_encoder_is_the_classifiers() -> None:
    torch.manual_seed(1)
    config = model_config(norm_order="pre", pooling="mean")
    masked = MaskedLanguageModel(config, VOCAB).eval()
    classifier = SequenceClassifier(config, Vocab(source_size=23, target_size=3)).eval()
    weights = masked.state_dict()
    del weights["output.weight"]
    missing = classifier.load_state_dict(weights, strict=False)
    assert (missing.unexpected_keys, missing.missing_keys) == ([], ["head.weight", "head.bias"])
    src, trace = make_batch()[0], Trace()
    src[2, 6:] = VOCAB.pad
    hidden = masked.hidden(src, trace=trace)
    real = (src != VOCAB.pad)[:, :, None]
    mean = (hidden * real).sum(1) / real.sum(1)
    torch.testing.assert_close(classifier.pooled(src, real.sum((1, 2))), mean)
    torch.testing.assert_close(masked(src), masked.output(hidden))
    assert len(trace.encoder.self_attention) == config.num_layers


def test_only_masked_tokens_count_in_the_loss() -> None:
    torch.manual_seed(1)
    model = MaskedLanguageModel(model_config(), VOCAB).eval()
    src, targets = make_batch()[0], torch.zeros(5, 11, dtype=torch.long)
    targets[0, 3], targets[4, 7] = 9, 12
    sums, count = TrainingStep(model, label_smoothing=0.0)(src, targets)
    log_probs = model(src).log_softmax(2)
    expected = -(log_probs[0, 3, 9] + log_probs[4, 7, 12])
    torch.testing.assert_close(sums.nll, expected.detach())
    assert int(count) == 2

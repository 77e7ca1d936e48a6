"""A predictor without an encoder, with random weights, to show the attention of."""

import torch

from headwise.errors import RequestError
from headwise.model import Trace, build_model
from headwise.tasks.tracing import TracedPair
from tests.conftest import VOCAB, model_config


class TextReader:
    """Trace texts with a decoder-only model of 2 layers and 3 heads."""

    name = "drawn weights"

    def __init__(self) -> None:
        torch.manual_seed(5)
        self._model = build_model(model_config(), VOCAB, "decoder")
        # First weights leave all weights of attention about equal.
        with torch.no_grad():
            for name, weight in self._model.named_parameters():
                if "in_projection" in name:
                    weight.mul_(4)

    def trace(
        self, source: str, target: str | None = None, *, most_tokens: int = 1000
    ) -> TracedPair:
        assert target is None
        if not source.strip():
            raise RequestError("the text is empty: attention is between words")
        words = source.split()
        ids = [VOCAB.start, *(4 + ord(word[0]) % (VOCAB.target_size - 4) for word in words)]
        trace = Trace()
        with torch.no_grad():
            self._model(torch.tensor([ids]), trace)
        return TracedPair(
            source="",
            target=source,
            source_tokens=(),
            target_tokens=tuple(f"▁{word}" for word in words),
            trace=trace,
        )

"""A trained masked language model as a function: what stands where the masks are."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from headwise.config import MaskedLanguageModelConfig
from headwise.decoding.settings import forbidden_ids
from headwise.errors import CheckpointError, HeadwiseError, RequestError
from headwise.model import Trace, build_model
from headwise.model.masked import MaskedLanguageModel
from headwise.runs.device import choose_device
from headwise.runs.directory import RunDirectory
from headwise.runs.model import load_trained
from headwise.tasks.masked_language_model.tokenizer import SHOWN_MASK, MaskTokenizer
from headwise.tasks.table import require_task
from headwise.tasks.tracing import TracedPair

_CLASS_TOKEN = "‹class›"  # noqa: S105 - what is shown for the first position
_HALF_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Guess:
    """A subword for a mask, and its probability."""

    token: str
    """Its text; a space before it means that a word begins."""
    probability: float


@dataclass(frozen=True, kw_only=True)
class Filled:
    """A text with its masks filled in."""

    text: str
    """With the most probable token for each mask."""
    guesses: tuple[tuple[Guess, ...], ...]
    """For each mask, the most probable tokens first."""


class MaskFiller:
    """Fill the masks of texts with a trained run. It is thread-safe."""

    def __init__(
        self,
        model: MaskedLanguageModel,
        tokenizer: MaskTokenizer,
        config: MaskedLanguageModelConfig,
        *,
        name: str,
    ) -> None:
        self.model, self.tokenizer, self.config = model.eval(), tokenizer, config
        self.name = name
        """Where the weights come from."""
        vocab = self.model.vocab
        self._never = [*forbidden_ids(vocab), vocab.unk, vocab.eos, vocab.mask]

    @classmethod
    def load(
        cls, run: str | Path, *, checkpoint: str | None = None, device: str = "cpu"
    ) -> "MaskFiller":
        """Load a run directory: its average, else its best checkpoint, else its last."""
        directory = RunDirectory(Path(run))
        config: MaskedLanguageModelConfig = directory.config()  # type: ignore[assignment]
        require_task("masked-language-model", config, directory.path)
        try:
            tokenizer = MaskTokenizer.load(directory.folder)
        except HeadwiseError as error:
            raise CheckpointError(f"{directory.path}: {error}") from error
        vocab = tokenizer.vocab
        model, weights = load_trained(
            directory,
            checkpoint,
            parameters=config.model.count_parameters(vocab, "masked"),
            build=lambda: build_model(config.model, vocab, "masked"),
        )
        return cls(model.to(choose_device(device)), tokenizer, config, name=str(weights))

    def fill(self, texts: str | Sequence[str], *, top: int = 5) -> list[Filled]:
        """Return the `top` tokens for each [MASK] of one text or several, in their order."""
        if top < 1:
            raise RequestError(f"top = {top} must be at least 1")
        given = [texts] if isinstance(texts, str) else texts
        return [self._filled(text, top) for text in given]

    def trace(self, source: str, target: str | None = None, *, most_tokens: int) -> TracedPair:
        """Return the attention within a text, masks included."""
        if target is not None:
            raise RequestError("a masked language model has no target: give the text alone")
        ids, trace = self._ids(source, most_tokens), Trace()
        if not ids:
            raise RequestError("the text is empty: attention is between words")
        with torch.inference_mode():
            self.model.hidden(self._row(ids), trace=trace)
        return TracedPair(
            source=source,
            target="",
            source_tokens=(_CLASS_TOKEN, *self.tokenizer.subwords.tokens(ids)),
            target_tokens=(),
            trace=trace,
        )

    def _filled(self, text: str, top: int) -> Filled:
        ids, mask = self._ids(text, self.config.data.context), self.tokenizer.mask
        if mask not in ids:
            raise RequestError(f"{text!r:.60} has no {SHOWN_MASK}: write one for each token")
        places = [place for place, number in enumerate(ids) if number == mask]
        with torch.inference_mode():
            logits = self.model(self._row(ids))[0, 1:-1][places].double()  # [M, V]
            logits[:, self._never] = -torch.inf
            probabilities, found = logits.softmax(1).topk(min(top, logits.shape[1]), dim=1)
        subwords = self.tokenizer.subwords
        guesses = tuple(
            tuple(
                Guess(token=token.replace("\u2581", " "), probability=probability)
                for token, probability in zip(subwords.tokens(row), numbers, strict=True)
            )
            for row, numbers in zip(found.tolist(), probabilities.tolist(), strict=True)
        )
        whole = list(ids)
        for place, (first, *_) in zip(places, found.tolist(), strict=True):
            whole[place] = first
        return Filled(text=self.tokenizer.text.decode(whole), guesses=guesses)

    def _ids(self, text: str, longest: int) -> list[int]:
        if "\0" in text or _HALF_PAIR.search(text):
            raise RequestError("a text with a NUL character or half of a surrogate pair is no text")
        # Check the number of characters first: encoding an absurdly long text would take long.
        longest = min(longest, self.config.data.context)
        ids = self.tokenizer.encode(text) if len(text) <= 64 * longest else None
        if ids is None or len(ids) > longest:
            size = f"{len(text):,} characters" if ids is None else f"{len(ids):,} tokens"
            raise RequestError(f"a text of {size} is too long: give at most {longest:,} tokens")
        return ids

    def _row(self, ids: list[int]) -> Tensor:
        vocab = self.model.vocab
        device = self.model.output.weight.device
        return torch.tensor([[vocab.bos, *ids, vocab.eos]], device=device)

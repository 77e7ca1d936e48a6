"""Search for the trees of sentences, in batches of similar length."""

from collections.abc import Sequence

import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.decoding import Hypothesis, SearchSettings, beam_search
from headwise.model import Transformer
from headwise.tasks.length_batches import length_batches
from headwise.tasks.parsing.grammar import least_limit
from headwise.tasks.parsing.state import ParserModel
from headwise.tasks.parsing.tokenizer import EncodedWords, TreeTokenizer

_SYMBOLS_PER_WORD = 5
"""What a tree has at most, about: in the CRAFT and GUM treebanks a single word within two brackets
has 5, and no sentence of more than 40 words has over 3.4 for each."""


class TreeSearch:
    """Find trees with a Transformer; its symbols are the tokenizer's."""

    def __init__(
        self, model: Transformer, tokenizer: TreeTokenizer, *, batch_size: int | None = None
    ) -> None:
        """Search `batch_size` sentences at a time; with 1, results depend on no other sentence."""
        self._config, self._tokenizer, self._batch_size = model.config, tokenizer, batch_size
        self._model = ParserModel(model, tokenizer.symbols, tokenizer.bounds)
        self._device = model.output.weight.device

    def search(
        self,
        sentences: Sequence[Sequence[str]],
        settings: SearchSettings,
        *,
        max_extra_tokens: int,
        constrained: bool,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence of at least one word, best first.

        A tree has at most `max_extra_tokens` symbols more than its sentence has tokens, or as many
        as the words usually need. With `constrained`, every hypothesis is a tree over the words.
        """
        encoded = [self._encoded(words) for words in sentences]
        found: dict[int, list[Hypothesis]] = {}
        lengths = [len(each.ids) for each in encoded]
        with torch.inference_mode():
            for numbers in length_batches(lengths, settings.beam, self._batch_size):
                batch = [encoded[number] for number in numbers]
                limits = self._tensor([self._limit(each, max_extra_tokens) for each in batch])
                state = self._model.start(
                    self._rows([[*each.ids, Vocab.eos] for each in batch]),
                    self._rows([each.ends for each in batch]),
                    self._tensor([len(each.ends) - 1 for each in batch]),
                    limits,
                )
                hypotheses = beam_search(
                    self._model.step,
                    state,
                    torch.full_like(limits, self._model.vocab.start),
                    limits,
                    settings,
                    self._model.vocab,
                    allowed=self._model.allowed if constrained else None,
                )
                found.update(zip(numbers, hypotheses, strict=True))
        return [found[number] for number in range(len(sentences))]

    def _encoded(self, words: Sequence[str]) -> EncodedWords:
        ids, ends = self._tokenizer.encode_words(words)
        # The parser splits long sentences. Only a word of its own may still be too long.
        longest = self._config.fitting(len(ids))
        kept = ids[:longest]
        return EncodedWords(kept, [*(min(end, longest - 1) for end in ends[:-1]), len(kept)])

    def _limit(self, encoded: EncodedWords, max_extra_tokens: int) -> int:
        """Return the most symbols of a sentence's tree."""
        words = len(encoded.ends) - 1
        wanted = max(len(encoded.ids) + max_extra_tokens, _SYMBOLS_PER_WORD * words)
        return max(self._config.fitting(wanted), least_limit(words))

    def _rows(self, rows: list[list[int]]) -> Tensor:
        """Return rows of equal length; what is added is padding, or any position."""
        width = max(map(len, rows))
        return self._tensor([row + [Vocab.pad] * (width - len(row)) for row in rows])

    def _tensor(self, values: list[int] | list[list[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.long, device=self._device)

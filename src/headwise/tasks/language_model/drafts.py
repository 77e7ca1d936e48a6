"""Continuations that join and leave a batch while others go on."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch

from headwise.decoding import Drawing, DrawSearch
from headwise.tasks.language_model.context import ContextModel, ContextState, window_start
from headwise.tasks.language_model.text_tokenizer import TextTokenizer
from headwise.tasks.language_model.writing import Piece, Writer
from headwise.tasks.length_batches import length_batches

_JOIN_SHARE = 8
_JOIN_STEPS = 2
"""New ones are added once they would be this share of all, or after so many steps: to read one
prompt takes nearly as long as to read eight."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A continuation to write."""

    prompt: tuple[int, ...]
    """Its ids, with what every text begins with."""
    drawing: Drawing
    stop: tuple[str, ...] = ()
    """Sequences of characters before which it ends."""
    has_tokens: bool = False
    """Whether to return its tokens and their probabilities."""

    def num_read(self, context: int) -> int:
        """Return how many tokens of the prompt are read."""
        return len(self.prompt) - window_start(len(self.prompt), context)


class Drafts:
    """Write any number of continuations, a token of each at a time; some may be added later."""

    def __init__(self, model: ContextModel, tokenizer: TextTokenizer) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._search: DrawSearch[ContextState] = DrawSearch(model.step, model.vocab)
        self._writers: dict[int, Writer] = {}
        self._steps = 0  # Since some were last added.

    def __len__(self) -> int:
        """Return how many have not ended."""
        return len(self._writers)

    @property
    def close_draws(self) -> int:
        """How many draws rounding could have decided."""
        return self._search.close_draws

    def accepts(self, newcomers: int) -> bool:
        """Return whether there are enough new ones, or they have waited long enough."""
        return newcomers * _JOIN_SHARE >= len(self) or self._steps >= _JOIN_STEPS

    def add(self, drafts: Mapping[int, Draft]) -> None:
        """Begin continuations, by their numbers; a prompt that several have is read once."""
        self._steps = 0
        by_prompt: dict[tuple[int, ...], list[int]] = {}
        for number, draft in drafts.items():
            by_prompt.setdefault(draft.prompt, []).append(number)
            self._writers[number] = Writer(
                self._tokenizer, list(draft.prompt), stop=draft.stop, has_tokens=draft.has_tokens
            )
        prompts = list(by_prompt)
        lengths = [drafts[by_prompt[each][0]].num_read(self._model.context) for each in prompts]
        with torch.inference_mode():
            # In batches, so that one long prompt does not pad all the others.
            for places in length_batches(lengths, 1):
                state, first_ids = self._model.start([prompts[place] for place in places])
                numbers = [by_prompt[prompts[place]] for place in places]
                if any(len(each) > 1 for each in numbers):
                    counts = torch.tensor([len(each) for each in numbers], device=first_ids.device)
                    rows = torch.arange(len(places), device=first_ids.device)
                    rows = rows.repeat_interleave(counts)
                    state, first_ids = state.select(rows), first_ids[rows]
                drawings = {n: drafts[n].drawing for each in numbers for n in each}
                self._search.add(state, first_ids, drawings)

    def advance(self) -> dict[int, Piece | None]:
        """Take a step; return what it added to each, or None where the logits were NaN."""
        self._steps += 1
        with torch.inference_mode():
            found = self._search.advance()
            pieces: dict[int, Piece | None] = {}
            stopped = []
            for drawn in found:
                writer = self._writers[drawn.number]
                piece = None if math.isnan(drawn.log_prob) else writer.add(drawn)
                pieces[drawn.number] = piece
                if piece is None or piece.ending is not None:
                    del self._writers[drawn.number]
                    if not drawn.is_last:
                        stopped.append(drawn.number)
            if stopped:
                self._search.drop(stopped)
        return pieces

    def drop(self, numbers: Collection[int]) -> None:
        """Remove some."""
        for number in numbers:
            self._writers.pop(number, None)
        with torch.inference_mode():
            self._search.drop(numbers)

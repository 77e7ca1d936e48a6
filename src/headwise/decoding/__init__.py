"""Search for the best output, over any model that can make a step.

A model is a function `step(ids [R], state) -> (logits [R, V], state)` and a state that can reorder
its rows (`DecodingState`); nothing here knows more of it. Letters: B sentences, W hypotheses of
each, R rows of the model's state (B, or B*W), V vocabulary, T tokens so far, C candidates.
"""

from headwise.decoding.beam import Hypothesis, beam_search
from headwise.decoding.sampling import sample
from headwise.decoding.settings import SearchSettings, Watcher

__all__ = ["Hypothesis", "SearchSettings", "Watcher", "beam_search", "sample"]

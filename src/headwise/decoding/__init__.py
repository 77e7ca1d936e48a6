"""Search for the best output, over any model that can make a step.

A model is a function `step(ids [R], state) -> (logits [R, V], state)` and a state whose rows can be
reordered and replaced (`DecodingState`); nothing here knows more of it. Letters: B sentences, W
hypotheses of each, R rows of the model's state (B, or B*W), V vocabulary, T tokens so far, C
candidates.
"""

from headwise.decoding.beam import Hypothesis
from headwise.decoding.sampling import sample
from headwise.decoding.search import BeamSearch, Found, beam_search
from headwise.decoding.settings import SearchSettings

__all__ = ["BeamSearch", "Found", "Hypothesis", "SearchSettings", "beam_search", "sample"]

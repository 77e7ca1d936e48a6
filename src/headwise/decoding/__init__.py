"""Search for the best output, or draw one, with any model that can make a step.

A model is a function `step(ids [R], state) -> (logits [R, V], state)` and a state whose rows can be
reordered and replaced (`DecodingState`). A `Constraint` says which tokens a beam search may take
next. Sentences can join and leave a search while others go on (`BeamSearch`, `DrawSearch`).
Letters: B sentences, W hypotheses of each, R rows of the model's state (B, or B*W), V vocabulary,
T tokens so far, C candidates.
"""

from headwise.decoding.beam import Hypothesis
from headwise.decoding.draw_search import Drawing, DrawnToken, DrawSearch
from headwise.decoding.sampling import Drawn, sample, sample_steps
from headwise.decoding.search import BeamSearch, Found, beam_search
from headwise.decoding.settings import (
    Constraint,
    SamplingSettings,
    SearchSettings,
    length_penalty,
)

__all__ = [
    "BeamSearch",
    "Constraint",
    "DrawSearch",
    "Drawing",
    "Drawn",
    "DrawnToken",
    "Found",
    "Hypothesis",
    "SamplingSettings",
    "SearchSettings",
    "beam_search",
    "length_penalty",
    "sample",
    "sample_steps",
]

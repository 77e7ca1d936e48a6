"""How text for a masked language model is named on the command line: as for a language model."""

from headwise.tasks.language_model.inputs import LanguageModelInputs

INPUTS = LanguageModelInputs()

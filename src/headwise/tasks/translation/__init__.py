"""Translation: from pairs of sentences to a Translator."""

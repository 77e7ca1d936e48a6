"""Masked language models (BERT): text in, an encoder that predicts what was masked."""

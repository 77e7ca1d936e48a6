"""Trained models behind HTTP: an API, a page, and limits on both."""

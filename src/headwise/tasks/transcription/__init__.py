"""Transcription: an image of a line of text, or a sound, in; its text out."""

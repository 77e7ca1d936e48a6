"""CTranslate2: a run's model in its format, and that format as an engine of ours."""

"""Other people's formats: CTranslate2, out of a run and back as an engine."""

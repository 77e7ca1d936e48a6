"""CTranslate2: export a run's model, and translate with the export."""

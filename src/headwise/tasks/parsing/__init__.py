"""Constituency parsing: from sentences to trees (§6.3)."""

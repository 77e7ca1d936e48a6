"""Language model: from plain text to a Generator."""

"""Classification: a text in, its class out."""

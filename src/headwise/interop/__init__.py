"""The formats of other projects, a folder each."""

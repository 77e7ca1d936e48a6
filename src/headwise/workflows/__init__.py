"""Whole jobs made of the other parts."""

"""Inspection: attention step by step, attention weights, training curves and reports."""

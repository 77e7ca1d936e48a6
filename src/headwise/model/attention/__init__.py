"""Attention: its formula, the fastest ways to compute it, and its multi-head form.

Paper: §3.2.
"""

from headwise.model.attention.full import attention, explicit_attention
from headwise.model.attention.multi_head import MultiHeadAttention

__all__ = ["MultiHeadAttention", "attention", "explicit_attention"]

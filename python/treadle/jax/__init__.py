"""Attention for jax's arrays on the CPU: jitted, differentiable, with your own score and mask. Needs jax.

    from treadle.jax import attention, capture, dot_product_attention
"""

from ._attention import attention, capture
from ._dot_product import dot_product_attention

__all__ = ["attention", "capture", "dot_product_attention"]

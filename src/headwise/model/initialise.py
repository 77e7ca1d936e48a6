"""First weights."""

import torch
from torch import Tensor, nn

from headwise.model.attention import MultiHeadAttention
from headwise.model.inputs import VectorEmbedding
from headwise.model.layers import FeedForward
from headwise.model.positions import LearnedPositions


def initialise(model: nn.Module) -> None:
    """Draw the first weights of a model and of everything in it.

    Embeddings, and the output projection that may share them, have standard deviation
    d_model^-0.5, so that logits start with variance near 1. Every other projection is drawn
    uniformly after Glorot; the paper does not say. Biases start at 0, norms at identity.

    Paper: §3.4.
    """
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            h, k = module.num_heads, module.d_k
            # One matrix holds W^Q, W^K and W^V, but each has its own fan-out.
            for part in module.in_projection.weight.split((h * k, h * k, h * module.d_v)):
                nn.init.xavier_uniform_(part)
            nn.init.xavier_uniform_(module.out_projection.weight)
            _zero(module.in_projection.bias, module.out_projection.bias)
        elif isinstance(module, FeedForward):
            for linear in (module.inner, module.outer):
                nn.init.xavier_uniform_(linear.weight)
                _zero(linear.bias)
        elif isinstance(module, VectorEmbedding):
            for name, parameter in module.projection.named_parameters():
                if name.endswith("weight"):
                    nn.init.xavier_uniform_(parameter)
                else:
                    _zero(parameter)
            nn.init.normal_(module.class_token, std=module.class_token.shape[0] ** -0.5)
        elif isinstance(module, nn.Embedding | LearnedPositions):
            nn.init.normal_(module.weight, std=module.weight.shape[1] ** -0.5)
    output = getattr(model, "output", None)
    if isinstance(output, nn.Linear):
        nn.init.normal_(output.weight, std=output.in_features**-0.5)


def _zero(*biases: Tensor | None) -> None:
    with torch.no_grad():
        for bias in biases:
            if bias is not None:
                bias.zero_()

"""Label-smoothed cross-entropy on hidden states, without the logits of all tokens in memory.

The output projection and the loss are one function that works through the tokens in chunks. A
chunk's logits become its gradient in place, and are gone before the next chunk's are made: the
full [tokens, V] matrix, by far the largest of a training step, never exists.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK_TOKENS = 512
"""Tokens whose logits exist at the same time; measured best or near it from V = 8,000 to 37,000."""

_TINY = 1e-30
"""Below this a probability in single precision is too near to underflow to take its logarithm."""


@torch.compiler.disable  # type: ignore[untyped-decorator]
def smoothed_cross_entropy(
    hidden: Tensor,  # [N, D]
    weight: Tensor,  # [V, D]
    targets: Tensor,  # [N]
    *,
    smoothing: float,
    pad: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the summed smoothed loss, the summed plain NLL, and the number of tokens they cover.

    The smoothed target gives 1 - smoothing to the right token and spreads the rest evenly over
    the V - 1 others. Tokens whose target is pad are left out of all three. Only the smoothed
    loss has a gradient.

    Paper: §5.4, label smoothing; the spread is the authors' first public code's.
    """
    real = targets != pad
    count = real.sum()
    if int(count) < targets.numel():
        hidden, targets = hidden[real], targets[real]
    needs_gradient = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    smoothed, nll = _SmoothedCrossEntropy.apply(hidden, weight, targets, smoothing, needs_gradient)  # type: ignore[no-untyped-call]
    return smoothed, nll, count


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        smoothing: float,
        needs_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        if torch.is_autocast_enabled(device):
            product_dtype = torch.get_autocast_dtype(device)
        else:
            product_dtype = hidden.dtype
        rows, columns = hidden.to(product_dtype), weight.to(product_dtype)
        size = weight.shape[0]
        # loss = -(1 - smoothing - rest) log p[target] - rest * sum over all v of log p[v]
        rest = smoothing / (size - 1)
        peak = 1.0 - smoothing - rest

        # The terms in `rest` are the same for every v, so that instead of a pass over [N, V] each
        # needs one product with the sum of the weight's rows, in the loss and in both gradients.
        sum_dtype = torch.promote_types(hidden.dtype, torch.float32)
        weight_sum = weight.sum(0, dtype=sum_dtype)  # [D]
        smoothed = torch.zeros((), dtype=sum_dtype, device=hidden.device)
        nll = torch.zeros_like(smoothed)
        grad_hidden = torch.empty_like(hidden) if needs_gradient else None
        grad_weight = torch.zeros_like(columns) if needs_gradient else None
        chunk = min(CHUNK_TOKENS, rows.shape[0])
        products = torch.empty(chunk, size, dtype=product_dtype, device=hidden.device)

        for start in range(0, rows.shape[0], CHUNK_TOKENS):
            x, y = rows[start : start + chunk], targets[start : start + chunk, None]
            logits = torch.mm(x, columns.t(), out=products[: x.shape[0]]).to(sum_dtype)  # [C, V]
            target_logit = logits.gather(1, y)
            # One pass instead of the three of a log-softmax and its exponential.
            probs = torch.softmax(logits, dim=1, out=logits)
            target_prob = probs.gather(1, y)
            log_normaliser = target_logit - target_prob.log()
            if bool((target_prob < _TINY).any()):
                log_normaliser = torch.mm(x, columns.t()).to(sum_dtype).logsumexp(1, keepdim=True)
            chunk_nll = (log_normaliser - target_logit).sum()
            log_prob_sum = (x.to(sum_dtype) @ weight_sum).sum() - size * log_normaliser.sum()
            nll += chunk_nll
            smoothed += peak * chunk_nll - rest * log_prob_sum
            if grad_hidden is None or grad_weight is None:
                continue
            # d loss / d logits = softmax - peak at the target - rest everywhere
            probs.scatter_(1, y, target_prob - peak)
            grad = probs.to(product_dtype)
            grad_rows = torch.mm(grad, columns).to(hidden.dtype)
            grad_hidden[start : start + chunk] = grad_rows.sub_(rest * weight_sum)
            grad_weight.addmm_(grad.t(), x)
        if grad_hidden is not None and grad_weight is not None:
            grad_weight = grad_weight.to(weight.dtype).sub_(rest * hidden.sum(0))
            ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        # The gradients were made for a loss that counts once; the caller's scale comes last, in
        # place, since nobody else holds them.
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad_hidden.mul_(grad), grad_weight.mul_(grad), None, None, None

"""The loss of a classifier."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headwise.training.step import LossSums


class ClassificationStep(nn.Module):
    """Join a classifier and its loss: DDP, FSDP and torch.compile wrap this."""

    def __init__(self, model: nn.Module, *, label_smoothing: float, is_multi_label: bool) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing, self.is_multi_label = label_smoothing, is_multi_label

    def forward(
        self, src: Tensor, lengths: Tensor, weights: Tensor, labels: Tensor
    ) -> tuple[LossSums, Tensor]:
        """Return the loss sums of a batch, and how many predictions they cover.

        Labels are the class of each source [B, 1] or, where it may have several, 0 or 1 for each
        class [B, V]. Weights [B] count in the loss that is minimised, not in the NLL. The smoothed
        target gives label_smoothing to all other classes together, evenly, as in §5.4.
        """
        scores = self.model(src, lengths)  # [B, V]
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        smoothed, nll = (self._each if self.is_multi_label else self._one)(scores, labels)
        sums = LossSums((smoothed * weights).sum(), nll.sum().detach())
        return sums, torch.tensor(labels.numel(), device=labels.device)

    def _one(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        log_probs = scores.log_softmax(1)
        nll = -log_probs.gather(1, labels).squeeze(1)  # [B]
        rest = self.label_smoothing / (scores.shape[1] - 1)
        peak = 1.0 - self.label_smoothing - rest
        return peak * nll - rest * log_probs.sum(1), nll

    def _each(self, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        targets = labels.to(scores.dtype)
        nll = F.binary_cross_entropy_with_logits(scores, targets, reduction="none").sum(1)
        smoothing = self.label_smoothing
        smoothed = targets * (1.0 - smoothing) + (1.0 - targets) * smoothing
        loss = F.binary_cross_entropy_with_logits(scores, smoothed, reduction="none").sum(1)
        return loss, nll

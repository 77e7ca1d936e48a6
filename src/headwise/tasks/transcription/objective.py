"""The loss of a transcriber."""

from torch import Tensor, nn

from headwise.model import Transformer
from headwise.training.loss import smoothed_cross_entropy
from headwise.training.step import LossSums


class TranscriptionStep(nn.Module):
    """Join a Transformer that reads vectors and its loss: DDP, FSDP and torch.compile wrap this.

    Paper: §5.4.
    """

    def __init__(self, model: Transformer, *, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def forward(
        self,
        src: Tensor,  # [B, S-1, W]
        lengths: Tensor,  # [B]
        tgt_in: Tensor,  # [B, T]
        tgt_out: Tensor,  # [B, T]
    ) -> tuple[LossSums, Tensor]:
        """Return the loss sums of a batch and the number of target tokens they cover."""
        hidden = self.model.hidden(src, tgt_in, lengths=lengths).flatten(0, 1)  # [B*T, D]
        smoothed, nll, count = smoothed_cross_entropy(
            hidden,
            self.model.output.weight,
            tgt_out.flatten(),
            smoothing=self.label_smoothing,
            pad=self.model.vocab.pad,
        )
        return LossSums(smoothed, nll), count

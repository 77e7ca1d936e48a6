"""The figures of a run for TensorBoard, beside metrics.jsonl."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwise.errors import ConfigError
from headwise.training.events import Event, Updated, Validated


class TensorBoardFile:
    """Write events to a folder that `tensorboard --logdir` reads."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ConfigError(
                "TensorBoard is not installed: pip install 'headwise[tensorboard]'"
            ) from error
        self._folder = folder
        self._make = SummaryWriter
        self._writer: SummaryWriter | None = None

    def event(self, event: Event) -> None:
        """Write the figures of an event, if it has any."""
        match event:
            case Updated(logged=True):
                figures = {f"train/{name}": v for name, v in event.means.to_dict().items()}
            case Validated():
                figures = {f"valid/{name}": v for name, v in event.result.to_dict().items()}
            case _:
                return
        if self._writer is None:
            # Only now: the folder is the run's, and the run may just have been made.
            self._writer = self._make(str(self._folder), purge_step=event.step)
        for name, value in figures.items():
            self._writer.add_scalar(name, value, event.step)

    def close(self) -> None:
        """End writing."""
        if self._writer is not None:
            self._writer.close()


@contextmanager
def tensorboard_file(run: Path) -> Iterator[TensorBoardFile]:
    """Yield what to tell a run's events to."""
    file = TensorBoardFile(run / "tensorboard")
    try:
        yield file
    finally:
        file.close()

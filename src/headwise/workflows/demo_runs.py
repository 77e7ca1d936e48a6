"""What all demos do with their runs: begin, go on, show again, start over."""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headwise.durations import duration
from headwise.errors import CheckpointError, ConfigError, DataError, UnsafeFileError
from headwise.files import remove_directory
from headwise.recipes import load_recipe
from headwise.runs.checkpoint import read_state
from headwise.runs.directory import RunDirectory
from headwise.runs.state import TrainingState
from headwise.training.events import Event
from headwise.training.stops import limit_reached
from headwise.training.task import Progress, Source
from headwise.workflows.train import train

DATA = "demo-data"
"""The folder of the text, beside the runs."""

SAMPLES = 10
"""Examples that are shown."""

_NEEDED_MIB = 300
"""Free disk that a demo needs: the download, the text, the encoded text, the checkpoints."""


@dataclass(frozen=True, kw_only=True)
class TrainedDemo:
    """A demo of a task's own files whose training has ended or was stopped."""

    run: RunDirectory
    test: Path
    """The file that it is tested on."""
    state: TrainingState
    is_new: bool
    """False for a demo that was trained before, and is only shown."""
    signal: int = 0
    """The signal that stopped training, or 0."""


class FilesDemo(Protocol):
    """What a demo of files trains on and says."""

    @property
    def name(self) -> str: ...
    @property
    def recipe(self) -> str: ...
    @property
    def minutes(self) -> float | None:
        """Of training; None: as the recipe has them."""
        ...

    @property
    def unit(self) -> str:
        """What the files are, in the plural."""
        ...

    @property
    def about(self) -> str: ...
    @property
    def train(self) -> str:
        """The name of the file, or the folder, to train on."""
        ...

    @property
    def test(self) -> str: ...
    @property
    def get(self) -> Callable[[Path, Callable[[str], None]], Path]:
        """Get the files, unless they are there; return the folder that they are in."""
        ...

    @property
    def files(self) -> Callable[[Path], Source]:
        """Make of one of them what its task reads."""
        ...


def train_files_demo(
    demo: FilesDemo,
    run: Path | None,
    *,
    minutes: float | None = None,
    overrides: Sequence[str] = (),
    fresh: bool = False,
    say: Callable[[str], None] = lambda _: None,
    on_event: Callable[[Event], None] = lambda _: None,
    on_progress: Progress = lambda *_: None,
) -> TrainedDemo:
    """Get the files and train on them, or continue an earlier demo.

    The default minutes are the run's, else the demo's.
    """
    path = run or Path("runs") / f"demo-{demo.name}"
    with writing_in(path.parent):
        if not path.exists():
            check_space(path.parent)
        files = demo.get(path.parent / DATA / demo.name, say)
        is_begun = (path / "config.toml").exists()
        if is_begun:
            check_demo(path, demo.recipe, map(demo.files, made_before(files.parent, demo.train)))
        if is_begun and fresh:
            remove_demo(path)
            is_begun = False
        config: Any = (
            existing_config(path, minutes, overrides)
            if is_begun
            else timed_recipe(demo.recipe, demo.minutes if minutes is None else minutes, overrides)
        )
        state = finished(path)
        if state is not None:
            return TrainedDemo(
                run=RunDirectory(path), test=files / demo.test, state=state, is_new=False
            )
        say(
            f"{demo.about}: {duration(60 * config.train.max_minutes)} of training, then a test on "
            f"{demo.unit} that it never saw."
        )
        report = train(
            config,
            path,
            text=demo.files(files / demo.train),
            on_event=on_event,
            on_progress=on_progress,
        )
    return TrainedDemo(
        run=RunDirectory(path),
        test=files / demo.test,
        state=report.state,
        is_new=True,
        signal=report.signal,
    )


def timed_recipe(recipe: str, minutes: float | None, overrides: Sequence[str]) -> Any:
    """Return a recipe's config with other minutes of training, if any are given."""
    train = load_recipe(recipe).train
    wanted = train.max_minutes if minutes is None else minutes
    # The same number of checkpoints, however short the training.
    interval = train.save_every_minutes * wanted / train.max_minutes
    times = [f"train.max_minutes={wanted}", f"train.save_every_minutes={interval}"]
    return load_recipe(recipe, [*times, *overrides])


def existing_config(path: Path, minutes: float | None, overrides: Sequence[str]) -> Any:
    """Return the config of a demo that was begun; its minutes cannot be changed."""
    run = RunDirectory(path)
    before = run.config().train.max_minutes
    if minutes is not None and minutes != before:
        raise ConfigError(
            f"{path} is a demo of {before:g} minutes: choose another --run for {minutes:g}; "
            "with --fresh it takes its place"
        )
    return run.config(overrides)


def check_demo(path: Path, recipe: str, files: Iterable[Source]) -> None:
    """Raise ConfigError unless a run is of a recipe's task, and of one of the files of a demo."""
    run = RunDirectory(path)
    is_of_task = run.config().row == load_recipe(recipe).row
    if not is_of_task or run.origin().get("text") not in [each.describe() for each in files]:
        raise ConfigError(f"{path} is a run, but not of this demo: choose another --run")


def made_before(directory: Path, name: str) -> list[Path]:
    """List what has a name in the folders of a demo's files, of which each version has its own."""
    return sorted(directory.glob(f"*/{name}"))


def remove_demo(path: Path) -> None:
    """Remove the run of a demo: the caller has made sure that it is one."""
    with RunDirectory(path).locked():
        remove_directory(path)


def finished(path: Path) -> TrainingState | None:
    """Return the state of training if it is finished, else None."""
    if not (path / "config.toml").exists():
        return None
    run = RunDirectory(path)
    train_config, steps = run.config().train, run.steps()
    if not steps or (train_config.average_last > 1 and not run.inside(run.averaged).exists()):
        return None
    try:
        state = read_state(run.inside(run.step_directory(steps[-1])))
    except UnsafeFileError:
        raise
    except CheckpointError:
        return None  # Damaged: training continues from the one before.
    return state if limit_reached(train_config, state, state.minutes) else None


@contextmanager
def writing_in(directory: Path) -> Iterator[None]:
    """Turn an OSError, such as a full disk, into an error that names the path."""
    try:
        yield
    except OSError as error:
        place = error.filename or directory
        raise DataError(f"{place}: cannot be written: {error.strerror}") from error


def check_space(directory: Path) -> None:
    """Refuse to start if the disk would become full."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free / 2**20
    if free < _NEEDED_MIB:
        raise DataError(
            f"{directory}: {free:,.0f} MiB of disk are free, and the demo needs {_NEEDED_MIB}: "
            "make room, or put it elsewhere with --run"
        )

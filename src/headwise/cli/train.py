"""`headwise train` and `headwise average`: from text to a trained run directory."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwise.cli.figures import figures
from headwise.cli.output import error_line, note, show
from headwise.cli.text_options import (
    FILE,
    summary,
    text_options,
    training_files,
    usual_recipe,
    validation_files,
)
from headwise.visible import visible

if TYPE_CHECKING:
    from headwise.workflows.train import TrainReport

TRAIN_EPILOG = """\b
Examples:
  headwise train multi30k-tiny --src train.en --tgt train.de --run runs/ende
  headwise train --data data/ende --run runs/base --set train.max_minutes=60
  headwise train --run runs/ende                 go on with a run
  headwise train multi30k-tiny --tsv pairs.tsv --run runs/tuned --init-from runs/ende
  torchrun --nproc-per-node 8 -m headwise train base --data data/ende \\
      --run-directory runs/base                  torchrun takes --run for an option of its own

The same command again goes on where the run was stopped. Ctrl-C and SIGTERM save
the last whole update; a second one stops at once. `headwise config` lists every
setting; `headwise doctor` says beforehand what a run would take.
"""


@click.command(epilog=TRAIN_EPILOG)
@click.argument("recipe", required=False)
@text_options
@click.option("--data", type=FILE, help="What `headwise prepare` made, instead of text.")
@click.option(
    "--run",
    "--run-directory",
    "run",
    type=FILE,
    required=True,
    help="The run directory, to make or to go on in.",
)
@click.option("--init-from", type=FILE, help="A run whose weights and subwords to start from.")
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change one value.")
@click.option("--device", help="cpu, cuda, ...; an accelerator if there is one.")
@click.option("--tensorboard", is_flag=True, help="Write RUN/tensorboard as well.")
def train(
    recipe: str | None,
    lenient: bool,
    processes: int | None,
    data: Path | None,
    run: Path,
    init_from: Path | None,
    overrides: tuple[str, ...],
    device: str | None,
    tensorboard: bool,
    **files: Any,
) -> None:
    """Train a model on files of your own, or go on with a run.

    RECIPE is a shipped recipe's name or a TOML file. Without it, an old run is what it was; a new
    one is text-tiny, vit-tiny, speech-tiny, lm-tiny or parsing-small if --table, --images, --audio,
    --text or --trees is given, and else the paper's base model.
    """
    from headwise.cli.watch import watch
    from headwise.recipes import load_recipe

    if recipe is None and (run / "config.toml").exists():
        from headwise.runs.directory import RunDirectory

        config = RunDirectory(run).config(overrides)
    else:
        if recipe is None:
            recipe, why = usual_recipe(files)
            if why:
                note(f"training {recipe}: {why}")
        config = load_recipe(recipe or "base", overrides)
    text, valid = training_files(config, files), validation_files(config, files)
    if text is not None and data is not None:
        raise click.UsageError("give either files to train on or --data, not both")

    from headwise.training.events import Event
    from headwise.training.tensorboard import tensorboard_file
    from headwise.workflows.train import train as train_run

    with ExitStack() as stack:
        watcher = stack.enter_context(watch())
        also = stack.enter_context(tensorboard_file(run)) if tensorboard else None

        def on_event(event: Event) -> None:
            watcher.event(event)
            if also is not None:
                also.event(event)

        report = train_run(
            config,
            run,
            text=text,
            valid=valid,
            data=data,
            init_from=init_from,
            device=device,
            lenient=lenient,
            processes=processes,
            on_event=on_event,
            on_progress=watcher.progress,
            on_prepared=lambda prepared: watcher.say(summary(prepared, run)),
        )
    if report.is_first:
        show(_ending(report))
    if report.signal:
        raise SystemExit(128 + report.signal)


def _ending(report: "TrainReport") -> str:
    """Say why training ended, what there is now, and what to do next."""
    state = report.state
    if report.signal:
        saved = f"saved step {state.step:,}" if state.step else "no update was made yet"
        return f"stopped: {saved}; the same command goes on from there"
    lines = [f"finished at step {state.step:,} ({report.reason}): {visible(str(report.run))}"]
    if state.best_step:
        lines.append(f"best validation loss {state.best_loss:.3f}, at step {state.best_step:,}")
    if report.averaged_steps:
        average = f"averaged the last {len(report.averaged_steps)} checkpoints"
        if report.averaged is not None:
            average += f": validation {', '.join(figures(report.averaged))}"
        lines.append(average)
    return "\n".join(lines)


AVERAGE_EPILOG = """\b
Examples:
  headwise average runs/ende              the last 5 checkpoints, as in the paper's base model
  headwise average runs/ende --last 20    as in its big model
"""


@click.command(epilog=AVERAGE_EPILOG)
@click.argument("run", type=FILE)
@click.option("--last", type=click.IntRange(min=1), help="How many; by default the recipe's.")
def average(run: Path, last: int | None) -> None:
    """Average the weights of a run's last checkpoints.

    They go to RUN/averaged, which every later verb takes unless told otherwise.
    """
    from headwise.runs.checkpoints import average as average_checkpoints
    from headwise.runs.directory import RunDirectory

    directory = RunDirectory(run)
    wanted = last or directory.config().train.average_last
    with directory.locked():
        steps, problems = average_checkpoints(directory, wanted)
    for problem in problems:
        error_line(f"passed over: {problem}")
    averaged = visible(str(directory.averaged))
    found = f"{len(steps)} checkpoints" if len(steps) > 1 else "1 checkpoint"
    fewer = f", all there are of the {wanted} asked for" if len(steps) < wanted else ""
    show(f"averaged {found}{fewer} (steps {', '.join(map(str, steps))}): {averaged}")

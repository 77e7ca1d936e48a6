"""`headwise doctor`: this machine, a recipe on it, and what is wrong with a text."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwise.cli.output import show
from headwise.cli.text_options import counts, text_options, training_text, validation_text
from headwise.visible import visible

if TYPE_CHECKING:
    from headwise.workflows.doctor import Diagnosis

EPILOG = """\b
Examples:
  headwise doctor                          the paper's base model on this machine
  headwise doctor multi30k-tiny
  headwise doctor multi30k-tiny --src train.en --tgt train.de
                                           and what in the text would be left out
"""


@click.command(epilog=EPILOG)
@click.argument("recipe", default="base")
@text_options
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change one value.")
@click.option("--device", help="cpu, cuda, ...; an accelerator if there is one.")
def doctor(
    recipe: str,
    sources: tuple[Path, ...],
    targets: tuple[Path, ...],
    valid_src: tuple[Path, ...],
    valid_tgt: tuple[Path, ...],
    tsv: Path | None,
    valid_tsv: Path | None,
    columns: tuple[int, int],
    lenient: bool,
    processes: int | None,
    overrides: tuple[str, ...],
    device: str | None,
) -> None:
    """Say what a recipe would take on this machine, and what in a text would be left out.

    RECIPE is a shipped recipe's name or a TOML file; without it, the paper's base model. Nothing
    is written. Lines that cannot be read are counted as with --lenient.
    """
    from headwise.cli.watch import watch
    from headwise.recipes import load_recipe

    config = load_recipe(recipe, overrides)
    text = training_text(sources, targets, tsv, columns)
    valid = validation_text(valid_src, valid_tgt, valid_tsv, columns)

    from headwise.workflows.doctor import diagnose

    with watch() as watcher:
        diagnosis = diagnose(
            config,
            text=text,
            valid=valid,
            device=device,
            processes=processes,
            on_progress=watcher.progress,
        )
    show("\n".join(_lines(diagnosis, recipe)))


def _lines(diagnosis: "Diagnosis", recipe: str) -> list[str]:
    from headwise.cli.watch import estimate_lines

    machine = diagnosis.environment
    memory = ""
    if diagnosis.available_mib is not None:
        memory = f", {diagnosis.available_mib / 1024:.1f} GiB of memory available"
    installed = [name for name, there in diagnosis.extras.items() if there]
    missing = [name for name, there in diagnosis.extras.items() if not there]
    lines = [
        f"machine   {machine['cpu']}, {machine['cores']} cores{memory}, "
        f"{diagnosis.free_disk_mib / 1024:.0f} GiB of disk free",
        f"software  Headwise {machine['headwise']}, Python {machine['python']}, "
        f"torch {machine['torch']}; extras: {', '.join(installed) or 'none'}"
        + (f" (not installed: {', '.join(missing)})" if missing else ""),
        f"speed     {diagnosis.gflops:,.0f} GFLOP/s in float32 products on {machine['device']}, "
        f"{machine['threads']} threads",
        f"recipe    {visible(recipe)}: {diagnosis.parameters / 1e6:.1f} million parameters",
    ]
    for line, is_warning in estimate_lines(diagnosis.estimate):
        lines.append(f"{'warning' if is_warning else 'needs':<10}{line}")
    report = diagnosis.text
    if report is None:
        return lines
    lines.append(
        f"text      {report.train.pairs:,} pairs: {report.train_pairs:,} to train on, "
        f"{report.valid_pairs:,} to validate on; {diagnosis.padding:.1%} padding"
    )
    lines += [f"          {sentence}" for sentence in counts(report.train)]
    lines += [f"          validation text: {sentence}" for sentence in counts(report.valid)]
    if diagnosis.too_long:
        lines.append(f"          {diagnosis.too_long:,} pairs are longer than train.batch_tokens")
    return lines

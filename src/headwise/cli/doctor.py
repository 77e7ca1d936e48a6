"""`headwise doctor`: check this machine, a recipe on it, and a text."""

from typing import TYPE_CHECKING, Any

import click

from headwise.cli.output import show
from headwise.cli.text_options import text_options, training_files, validation_files
from headwise.visible import visible

if TYPE_CHECKING:
    from headwise.workflows.doctor import Diagnosis

EPILOG = """\b
Examples:
  headwise doctor                          the paper's base model on this machine
  headwise doctor multi30k-tiny
  headwise doctor multi30k-tiny --src train.en --tgt train.de
                                           and count the pairs that would be dropped
"""


@click.command(epilog=EPILOG)
@click.argument("recipe", default="base")
@text_options
@click.option("--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Change one value.")
@click.option("--device", help="cpu, cuda, ...; default: an accelerator if there is one.")
def doctor(
    recipe: str,
    lenient: bool,
    processes: int | None,
    overrides: tuple[str, ...],
    device: str | None,
    **files: Any,
) -> None:
    """Estimate a recipe's time and memory on this machine, and check a text.

    RECIPE is a shipped recipe's name or a TOML file; without it, the paper's base model. Nothing
    is written. Lines that cannot be read are counted as with --lenient.
    """
    from headwise.cli.watch import watch
    from headwise.recipes import load_recipe

    config = load_recipe(recipe, overrides)
    source, valid = training_files(config, files), validation_files(config, files)

    from headwise.workflows.doctor import diagnose

    with watch() as watcher:
        diagnosis = diagnose(
            config,
            source=source,
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
    if diagnosis.files is None:
        return lines
    first, *others = diagnosis.files.lines()
    lines.append(f"files     {first}; {diagnosis.padding:.1%} padding")
    lines += [f"          {sentence}" for sentence in others]
    if diagnosis.too_long:
        longer = f"{diagnosis.too_long:,} {diagnosis.unit} are longer than train.batch_tokens"
        lines.append(f"          {longer}")
    return lines

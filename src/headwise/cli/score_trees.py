"""`headwise score-trees`: score parse trees in a file like EVALB."""

from pathlib import Path

import click

from headwise.cli.output import show, show_json
from headwise.cli.text_options import FILE

EPILOG = """\b
Examples:
  headwise score-trees gold.txt parsed.txt
  headwise score-trees gold.txt.gz parsed.txt --by-label --by-length
  headwise score-trees gold.txt parsed.txt --parameters new.prm --sentences
  headwise score-trees gold.txt parsed.txt --json --sentences

A line has one tree, as in (S (NP (PRP I)) (VP (VBP agree)) (. .)). An empty line
means that the parser gave no tree. .gz, .xz and .zst files are decompressed.
The figures are EVALB's, with the parameters of its COLLINS.prm: punctuation, traces
and TOP do not count, and PRT is the same as ADVP. A sentence whose words differ from
those of the gold tree is an error; one without words is skipped. Neither is scored.
The interval is a bootstrap: 1,000 resamples of the sentences, seed 12345.
"""


@click.command(epilog=EPILOG)
@click.argument("gold", metavar="GOLD", type=FILE)
@click.argument("test", metavar="TEST", type=FILE)
@click.option("--parameters", "parameter_file", type=FILE, help="A parameter file of EVALB (.prm).")
@click.option("--by-length", is_flag=True, help="Also score short and long sentences apart.")
@click.option("--by-label", is_flag=True, help="Also score each label apart.")
@click.option("--sentences", is_flag=True, help="Also print the figures of each sentence.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def score_trees(
    gold: Path,
    test: Path,
    parameter_file: Path | None,
    by_length: bool,
    by_label: bool,
    sentences: bool,
    as_json: bool,
) -> None:
    """Score parse trees against gold trees: labelled recall, precision and F1 as EVALB does.

    GOLD has the right trees, a tree a line, and TEST the parser's, on the same lines.
    """
    from headwise.cli.watch import watch
    from headwise.evaluation import (
        COLLINS,
        bracket_report,
        bracket_values,
        label_table,
        length_table,
        read_parameters,
        score_tree_files,
        sentence_table,
    )

    parameters = COLLINS if parameter_file is None else read_parameters(parameter_file)
    with watch() as watcher:
        scores = score_tree_files(gold, test, parameters, on_progress=watcher.progress)
    if as_json:
        show_json(
            bracket_values(scores, by_length=by_length, by_label=by_label, sentences=sentences)
        )
        return
    tables = [
        *([sentence_table(scores)] if sentences else []),
        bracket_report(scores),
        *([length_table(scores)] if by_length else []),
        *([label_table(scores)] if by_label else []),
    ]
    show("\n\n".join(tables))

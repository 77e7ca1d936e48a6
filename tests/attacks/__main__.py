"""Measure the attacks on the server of a source tree, and write the figures as JSON."""

import argparse
import json
import tempfile
from pathlib import Path

from tests.attacks.run import measure
from tests.small_runs import train_reversing

parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
parser.add_argument("--json", type=Path, required=True, help="the file to write")
parser.add_argument("--source", type=Path, help="a source tree's src; by default this one's")
arguments = parser.parse_args()
with tempfile.TemporaryDirectory() as name:
    directory = Path(name)
    results = measure(train_reversing(directory), directory, arguments.source)
arguments.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")

"""A process of a distributed run in double precision, for tests: torchrun starts it.

python tests/double_worker.py RUN SOURCE TARGET
python tests/double_worker.py RUN TEXT
"""

import sys
from pathlib import Path

import torch

from headwise.data import ParallelFiles
from headwise.tasks.language_model.files import TextFiles
from headwise.workflows.train import train
from tests.small_runs import small_config, small_text_config

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    run, *files = map(Path, sys.argv[1:])
    if len(files) == 1:
        train(small_text_config(), run, text=TextFiles.of(files))
    else:
        train(small_config(), run, text=ParallelFiles.of(*files))

"""The paper's tables as measurements: `headwise reproduce`.

Each table is a list of cells, and each cell one measurement or one training. What is measured is
stored after every cell (`store.py`), so that a table that was killed goes on where it was.
"""

"""The encoded text in a run's own directory."""

from headwise.data import TokenShards
from headwise.runs.directory import RunDirectory


def own_shards(run: RunDirectory, part: str) -> TokenShards | None:
    """Open the run's "train" or "valid" shards, if they are in its own directory.

    Shards elsewhere, which only origin.json names, are never opened here: the run may come from a
    stranger, who may have written any path into it.
    """
    folder = run.folder / "data" / part
    return TokenShards(folder) if folder.exists() else None

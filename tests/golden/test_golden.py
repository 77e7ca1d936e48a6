"""A run that an earlier version made is loaded, resumed and served as it was then."""

import json
import shutil
from pathlib import Path

import pytest

from headwise import Translator
from tests.conftest import Headwise
from tests.servers import start_serve

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "translation.json").read_text())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Copy the run, as a later version may write to it."""
    return Path(shutil.copytree(HERE / "translation", tmp_path / "translation"))


def test_it_translates_as_before(run: Path) -> None:
    found = Translator.load(run).translate(EXPECTED["sentences"])
    assert [each.text for each in found] == EXPECTED["translations"]["200"]


def test_it_is_resumed_and_ends_as_it_did(run: Path, headwise: Headwise) -> None:
    code, _, errors = headwise("train", "--run", str(run))
    assert code == 0
    assert "going on from step 200" in errors
    found = Translator.load(run).translate(EXPECTED["sentences"])
    assert [each.text for each in found] == EXPECTED["translations"]["400"]


def test_it_is_served(run: Path, tmp_path: Path) -> None:
    with start_serve(run, tmp_path) as server:
        answers = server.translate(EXPECTED["sentences"], split=False)
    assert [each["text"] for each in answers] == EXPECTED["translations"]["200"]

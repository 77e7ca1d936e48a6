"""What `headwise doctor` says is installed."""

import importlib.util
from typing import Any

import pytest

from headwise.workflows.doctor import installed_extras


@pytest.mark.parametrize("missing", ["soundfile", "soxr"])
def test_audio_needs_both_of_its_libraries(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert installed_extras()["audio"]
    find_spec = importlib.util.find_spec

    def find(name: str) -> Any:
        return None if name == missing else find_spec(name)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    assert not installed_extras()["audio"]

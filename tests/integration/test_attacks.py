"""Attacks on a server: whatever others send, a client that does nothing wrong is answered."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.attacks import page, run

MOST_MB = 800
"""What a server may use at its peak: torch and the model, and what all limits together allow."""


@pytest.fixture(scope="module")
def results(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run.measure(trained_run, tmp_path_factory.mktemp("attacks"))


@pytest.mark.slow
def test_other_clients_are_served_during_attacks(results: dict[str, Any]) -> None:
    if os.environ.get("HEADWISE_WRITE_ATTACKS"):
        page.write(results)
    for name, figures in results["attacks"].items():
        assert figures["recovered"], name
        assert figures["health"]["failures"] == [], name
        assert figures["translations"]["failures"] == [], name
        assert figures["peak_mb"] <= MOST_MB, name
        # An attack that reaches nothing shows nothing.
        assert figures["statuses"], name

"""The attacks themselves: what they send, what they count, and the page about them."""

import json
from itertools import islice
from typing import Any

from headwise.serving.limits import Limits
from headwise.tasks.translation.translator import _LONGEST_MINIMUM
from tests.attacks import page, payloads
from tests.attacks.innocent import Answers
from tests.attacks.run import ALL, HOLDING
from tests.attacks.swarm import attacks

NAMES = [*attacks(), ALL]


def figures(worst: float = 20, failures: int = 0) -> dict[str, Any]:
    waits = {"requests": 50, "p50_ms": 8, "p95_ms": 10, "worst_ms": worst}
    return {
        "health": {**waits, "failures": []},
        "translations": {**waits, "failures": ["504"] * failures},
        "peak_mb": 300,
        "recovered": True,
        "statuses": {"200": 1234, "closed": 2},
    }


def results(commit: str, **attacked: dict[str, Any]) -> dict[str, Any]:
    return {
        "commit": commit,
        "measured": "2026-01-02",
        "cores": 2,
        "unloaded": figures(),
        "attacks": {name: attacked.get(name, figures()) for name in NAMES},
    }


def test_the_page_has_a_row_for_every_attack_and_shows_what_failed() -> None:
    crashed = {**figures(), "peak_mb": None}
    lost = {**figures(), "recovered": False}
    bad = results("aaaa", types=figures(26_460, failures=3), json=crashed, forms=lost)
    rows = [line for line in page.page(bad, results("bbbb")).splitlines() if line.startswith("| ")]
    assert len(rows) == len(NAMES) + 2  # The heading, and what there is without any attack.
    good = "health 20 ms; 8 ms / 10 ms / 20 ms; 0 failed; 300 MB"
    types, odd_json, forms = rows[2:5]
    before = "health 26.5 s; 8 ms / 10 ms / 26.5 s; **3 of 100 failed**; 300 MB"
    assert f"| {before} | {good} | 200: 1,234, closed: 2 |" in types
    assert f"| **crashed** | {good} |" in odd_json
    assert f"| {good}; **did not recover** | {good} |" in forms


def test_the_page_compares_the_waits_with_and_without_attacks() -> None:
    slow = {**figures(), "translations": {**figures()["translations"], "p95_ms": 35}}
    text = page.page(results("aaaa", **{ALL: slow}), results("bbbb"))
    assert "is 1.0 times what it is without any; before, it was 3.5 times" in text


def test_what_was_measured_before_has_every_attack() -> None:
    before = json.loads(page.BEFORE.read_text("utf-8"))
    assert list(before["attacks"]) == NAMES == list(page.TITLES)


def test_bodies_and_texts_are_as_large_as_limits_allow() -> None:
    limits = Limits()
    for requests in (payloads.odd_json(), payloads.odd_forms()):
        for request in islice(requests, 8):
            body = request.partition(b"\r\n\r\n")[2]
            assert 0.75 * limits.body_bytes < len(body) < limits.body_bytes
    for requests in (payloads.many_lines(), payloads.wide(), payloads.details()):
        body = json.loads(next(requests).partition(b"\r\n\r\n")[2])
        assert 0.9 * limits.characters < len(body["q"]) <= limits.characters
    asked = json.loads(next(payloads.wide()).partition(b"\r\n\r\n")[2])
    assert asked["beam"] == asked["nbest"] == limits.candidates
    assert asked["min_length"] == payloads.LONGEST_MINIMUM == _LONGEST_MINIMUM
    assert set(HOLDING) < set(NAMES)


def test_waits_are_sorted_before_a_share_of_them_is_taken() -> None:
    answers = Answers([0.3, 0.1, 0.2, 0.4], ["429"])
    assert answers.figures() == {
        "requests": 4,
        "failures": ["429"],
        "p50_ms": 300.0,
        "p95_ms": 400.0,
        "worst_ms": 400.0,
    }

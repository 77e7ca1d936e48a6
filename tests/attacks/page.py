"""docs/security-tests.md: the figures of two source trees beside each other."""

import json
from pathlib import Path
from typing import Any

from tests.attacks.run import ALL, ALONE_SECONDS, HOLDING_SECONDS, TOGETHER_SECONDS

PAGE = Path(__file__).parents[2] / "docs" / "security-tests.md"
BEFORE = Path(__file__).with_name("before.json")

TITLES = {
    "types": "bodies of 195 and 980 kB with the wrong type 490,000 times, to both translate routes",
    "json": "bodies as large as allowed: 17,000 keys, 195,000 levels, 65,000 empty objects",
    "forms": "forms as large as allowed: 48,000 fields, escapes, 3,900 parts, boundaries alone",
    "lines": "texts of 400, 900 and 4,995 lines with a letter each",
    "searches": "300 to 9,990 characters with beam 16, 16 candidates, a million tokens, any alpha",
    "details": "alignment and token scores of up to 9,990 characters, attention of long sentences",
    "readers": "large answers read at a byte a second",
    "hoarders": "999 kB of a body of 1 MB, then nothing; headers at a byte a second",
    "flood": "400 connections that send nothing, from one more address",
    "sites": "foreign Host, cross-site requests with Origin and Sec-Fetch-Site",
    "hang-ups": "expensive searches, and the connection reset at once",
    "pipelines": "100 requests in one packet, again and again",
    "garbage": "refused requests followed by malformed chunks",
    ALL: "**all of these at once**",
}


def write(now: dict[str, Any]) -> None:
    """Write the page; what was before is stored beside this file."""
    PAGE.write_text(page(json.loads(BEFORE.read_text("utf-8")), now), "utf-8")


def page(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return the whole page."""
    assert set(TITLES) == set(now["attacks"])
    rows = [
        f"| {title} | {_cell(before['attacks'].get(name))} | {_cell(now['attacks'][name])} | "
        f"{_statuses(now['attacks'][name]['statuses'])} |"
        for name, title in TITLES.items()
    ]
    ratio_before, ratio_now = (
        _ratio(results["attacks"][ALL], results["unloaded"]) for results in (before, now)
    )
    return "\n".join(
        [
            "# Attacks on a server",
            "",
            "`make security-tests` writes this page; `tests/attacks` has the attacks.",
            "",
            f"Each attack runs for {ALONE_SECONDS:g} seconds ({HOLDING_SECONDS:g} if it holds "
            "connections) against a new `headwise serve` with default options, all together for "
            f"{TOGETHER_SECONDS:g}. The attackers have eight connections from four addresses, "
            "which take turns at the attacks when all run together, 400 more for the one that only "
            "holds connections, and half a core; the server "
            f"shares {now['cores']} cores with them. Meanwhile a client at another address asks "
            "for `/healthz` and for the translation of three words, five times a second each, "
            "on a new connection each time.",
            "",
            "Cells: the longest wait for `/healthz`, which shows how long the event loop was "
            "held; the median, 95th percentile and longest wait for a translation; requests of "
            "this client that failed; the server's peak memory.",
            "",
            f"Before is commit {before['commit']}, measured on {before['measured']}. Now is "
            f"{now['commit']}, measured on {now['measured']}. Timings are of one run on a small "
            "shared machine; before, it was busy with other work, bodies were of up to 980 kB, and "
            "all together had eight connections each.",
            "",
            "| attack | before | now | statuses that the attackers get now |",
            "|---|---|---|---|",
            f"| none | {_cell(before['unloaded'])} | {_cell(now['unloaded'])} | |",
            *rows,
            "",
            "With all attacks at once the 95th percentile of the innocent client's translations "
            f"is {ratio_now} times what it is without any; before, it was {ratio_before} times.",
            "",
        ]
    )


def _cell(figures: dict[str, Any] | None) -> str:
    if figures is None:
        return "not measured"
    if figures["peak_mb"] is None:
        return "**crashed**"
    health, translations = figures["health"], figures["translations"]
    times = " / ".join(_ms(translations[name]) for name in ("p50_ms", "p95_ms", "worst_ms"))
    failures = len(health["failures"]) + len(translations["failures"])
    requests = health["requests"] + translations["requests"]
    failed = f"**{failures} of {requests} failed**" if failures else "0 failed"
    parts = [f"health {_ms(health['worst_ms'])}", times, failed, f"{figures['peak_mb']} MB"]
    if not figures.get("recovered", True):
        parts.append("**did not recover**")
    return "; ".join(parts)


def _ms(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.1f} s" if milliseconds >= 1000 else f"{milliseconds:.0f} ms"


def _statuses(counts: dict[str, int]) -> str:
    return ", ".join(f"{status}: {count:,}" for status, count in counts.items()) or "none"


def _ratio(loaded: dict[str, Any], unloaded: dict[str, Any]) -> str:
    return f"{loaded['translations']['p95_ms'] / unloaded['translations']['p95_ms']:.1f}"

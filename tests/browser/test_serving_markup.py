"""Markup in any field is shown as text."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.servers import Running, running, served
from tests.watching import watched

_DOES = "alert(1)"
_ELEMENTS = [
    f"<script data-hit>{_DOES}</script>",
    f"<ScRiPt data-hit>{_DOES}</sCrIpT>",
    "<script data-hit src=//evil.example/x.js></script>",
    f"<img data-hit src=x onerror={_DOES}>",
    f"<img data-hit src=x onerror='{_DOES}'//",
    f"<svg data-hit onload={_DOES}>",
    f"<svg data-hit><script>{_DOES}</script></svg>",
    f"<svg data-hit><animate onbegin={_DOES} attributeName=x></svg>",
    f"<iframe data-hit src=javascript:{_DOES}></iframe>",
    f"<iframe data-hit srcdoc='<script>{_DOES}</script>'></iframe>",
    f"<body data-hit onload={_DOES}>",
    f"<details data-hit open ontoggle={_DOES}>",
    f"<video data-hit><source onerror={_DOES}></video>",
    f"<audio data-hit src=x onerror={_DOES}>",
    f"<input data-hit autofocus onfocus={_DOES}>",
    f"<a data-hit href=javascript:{_DOES}>x</a>",
    f"<form data-hit action=javascript:{_DOES}><button>x</button></form>",
    f"<object data-hit data=javascript:{_DOES}></object>",
    f"<embed data-hit src=javascript:{_DOES}>",
    "<link data-hit rel=stylesheet href=//evil.example/x.css>",
    "<style data-hit>@import '//evil.example/x.css';</style>",
    "<meta data-hit http-equiv=refresh content='0;url=//evil.example'>",
    "<base data-hit href=//evil.example/>",
    f"<math data-hit><mi xlink:href=javascript:{_DOES}>x</mi></math>",
    f"<marquee data-hit onstart={_DOES}>x</marquee>",
]
_BREAKERS = ["", '">', "'>", "</textarea>", "</script>", "</select>", "--><", "]]>", "`>", "</dd>"]
PAYLOADS = [
    f"{_BREAKERS[number % len(_BREAKERS)]}{element}" for number, element in enumerate(_ELEMENTS * 2)
]
PAYLOADS[-4:] = [
    f'" data-hit onmouseover={_DOES} x="',
    f"javascript:{_DOES}",
    "${" + _DOES + "}",
    "{{constructor.constructor('" + _DOES + "')()}}",
]


@pytest.fixture(scope="module")
def server(trained_run: Path) -> Iterator[Running]:
    with running([served(trained_run)]) as server:
        yield server


@pytest.fixture
def page(browser: Browser, server: Running) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    with watched(page, server.url):
        yield page
    context.close()


def clean(page: Page) -> None:
    """See that no payload has become an element, or an attribute of one."""
    assert page.locator("[data-hit]").count() == 0
    tags = set(page.evaluate("[...document.querySelectorAll('*')].map(e => e.localName)"))
    assert not tags & {"iframe", "object", "embed", "video", "audio", "base", "marquee", "math"}
    assert page.locator("script:not([src^='/static/'])").count() == 0


def test_there_are_fifty_payloads() -> None:
    assert len(set(PAYLOADS)) == 50


def test_markup_in_the_input(page: Page, server: Running) -> None:
    page.goto(f"{server.url}/")
    page.fill("#source", "\n".join(PAYLOADS))
    expect(page.locator("#alternatives .of").nth(49)).to_be_visible()
    expect(page.locator("#explorer select option").first).to_be_attached()
    assert page.locator("#alternatives").inner_text().count("data-hit") >= 40
    clean(page)


def answer_with(payload: str) -> dict[str, Any]:
    """What the server might answer if every text in it were the payload."""
    candidate = {"text": payload, "score": -1.0, "log_prob": -1.0, "tokens": [payload] * 2}
    sentence = {
        "source": payload,
        "text": payload,
        "source_tokens": [payload],
        "candidates": [candidate] * 2,
        "token_log_probs": [-0.1, -0.2, -0.3],
        "parts": [],
    }
    weights = [[[[0.5, 0.5]] * 2]]
    record = {
        "source": payload,
        "target": payload,
        "source_tokens": [payload] * 2,
        "input_tokens": [payload] * 2,
        "output_tokens": [payload] * 2,
        "encoder": weights,
        "decoder": weights,
        "cross": weights,
    }
    return {
        "**/v1/translate": {"model": payload, "translations": [sentence]},
        "**/v1/attention": {"model": payload, "records": [record] * 2, "left_out": 1},
    }


def models_of(payloads: list[str]) -> dict[str, Any]:
    return {
        "models": [
            {
                "name": payload,
                "source": payload,
                "target": payload,
                "attention": True,
                "card": {
                    "engine": payload,
                    "weights": payload,
                    "parameters": payload,
                    "vocabulary": payload,
                    "recipe": dict.fromkeys(("layers", "heads", "d_model", "beam"), payload),
                    "training": {"steps": payload},
                    "nearest_experiment": payload,
                    "departures": [payload],
                },
            }
            for payload in payloads
        ],
        "max_characters": 10_000,
        "max_candidates": 16,
    }


def through_every_field(page: Page, server: Running, payloads: list[str]) -> None:
    """Let a server say each payload in everything that it can say."""
    now = {"problem": False, "payload": payloads[0]}

    def answer(route: Route) -> None:
        payload = str(now["payload"])
        if now["problem"]:
            route.fulfill(status=400, json={"error": payload})
            return
        said = answer_with(payload)
        route.fulfill(json=said["**/v1/" + route.request.url.rpartition("/")[2]])

    page.route("**/v1/translate", answer)
    page.route("**/v1/attention", answer)
    page.route("**/v1/models", lambda route: route.fulfill(json=models_of(payloads)))
    page.goto(f"{server.url}/")
    page.fill("#source", "ban")
    for number, payload in enumerate(payloads):
        now.update(problem=False, payload=payload)
        page.select_option("#model", index=number)
        expect(page.locator("#output")).to_have_text(payload)
        expect(page.locator("#card")).to_contain_text(payload)
        expect(page.locator("#explorer .hw-words")).to_be_visible()
        clean(page)
        now["problem"] = True
        page.fill("#source", f"ban {number}")
        expect(page.locator("#problem")).to_contain_text(payload)
        clean(page)


def test_markup_in_the_servers_answers(page: Page, server: Running) -> None:
    through_every_field(page, server, PAYLOADS[::10])


@pytest.mark.slow
def test_all_markup_in_the_servers_answers(page: Page, server: Running) -> None:
    through_every_field(page, server, PAYLOADS)


def test_paths_and_keys_are_not_echoed(page: Page, server: Running) -> None:
    for payload in PAYLOADS[:3]:
        status, answer, _ = server.ask("GET", "/" + payload.replace(" ", "%20"))
        assert status == 404
        assert "data-hit" not in json.dumps(answer)

"""Every generated page comes from `render_document`, and its policy blocks all but its own style.

The attention page and the report are tested in a browser, which enforces the policy.
"""

import base64
import hashlib
import re

import pytest

from headwise.inspect.curves import curves_of
from headwise.inspect.curves_page import CHART_STYLE, render_curves
from headwise.inspect.document import STYLE
from headwise.inspect.explain import EXAMPLE, parse_head, walk
from headwise.inspect.explain_page import render_page

METRICS = [{"kind": "train", "step": n, "loss": 5.0 - n, "rate": 1e-3} for n in range(3)]

PAGES = {
    "explain": render_page(walk(parse_head(EXAMPLE, "test"))),
    "curves": render_curves(curves_of({"a": METRICS})),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_policy_allows_the_page_s_own_style_and_nothing_else(name: str) -> None:
    page = PAGES[name]
    style = page.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = page.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; script-src ")
    # The policy would block these.
    assert not re.search(r"<[^>]*\s(style|on\w+)=", page)
    assert "<script" not in page


@pytest.mark.parametrize("name", PAGES)
def test_every_colour_variable_is_defined_once(name: str) -> None:
    style = PAGES[name].partition("<style>")[2].partition("</style>")[0]
    assert style.count(":root") == 2, "light and dark, in STYLE"
    assert style.startswith(STYLE)
    for variable in set(re.findall(r"var\((--[\w-]+)\)", style)):
        assert f"{variable}:" in style, variable


def test_charts_need_only_the_style_of_documents() -> None:
    for variable in set(re.findall(r"var\((--[\w-]+)\)", CHART_STYLE)):
        assert f"{variable}:" in STYLE + CHART_STYLE, variable

"""The report and its explorer in a real browser, from a file and offline."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from headwise.inspect.attention import AttentionRecord, Kind, attention_record
from headwise.tasks.translation.translator import Translator
from tests.browser.conftest import ColorScheme, OpenPage
from tests.watching import text_of, wait_until

KINDS: dict[str, Kind] = {
    "Encoder-decoder attention": "cross",
    "Encoder self-attention": "encoder",
    "Decoder self-attention": "decoder",
}


@pytest.fixture(scope="module")
def records(deep_run: Path, report_page: Path) -> list[AttentionRecord]:
    """What the model's own trace says of the sentences in the report, computed anew."""
    start = '<script type="application/json" id="page-data">'
    _, _, rest = report_page.read_text("utf-8").partition(start)
    data = json.loads(rest.partition("</script>")[0])
    translator = Translator.load(deep_run)
    return [attention_record(translator, record["source"]) for record in data["records"]]


def radio(page: Page, name: str) -> Locator:
    return page.get_by_role("radio", name=name)


def shown_weights(page: Page) -> list[list[float | None]]:
    """The matrix as the page shows it, with None for what is hidden."""
    weights: list[list[float | None]] = page.evaluate(
        """() => [...document.querySelectorAll(".hw-scroll tbody tr")].map((row) =>
          [...row.querySelectorAll("td")].map((cell) => cell.title ? Number(cell.title) : null))"""
    )
    return weights


def shown_numbers(page: Page) -> list[str]:
    return page.locator(".hw-columns li .hw-number").all_text_contents()


def without_future(kind: Kind, matrix: list[list[float]]) -> list[list[float | None]]:
    if kind != "decoder":
        return [list(row) for row in matrix]
    return [[w if c <= r else None for c, w in enumerate(row)] for r, row in enumerate(matrix)]


def choices() -> Iterator[tuple[int, str, Kind, int, int]]:
    """Different sentences, and every kind, layer and head at least once."""
    for sentence in (1, 4):
        for place, (name, kind) in enumerate(KINDS.items()):
            yield sentence, name, kind, (sentence + place) % 3, (sentence + place) % 4


def test_the_numbers_shown_are_the_models_trace(
    open_page: OpenPage, report_page: Path, records: list[AttentionRecord]
) -> None:
    page = open_page(report_page)
    assert page.locator("h1").text_content() == "English to German"
    assert len(records) == 5
    for sentence, name, kind, layer, head in choices():
        page.get_by_label("Sentence", exact=True).select_option(index=sentence)
        radio(page, name).check()
        radio(page, f"Layer {layer + 1}").check()
        radio(page, f"Head {head + 1}").check()
        heads = records[sentence].weights(kind)[layer]
        assert shown_weights(page) == without_future(kind, heads[head])
        assert heads[head] not in heads[:head] + heads[head + 1 :], "or any head would do"
    radio(page, "Mean of all").check()
    mean = [
        [sum(cells) / len(cells) for cells in zip(*rows, strict=True)]
        for rows in zip(*heads, strict=True)
    ]
    for ours, theirs in zip(shown_weights(page), without_future(kind, mean), strict=True):
        assert ours == pytest.approx(theirs, abs=0.51e-4)


def test_a_word_shows_what_it_looks_at_and_a_sentence_says_so(
    open_page: OpenPage, report_page: Path, records: list[AttentionRecord]
) -> None:
    page = open_page(report_page)
    record = records[0]
    radio(page, "Layer 1").check()
    radio(page, "Head 3").check()
    for row, weights in enumerate(record.cross[0][2]):
        page.locator(".hw-rows label").nth(row).click()
        page.mouse.move(0, 0)
        numbers = shown_numbers(page)
        assert [float(n) for n in numbers] == pytest.approx(weights, abs=0.0051)
        says = text_of(page.locator(".hw-says"))
        best = record.source_tokens[max(range(len(weights)), key=weights.__getitem__)].strip()
        best = "the end of the sentence" if best == "‹end›" else f"“{best}”"
        assert f"head 3 of layer 1 looks most at {best}" in says
        assert f"({max(weights):.2f})" in says or f"({max(weights) + 1e-9:.2f})" in says
        last = row == len(record.output_tokens) - 1
        written = "the end of the sentence" if last else f"“{record.output_tokens[row].strip()}”"
        assert says.startswith(f"When it writes {written}")


def test_hovering_asks_and_leaving_returns(open_page: OpenPage, report_page: Path) -> None:
    page = open_page(report_page)
    page.locator(".hw-rows label").nth(0).click()
    page.mouse.move(0, 0)
    before = page.locator(".hw-says").text_content()
    page.locator(".hw-rows label").nth(1).hover()
    assert page.locator(".hw-says").text_content() != before
    page.mouse.move(0, 0)
    assert page.locator(".hw-says").text_content() == before
    cell = page.locator(".hw-scroll tbody tr").nth(1).locator("td").nth(2)
    cell.hover()
    says = text_of(page.locator(".hw-says"))
    assert f" {cell.get_attribute('title')} of their attention" in says
    cell.click()
    page.mouse.move(0, 0)
    assert page.locator(".hw-rows input").nth(1).is_checked()


def test_the_keyboard_reaches_everything(open_page: OpenPage, report_page: Path) -> None:
    page = open_page(report_page)
    page.get_by_label("Sentence", exact=True).focus()
    page.keyboard.press("ArrowDown")
    assert page.get_by_label("Sentence", exact=True).input_value() == "1"

    def focused() -> str:
        return str(page.evaluate("document.activeElement.name || document.activeElement.className"))

    page.keyboard.press("Tab")
    assert focused().endswith("kind")
    page.keyboard.press("ArrowRight")
    assert radio(page, "Encoder self-attention").is_checked()
    page.keyboard.press("Tab")
    assert focused().endswith("layer")
    page.keyboard.press("ArrowRight")
    assert radio(page, "Layer 3").is_checked()
    page.keyboard.press("Tab")
    assert focused().endswith("head")
    page.keyboard.press("ArrowRight")
    assert radio(page, "Head 1").is_checked()
    page.keyboard.press("Tab")
    assert focused().endswith("word")
    before = page.locator(".hw-says").text_content()
    page.keyboard.press("ArrowDown")
    after = text_of(page.locator(".hw-says"))
    assert before != after
    assert "head 1 of layer 3" in after
    # What is focused can be seen to be.
    outline = page.evaluate(
        "getComputedStyle(document.activeElement.nextElementSibling).outlineStyle"
    )
    assert outline == "solid"
    page.keyboard.press("Tab")
    assert focused() == "hw-scroll"


def test_screen_readers_hear_names_and_changes(open_page: OpenPage, report_page: Path) -> None:
    page = open_page(report_page)
    assert text_of(page.get_by_role("status")).startswith("When it writes")
    for name in ("Kind of attention", "Layer", "Head", "Writing"):
        assert page.get_by_role("group", name=name).count() == 1
    region = page.get_by_role("region", name="Encoder-decoder attention, the mean of all heads")
    assert region.get_by_role("columnheader").count() >= 3
    assert region.get_by_role("rowheader").count() >= 3
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input, select")].filter((control) =>
          !control.labels.length && !control.getAttribute("aria-label")).length"""
    )
    assert unnamed == 0


@pytest.mark.parametrize("width", [400, 2560])
def test_no_page_is_wider_than_its_window(
    open_page: OpenPage, report_page: Path, width: int
) -> None:
    page = open_page(report_page, width=width, has_touch=width == 400)
    page.get_by_text("The whole recipe").click()
    for name in KINDS:
        radio(page, name).check()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Only what scrolls in a box of its own may reach beyond the window.
    outside = page.evaluate(
        """(width) => [...document.querySelectorAll("main *")].filter((element) =>
          !element.closest(".hw-scroll, .scroll, pre, svg, .hw-out-of-sight")
          && element.getBoundingClientRect().right > width + 1).map((e) => e.outerHTML)""",
        width,
    )
    assert outside == []
    if width == 400:  # A finger chooses, too.
        page.locator(".hw-rows label").nth(2).tap()
        assert page.locator(".hw-rows input").nth(2).is_checked()
        assert "hw-on" in (page.locator(".hw-rows label").nth(2).get_attribute("class") or "")


CONTRASTS = """() => {
  const channel = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r / 255) + 0.7152 * channel(g / 255)
    + 0.0722 * channel(b / 255);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const over = ([r, g, b, a = 1], under) => [r, g, b].map((v, i) => v * a + under[i] * (1 - a));
  const ground = (element) => {
    const colour = parse(getComputedStyle(element).backgroundColor);
    if (colour[3] === undefined) return colour;
    return over(colour, element.parentElement ? ground(element.parentElement) : [255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("svg, option, noscript, .hw-hidden,"
      + ".hw-out-of-sight, .hw-continues")) continue;
    const under = ground(element);
    const ink = over(parse(getComputedStyle(element).color), under);
    const [low, high] = [light(under), light(ink)].sort((a, b) => a - b);
    found.push([(high + 0.05) / (low + 0.05), element.className + " " + walker.currentNode.data]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_in_light_and_dark(
    open_page: OpenPage, report_page: Path, scheme: ColorScheme
) -> None:
    page = open_page(report_page, color_scheme=scheme, reduced_motion="reduce")
    # Weights of every size, which the run at hand may not have.
    page.evaluate(
        """() => {
          const data = JSON.parse(document.getElementById("page-data").textContent);
          for (const layer of data.records[0].cross) for (const head of layer)
            head.forEach((row, r) => row.forEach((_, c) => {
              row[c] = (r * row.length + c) / (head.length * row.length - 1);
            }));
          HeadwiseExplorer.mount(document.getElementById("explorer"), data.records[0]);
        }"""
    )
    contrasts = page.evaluate(CONTRASTS)
    assert len(contrasts) > 200
    assert contrasts[0][0] >= 4.5, contrasts[:5]
    durations = page.evaluate(
        """() => [...new Set([...document.querySelectorAll("*")].map((element) =>
          getComputedStyle(element).transitionDuration))]"""
    )
    assert durations == ["0s"], "nothing moves for those who want that"
    is_dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
    assert is_dark == (scheme == "dark")


def test_a_change_of_scheme_recolours_what_is_drawn(open_page: OpenPage, report_page: Path) -> None:
    page = open_page(report_page, color_scheme="light")
    darkest = """() => { const canvas = document.querySelector(".hw-heads canvas");
      const copy = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      copy.drawImage(canvas, 0, 0);
      const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
      let best = 0;
      for (let i = 0; i < data.length; i += 4) if (data[i + 3] > data[best + 3]) best = i;
      return [...data.slice(best, best + 3)]; }"""
    assert page.evaluate(darkest) == pytest.approx([31, 95, 191], abs=3)
    page.emulate_media(color_scheme="dark")
    wait_until(page, f"({darkest})()[0] > 100")
    assert page.evaluate(darkest) == pytest.approx([125, 177, 255], abs=3)


def test_mounting_again_replaces_and_keeps_the_choice(
    open_page: OpenPage, report_page: Path
) -> None:
    page = open_page(report_page)
    choice = page.evaluate(
        """() => {
          const data = JSON.parse(document.getElementById("page-data").textContent);
          const place = document.getElementById("explorer");
          const wanted = { kind: "decoder", layer: 0, head: 3, word: 1 };
          const first = HeadwiseExplorer.mount(place, data.records, wanted);
          return HeadwiseExplorer.mount(place, data.records, first.choice).choice;
        }"""
    )
    assert choice == {"sentence": 0, "kind": "decoder", "layer": 0, "head": 3, "word": 1}
    assert page.locator(".hw-explorer").count() == 1
    assert radio(page, "Head 4").is_checked()
    nonsense = page.evaluate(
        """() => HeadwiseExplorer.mount(document.getElementById("explorer"),
          JSON.parse(document.getElementById("page-data").textContent).records,
          { sentence: 99, kind: "toString", layer: -1, head: 1.5, word: 1e9 }).choice"""
    )
    assert (nonsense["sentence"], nonsense["kind"], nonsense["layer"]) == (0, "cross", 1)
    assert nonsense["head"] == "mean"

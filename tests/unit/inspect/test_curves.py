import errno
import itertools
import json
import math
import os
import random
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import CheckpointError, HeadwiseError, RequestError
from headwise.inspect.curves import (
    PALETTE_DARK,
    PALETTE_LIGHT,
    Chart,
    Curves,
    curves_of,
    labels_of,
    load_curves,
    thinned,
)
from headwise.inspect.curves_figure import render_figure
from headwise.inspect.curves_file import write_curves
from headwise.inspect.curves_page import chart_svg, render_curves
from headwise.inspect.document import STYLE

NAN, INF = math.nan, math.inf


def train(step: int, loss: object = 3.0, **changes: object) -> dict[str, Any]:
    line = {"kind": "train", "step": step, "minutes": step / 80, "loss": loss, "rate": step * 1e-6}
    return line | {"target_tokens_per_second": 5000.0 + step} | changes


def valid(step: int, loss: float = 3.2, **changes: object) -> dict[str, Any]:
    line = {"kind": "valid", "step": step, "minutes": step / 80, "loss": loss}
    return line | {"perplexity": math.exp(loss)} | changes


METRICS = [train(50, 9.0), train(100, 5.0), valid(100, 5.5), train(150, 4.0), valid(150, 4.5)]


def write_run(path: Path, lines: Sequence[dict[str, Any]] = METRICS) -> Path:
    path.mkdir(parents=True)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def chart_of(curves: Curves, name: str) -> Chart:
    return next(chart for chart in curves.charts if chart.name == name)


def points(curves: Curves, name: str) -> dict[tuple[str, str], list[tuple[float, float]]]:
    return {
        (curve.label, curve.part): list(zip(curve.xs, curve.ys, strict=True))
        for curve in chart_of(curves, name).curves
    }


def test_each_chart_has_the_numbers_of_its_lines(tmp_path: Path) -> None:
    curves = load_curves([write_run(tmp_path / "a"), write_run(tmp_path / "b", [train(7, 2.0)])])
    assert [chart.name for chart in curves.charts] == ["loss", "perplexity", "rate", "speed"]
    assert points(curves, "loss") == {
        ("a", "train"): [(50, 9), (100, 5), (150, 4)],
        ("b", "train"): [(7, 2)],
        ("a", "valid"): [(100, 5.5), (150, 4.5)],
    }
    assert points(curves, "perplexity") == {
        ("a", "valid"): [(100, math.exp(5.5)), (150, math.exp(4.5))]
    }
    assert points(curves, "rate")["a", "train"] == [(s, s * 1e-6) for s in (50, 100, 150)]
    assert points(curves, "speed")["b", "train"] == [(7, 5007)]


def test_minutes_instead_of_steps() -> None:
    curves = curves_of({"a": METRICS}, by="minutes")
    assert points(curves, "loss")["a", "valid"] == [(100 / 80, 5.5), (150 / 80, 4.5)]
    assert {chart.by for chart in curves.charts} == {"minutes"}
    assert chart_of(curves, "loss").x.high < 2
    with pytest.raises(RequestError, match="^a: no value that could be drawn by minutes$"):
        curves_of({"a": [{"kind": "train", "step": 1, "loss": 2.0}]}, by="minutes")


def test_a_wide_range_of_perplexity_is_logarithmic_and_a_narrow_one_is_not() -> None:
    wide = chart_of(curves_of({"a": [valid(1, 8.0), valid(2, 2.0)]}), "perplexity")
    assert (wide.y.is_log, wide.unit) == (True, "per token, logarithmic")
    narrow = chart_of(curves_of({"a": [valid(1, 3.0), valid(2, 2.0)]}), "perplexity")
    assert (narrow.y.is_log, narrow.unit) == (False, "per token")


def test_labels_are_directory_names_made_distinct(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert labels_of([Path("runs/a"), Path("runs/b/"), Path(".")]) == ["a", "b", "here"]
    paths = [Path("x/1/run"), Path("y/1/run"), Path("y/2/run"), Path("other")]
    assert labels_of(paths) == ["x/1/run", "y/1/run", "2/run", "other"]
    assert labels_of([Path("a\nb\udcff"), Path("a\\nb\\udcff")]) == [
        r"a\nb\udcff",
        r"a\\nb\\udcff",
    ]
    with pytest.raises(RequestError, match="^x: the same run is given twice$"):
        labels_of([Path("x"), Path("y"), Path("y/../x")])


def test_a_run_without_metrics_is_named(tmp_path: Path) -> None:
    good = write_run(tmp_path / "good")
    (tmp_path / "bare").mkdir()
    for path, complaint in (
        (tmp_path / "missing", "missing: no such run directory"),
        (good / "metrics.jsonl", "metrics.jsonl: no such run directory"),
        (
            tmp_path / "bare",
            "bare: has no metrics.jsonl: it is not a run, or training has not started",
        ),
        (write_run(tmp_path / "empty", []), "empty: metrics.jsonl has no line yet"),
    ):
        with pytest.raises(CheckpointError, match=complaint):
            load_curves([good, path])


def test_a_run_with_only_training_lines_has_no_perplexity() -> None:
    curves = curves_of({"a": [train(50), train(100)]})
    assert [chart.name for chart in curves.charts] == ["loss", "rate", "speed"]
    (run,) = curves.runs
    assert (run.train_loss, run.valid_loss, run.perplexity, run.best_step) == (3, None, None, None)
    assert ">–</td>" in render_curves(curves)


def test_what_is_not_finite_breaks_the_line_and_is_counted() -> None:
    losses = [5.0, 4.0, NAN, 3.0, INF, -INF, 10**400, "nan", 2.0, 1.5]
    curves = curves_of({"a": [train(n, loss) for n, loss in enumerate(losses)]})
    (curve,) = chart_of(curves, "loss").curves
    assert [None if math.isnan(y) else y for y in curve.ys] == [
        *(5, 4, None, 3, None, None, None),  # The string is no number at all: left out.
        *(2, 1.5),
    ]
    assert curve.marks == (3,)  # The point that no line reaches.
    assert curves.runs[0].left_out == 4
    page = render_curves(curves)
    assert "a: 4 values are not finite; there the curves have gaps." in page
    assert line_of(page, "a, training").count("M") == 3
    body = page.partition("<body>")[2]
    assert "nan" not in body
    assert "inf" not in body


def test_a_run_that_ends_in_nan_says_so() -> None:
    curves = curves_of(
        {"a": [train(1), train(2, NAN), valid(1, 3.0), valid(2, 9.0), valid(3, NAN)]}
    )
    (run,) = curves.runs
    assert math.isnan(run.train_loss or 0)
    assert (run.best_perplexity, run.best_step) == (math.exp(3), 1)
    assert "<td>not finite</td>" in render_curves(curves)
    assert [c.name for c in curves_of({"a": [train(1, NAN)]}).charts] == ["rate", "speed"]
    with pytest.raises(RequestError, match="a: no value that could be drawn by steps"):
        curves_of({"a": [{"kind": "train", "step": 1, "loss": NAN}]})


def test_a_single_point_is_marked() -> None:
    curves = curves_of({"a": [train(50, 9.0)]})
    for chart in curves.charts:
        (curve,) = chart.curves
        assert curve.marks == (0,)
        assert (chart.x.low, chart.x.labels[0]) == (0, "0")
        assert '<path class="marks"' in chart_svg(chart)


def test_long_curves_are_thinned_and_keep_their_extremes() -> None:
    generator = random.Random(0)
    ys = [5 + generator.gauss(0, 0.1) for _ in range(120_001)]
    ys[777], ys[65_432], ys[99_999] = 50.0, -50.0, NAN
    kept = thinned(ys)
    assert 600 <= len(kept) <= 1000
    assert kept == sorted(set(kept))
    assert {0, 777, 65_432, 99_999, 120_000} <= set(kept)
    # Each of 332 stretches keeps a point, so neighbours are less than two of them apart.
    assert max(b - a for a, b in itertools.pairwise(kept)) <= 2 * 120_001 / 332 + 1
    assert thinned(ys[:1000]) == list(range(1000))
    assert len(thinned([NAN, 1.0] * 5000)) <= 1000
    curves = curves_of({"a": [train(n, y) for n, y in enumerate(ys[:5000])]})
    assert (777, 50.0) in points(curves, "loss")["a", "train"]
    assert max(len(c.xs) for chart in curves.charts for c in chart.curves) <= 1000


def test_runs_that_lie_on_each_other_are_marked_at_different_points() -> None:
    lines = [train(n) for n in range(1000)]
    curves = chart_of(curves_of({f"run {n}": lines for n in range(12)}), "rate").curves
    for one, other in itertools.combinations(curves, 2):
        assert len(one.marks) == len(other.marks) == 8
        assert not set(one.marks) & set(other.marks)


class Reader(HTMLParser):
    """Collects a page's tags, and checks that they are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def line_of(page: str, name: str) -> str:
    """Return the path of the curve whose tooltip is the name."""
    return page.split(f'<title>{name}</title><path d="')[1].split('"')[0]


def test_the_page_stands_alone_and_escapes_names() -> None:
    evil = "<script>alert('&\"')</script>"
    page = render_curves(curves_of({evil: METRICS, "b": METRICS}))
    reader = Reader(page)
    assert reader.open == []
    tags = {tag for tag, _ in reader.tags}
    assert not tags & {"script", "link", "img", "iframe", "use", "object"}
    for _, attributes in reader.tags:
        assert not {a for a in attributes if a.startswith("on")} | ({"href", "src"} & {*attributes})
    assert "://" not in page
    assert "url(" not in page
    assert "prefers-color-scheme: dark" in page
    assert any(evil in text for text in reader.text)
    ids = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(set(ids)) == len(ids) == 9


def test_each_chart_is_well_formed_and_tells_what_it_shows() -> None:
    curves = curves_of({"a & b": METRICS, "c": [train(1, 2.0), train(2, 1.0)]})
    for chart in curves.charts:
        root = ElementTree.fromstring(chart_svg(chart))
        title, description, *_ = root
        assert root.attrib["aria-labelledby"].split() == [
            title.attrib["id"],
            description.attrib["id"],
        ]
        assert title.text == chart.title
    assert "a & b, training: from 9 to 4." in (
        ElementTree.fromstring(chart_svg(curves.charts[0]))[1].text or ""
    )


def test_a_point_is_drawn_where_the_axis_says() -> None:
    chart = chart_of(curves_of({"a": [train(0, 2.0), train(100, 4.0), train(200, 3.0)]}), "loss")
    root = ElementTree.fromstring(chart_svg(chart))
    drawn = line_of(chart_svg(chart), "a, training").replace("L", " ").removeprefix("M").split()
    xs, ys = [float(v) for v in drawn[::2]], [float(v) for v in drawn[1::2]]
    places = {t.text: (float(t.attrib["x"]), float(t.attrib["y"])) for t in root.iter("text")}
    assert xs == pytest.approx([places["0"][0], places["100"][0], places["200"][0]])
    assert ys == pytest.approx([places["2.0"][1], places["4.0"][1], places["3.0"][1]])


def test_the_table_has_the_last_values() -> None:
    page = render_curves(curves_of({"a": [*METRICS, valid(1200, 4.7)]}))
    row = page.split('<th scope="row">')[1].split("</tr>")[0]
    cells = [cell.split("</td>")[0] for cell in row.split("<td>")[1:]]
    assert cells == ["1,200", "15.0", "4.0000", "4.7000", "109.95", "90.02", "150", "5,150"]


def linear(colour: str) -> list[float]:
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]


def luminance(colour: str) -> float:
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(colour), strict=True))


@pytest.mark.parametrize(
    ("palette", "ground"), [(PALETTE_LIGHT, "#ffffff"), (PALETTE_DARK, "#1a2029")]
)
def test_every_colour_stands_out_from_its_ground(palette: tuple[str, ...], ground: str) -> None:
    assert f"--card: {ground};" in STYLE
    for colour in palette:
        light, dark = sorted((luminance(colour), luminance(ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, colour  # WCAG 2.2, 1.4.11


# Machado, Oliveira and Fernandes 2009: what a colour looks like, on linear RGB.
SIGHT: dict[str, list[tuple[float, float, float]]] = {
    "all cones": [(1, 0, 0), (0, 1, 0), (0, 0, 1)],
    "protanopia": [
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ],
    "deuteranopia": [
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ],
    "tritanopia": [
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ],
}
XYZ = [(0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0177, 0.1095, 0.8728)]


def times(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [math.fsum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def seen(colour: str, sight: str) -> tuple[float, float, float]:
    """Return the colour as CIE Lab, whose distances are those of perception."""
    rgb = [min(max(c, 0), 1) for c in times(SIGHT[sight], linear(colour))]
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in times(XYZ, rgb))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("palette", [PALETTE_LIGHT, PALETTE_DARK])
def test_colours_are_distinct_to_the_colour_blind(palette: tuple[str, ...], sight: str) -> None:
    for one, other in itertools.combinations(palette, 2):
        assert math.dist(seen(one, sight), seen(other, sight)) >= 15, (one, other)
    for one, other in itertools.combinations(palette[:4], 2):
        assert math.dist(seen(one, sight), seen(other, sight)) >= 30, (one, other)


def test_pictures_are_the_same_bytes_each_time_and_leave_no_global_state() -> None:
    had_pyplot = "matplotlib.pyplot" in sys.modules
    curves = curves_of({"_a $x^$ 名": METRICS, "b" * 150: [train(3)]})
    for kind, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        picture = render_figure(curves, kind)
        assert picture.startswith(magic)
        if kind == "svg":
            assert "<!-- _a $x^$ 名 -->" in picture.decode()
            assert picture == render_figure(curves, kind)
    assert ("matplotlib.pyplot" in sys.modules) == had_pyplot


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_run(tmp_path / "run")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(HeadwiseError, match=r"needs matplotlib: pip install 'headwise\[plot\]'"):
        write_curves([run], tmp_path / "curves.png")
    write_curves([run], tmp_path / "curves.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.html", "run"]


def test_a_full_disk_leaves_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run, out = write_run(tmp_path / "run"), tmp_path / "curves.html"
    out.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RequestError, match="curves.html: cannot write the curves: No space left"):
        write_curves([run], out)
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.html", "run"]


def test_files_are_known_by_suffix_and_replaced_whole(tmp_path: Path) -> None:
    run, out = write_run(tmp_path / "run"), tmp_path / "Curves.HTML"
    out.write_text("old")
    write_curves([run], out)
    assert out.read_text("utf-8").startswith("<!doctype html>")
    for name in ("curves.gif", "curves", "html"):
        with pytest.raises(
            RequestError, match=r"let the name end in one of .html, .pdf, .png, .sv"
        ):
            write_curves([tmp_path / "missing"], tmp_path / name)
    with pytest.raises(RequestError, match="no.x.html: cannot write the curves: No such file"):
        write_curves([run], tmp_path / "no" / "x.html")
    (tmp_path / "d.html").mkdir()
    with pytest.raises(RequestError, match="d.html: cannot write the curves: Is a directory"):
        write_curves([run], tmp_path / "d.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["Curves.HTML", "d.html", "run"]

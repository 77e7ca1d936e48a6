"""`headwise demo --task parsing`: with a treebank, again, and without one."""

import re
from pathlib import Path

import pytest

from headwise.data.trees import read_trees
from headwise.workflows import demo_parsing
from tests.conftest import Headwise
from tests.small_runs import TREE_SETTINGS, write_trees

SETTINGS = [part for change in TREE_SETTINGS for part in ("--set", change)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    write_trees(home)
    return home


@pytest.fixture
def demo(home: Path, headwise: Headwise, monkeypatch: pytest.MonkeyPatch) -> Headwise:
    monkeypatch.chdir(home)

    def run(*arguments: str) -> tuple[int, str, str]:
        return headwise("demo", "--task", "parsing", *arguments)

    return run


def test_from_trees_to_drawings_and_again(
    demo: Headwise, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, errors = demo("--trees", "trees-1.mrg", *SETTINGS)
    assert code == 0, errors
    assert "108 trees" in " ".join(errors.split())
    score = re.search(r"F1 (\d+\.\d)( ± \d+\.\d)? on 12 sentences it never saw, as EVALB", out)
    assert score is not None
    assert out.count("\nsentence ") == 10
    assert out.count("├─ ") > 20
    assert (home / "runs" / "demo-parsing" / "report.html").read_text().count(score[1]) >= 1
    (test,) = (home / "runs" / "demo-data" / "parsing").glob("*/parsing-demo-test.mrg")
    (train,) = test.parent.glob("*train.mrg")
    seen = {tuple(found.tree.words()) for found in read_trees(train)}
    held_out = [tuple(found.tree.words()) for found in read_trees(test)]
    assert len(held_out) == 12
    assert not seen & set(held_out)
    command = f"headwise evaluate runs/demo-parsing --trees {test.relative_to(home)}"
    assert command in " ".join(out.replace("\\\n", "").split())

    monkeypatch.setattr(demo_parsing, "train", None)  # Training would fail.
    code, again, errors = demo("--trees", "trees-1.mrg")
    assert code == 0, errors
    assert "is trained already" in errors
    assert score[0] in again

    code, _, errors = demo("--trees", "trees-1.mrg", "--minutes", "9")
    assert (code, "is a demo of 0 minutes" in errors) == (2, True), errors
    (home / "others").mkdir()
    (others,) = write_trees(home / "others", seed=2).paths
    code, _, errors = demo("--trees", str(others))
    assert (code, "is a demo of other trees" in errors) == (2, True), errors


def test_without_trees_it_says_where_to_get_some(demo: Headwise) -> None:
    code, out, errors = demo()
    assert (code, out, errors.count("\n")) == (2, "", 1)
    for name in ("--trees FILE", "CRAFT", "GUM", "Penn Treebank", "NLTK"):
        assert name in errors


def test_errors_are_one_line(demo: Headwise, headwise: Headwise, home: Path) -> None:
    (home / "few.mrg").write_text("(S (NN x))\n" * 5)
    (home / "same.mrg").write_text("(S (NN x))\n" * 150)
    for arguments, message in (
        (("--trees", "few.mrg"), "5 trees are too few"),
        (("--trees", "same.mrg"), "every sentence occurs several times"),
        (("--trees", "nowhere.mrg"), "nowhere.mrg"),
    ):
        code, out, errors = demo(*arguments, "--run", "runs/none")
        assert (code, out, errors.count("\n")) == (2, "", 1), errors
        assert message in errors
    code, _, errors = headwise("demo", "--trees", "trees-1.mrg")
    assert (code, "--trees is for --task parsing" in errors) == (2, True)


def test_a_run_that_is_not_of_the_demo_is_never_removed(
    demo: Headwise, home: Path, trained_parser: Path
) -> None:
    code, _, errors = demo("--trees", "trees-1.mrg", "--run", str(trained_parser), "--fresh")
    assert (code, "not of this demo" in errors) == (2, True), errors
    assert (trained_parser / "config.toml").exists()

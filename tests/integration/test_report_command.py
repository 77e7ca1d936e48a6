"""`headwise report`, and the function under it that others call with what they have."""

import json
import re
import shutil
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from headwise import Translator
from headwise.data import prepare
from headwise.runs.directory import RunDirectory
from headwise.tasks.translation.report import Sample, contents_of
from headwise.workflows.evaluate import evaluate
from headwise.workflows.report import write_report
from headwise.workflows.train import train
from tests.conftest import Headwise
from tests.small_runs import small_config, write_text

HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    """A copy of a trained run, to write into."""
    shutil.copytree(trained_run, tmp_path / "run")
    return tmp_path / "run"


class _Text(HTMLParser):
    """All text of a page, without scripts and styles, and all its tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, _: object) -> None:
        self.tags.append(tag)
        self._inside = tag

    def handle_endtag(self, _: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def test_without_a_test_set_the_samples_are_validation_pairs(run: Path, headwise: Headwise) -> None:
    code, output, errors = headwise("report", str(run))
    assert (code, output) == (0, "")
    assert errors == f"using {run}/averaged\nwrote {run}/report.html\n"
    page = (run / "report.html").read_text("utf-8")
    text = _Text(page).text
    assert "Not scored yet." in text
    assert "Sentences of the validation text" in text
    assert "200 updates" in text
    directory = RunDirectory(run)
    pairs = len([line for line in page.splitlines() if line.startswith("<li><dl>")])
    assert pairs == 10
    count = directory.config().model.count_parameters(Translator.load(run).model.vocab)
    assert (
        f"A Transformer of {count:,} parameters that translates text to text, trained for" in text
    )
    assert re.search(r"on \d{3} pairs of sentences\.", text)
    assert 'model.norm_order "pre" "post" (§3.1)' in text
    assert unescape(directory.config().to_toml().split("\n")[0]) in text
    assert f"headwise evaluate {run} --src test.src --ref test.tgt" in text
    assert page.count('<svg class="chart"') == 4
    data = json.loads(page.partition('id="page-data">')[2].partition("</script>")[0])
    assert 1 <= len(data["records"]) <= 5
    assert not re.search(r'\b(src|href|action)\s*=\s*"(?!#)', page)
    assert set(re.findall(r"https?://[^\"' ]+", page)) == {"http://www.w3.org/2000/svg"}


def test_with_a_test_set_the_scores_are_those_of_evaluate(
    run: Path, tmp_path: Path, headwise: Headwise
) -> None:
    sources = ["ban kuti dora", "", "dati ban", "bura kora dan ban"]
    references = [" ".join(source.split()[::-1]) or "x" for source in sources]
    (tmp_path / "t.src").write_text("".join(f"{line}\n" for line in sources))
    (tmp_path / "t.ref").write_text("".join(f"{line}\n" for line in references))
    out = tmp_path / "page.html"
    files = ["--src", str(tmp_path / "t.src"), "--ref", str(tmp_path / "t.ref")]
    code, _, errors = headwise("report", str(run), *files, "--out", str(out))
    assert code == 0, errors
    assert not (run / "report.html").exists()
    text = _Text(out.read_text("utf-8")).text
    (expected,) = evaluate([run], sources, [references]).runs
    bleu = expected.scores.bleu
    assert bleu.interval is not None
    assert f"BLEU {bleu.value:.1f} 95 % sure: " in text
    assert f"{bleu.interval.mean - bleu.interval.margin:.1f} to" in text
    assert bleu.signature in text
    assert expected.scores.chrf.signature in text
    assert f"Perplexity {expected.perplexity:.2f}" in text
    assert "On 4 sentences with one reference each." in text
    for source, reference in zip(sources, references, strict=True):
        assert source in text
        assert not source or reference in text


def test_what_is_given_is_what_is_written(run: Path, tmp_path: Path) -> None:
    translator = Translator.load(run)
    sample = Sample(source="ban", translation="kuti", references=("dora", "dati"))
    directory = RunDirectory(run)
    contents = contents_of(
        directory, scores=None, samples=[sample], sentences=["ban kuti dora", "dati ban"]
    )
    path = write_report(directory, translator, contents)
    assert path == run / "report.html"
    page = path.read_text("utf-8")
    assert "dora<br>dati" in page
    data = json.loads(page.partition('id="page-data">')[2].partition("</script>")[0])
    assert [record["source"] for record in data["records"]] == ["ban kuti dora", "dati ban"]
    contents = contents_of(directory, scores=None, samples=[], sentences=[], about_samples="None.")
    bare = write_report(directory, translator, contents, out=tmp_path / "bare.html")
    assert "page-data" not in bare.read_text("utf-8")
    assert 'href="#attention"' not in bare.read_text("utf-8")


def test_hostile_text_stays_text_wherever_it_stands(run: Path) -> None:
    named = run.with_name("<img src=x onerror=alert(2)>")
    run.rename(named)
    config = named / "config.toml"
    text = config.read_text("utf-8")
    for key in ("source_language", "target_language"):
        text = text.replace(f'{key} = ""', f'{key} = "{HOSTILE}"')
    config.write_text(text)
    environment = named / "environment.json"
    environment.write_text(environment.read_text("utf-8").replace('"cpu": "', f'"cpu": "{HOSTILE}'))
    translator = Translator.load(named)
    sample = Sample(source=HOSTILE, translation=HOSTILE, references=(HOSTILE,))
    directory = RunDirectory(named)
    contents = contents_of(
        directory,
        scores=None,
        samples=[sample],
        sentences=["ban kuti dora"],
        about_samples=HOSTILE,
    )
    page = write_report(directory, translator, contents).read_text("utf-8")
    found = _Text(page)
    assert "img" not in found.tags
    assert found.tags.count("script") == 2
    assert found.text.count(HOSTILE) >= 6


def test_a_run_made_from_prepared_data_has_validation_pairs_of_its_own(
    tmp_path: Path, headwise: Headwise
) -> None:
    config = small_config("train.max_steps=1")
    prepare(write_text(tmp_path), config, tmp_path / "prepared", processes=1)
    run = tmp_path / "run"
    train(config, run, data=tmp_path / "prepared")
    pages = []
    for _ in range(2):
        code, _, errors = headwise("report", str(run))
        assert code == 0, errors
        pages.append(_Text((run / "report.html").read_text("utf-8")).text)
        shutil.rmtree(tmp_path / "prepared", ignore_errors=True)
    assert pages[0] == pages[1], "it has nothing from elsewhere"
    assert "Sentences of the validation text" in pages[0]
    assert re.search(r"on 1\d\d pairs of sentences", pages[0])


def test_a_run_whose_data_and_diary_are_gone_still_has_a_report(
    run: Path, headwise: Headwise
) -> None:
    shutil.rmtree(run / "data")
    (run / "metrics.jsonl").unlink()
    (run / "environment.json").unlink()
    code, _, errors = headwise("report", str(run))
    assert code == 0, errors
    text = _Text((run / "report.html").read_text("utf-8")).text
    assert "No examples: the text that the run was validated on is not in its directory." in text
    assert "parameters that translates text to text, on 584 pairs of sentences." in text
    assert "Curves" not in text
    assert "Machine" not in text


def test_wrong_arguments_are_one_line(run: Path, tmp_path: Path, headwise: Headwise) -> None:
    nul = tmp_path / "nul"
    nul.write_text("bana\nba\0na\n")
    for arguments, complaint in (
        ([str(run), "--src", str(nul), "--ref", str(nul)], "nul:2: a NUL character: remove it"),
        ([str(run), "--src", "t.src"], "give both, or neither"),
        ([str(run), "--ref", "t.ref"], "give both, or neither"),
        ([str(run), "--src", "nosuch", "--ref", "nosuch"], "nosuch"),
        ([str(tmp_path / "none")], "does not exist"),
        ([str(run), "--out", str(tmp_path / "no" / "r.html")], "cannot write the report"),
        ([str(run), "--checkpoint", "nosuch"], "no checkpoint 'nosuch'"),
    ):
        code, output, errors = headwise("report", *arguments)
        assert (code, output) == (2, ""), arguments
        assert complaint in errors
        assert errors.splitlines()[-1].startswith("headwise: ")
    assert not (run / "report.html").exists()

"""`headwise evaluate`, `export` and the other engine, on a run that has learned something."""

import json
from pathlib import Path

import pytest
import sacrebleu

from headwise import Translator
from headwise.data import TokenShards
from headwise.decoding import SamplingSettings, SearchSettings
from headwise.errors import RequestError
from headwise.runs.directory import RunDirectory
from headwise.runs.metrics import read_metrics
from headwise.tasks.translation.torch_engine import TorchEngine
from headwise.tasks.translation.trained import load_model
from headwise.workflows.translators import load_translator
from tests.conftest import Headwise
from tests.small_runs import write_text


@pytest.fixture(scope="module")
def test_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("test-set")
    write_text(directory, pairs=60, seed=99)
    return directory


def files(test_set: Path) -> list[str]:
    return ["--src", str(test_set / "text.src"), "--ref", str(test_set / "text.tgt")]


def test_a_run_is_scored_as_sacrebleu_scores_it(
    trained_run: Path, test_set: Path, headwise: Headwise, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, output, errors = headwise(
        "evaluate", str(trained_run), *files(test_set), "--json", "--output", str(out)
    )
    assert code == 0, errors
    found = json.loads(output)["runs"][0]
    sources = (test_set / "text.src").read_text().splitlines()
    expected = [result.text for result in Translator.load(trained_run).translate(sources)]
    assert out.read_text().splitlines() == expected
    references = [(test_set / "text.tgt").read_text().splitlines()]
    assert found["scores"]["bleu"]["value"] == sacrebleu.corpus_bleu(expected, references).score
    assert found["weights"] == f"{trained_run}/averaged"
    assert 1 < found["perplexity"] < 100
    assert found["sentences_per_second"] > 0


def test_perplexity_is_that_of_validation(
    trained_run: Path, headwise: Headwise, tmp_path: Path
) -> None:
    """The validation text of the run, back as text, has the perplexity that training measured."""
    shards = TokenShards(trained_run / "data" / "valid")
    subwords, _ = RunDirectory(trained_run).subwords()
    for side in ("source", "target"):
        lines = [subwords.decode(shards.sequence(side, n).tolist()) for n in range(len(shards))]
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines))
    arguments = ["--src", str(tmp_path / "source"), "--ref", str(tmp_path / "target")]
    code, output, _ = headwise(
        "evaluate", str(trained_run), *arguments, "--json", "--checkpoint", "last"
    )
    assert code == 0
    measured = read_metrics(trained_run / "metrics.jsonl")[-1]["perplexity"]
    assert json.loads(output)["runs"][0]["perplexity"] == pytest.approx(measured, rel=1e-4)


def test_several_runs_are_a_table_and_a_test(
    trained_run: Path, test_set: Path, headwise: Headwise, tmp_path: Path
) -> None:
    (tmp_path / "other").symlink_to(trained_run)
    code, output, errors = headwise(
        "evaluate", str(trained_run), str(tmp_path / "other"), *files(test_set)
    )
    assert code == 0, errors
    lines = output.splitlines()
    assert lines[0].split()[:2] == ["run", "BLEU"]
    assert str(trained_run) in output
    assert "paired bootstrap" in output


def test_a_test_set_may_be_a_table(
    trained_run: Path, test_set: Path, headwise: Headwise, tmp_path: Path
) -> None:
    sources = (test_set / "text.src").read_text().splitlines()
    references = (test_set / "text.tgt").read_text().splitlines()
    table = tmp_path / "test.tsv"
    rows = [f"{n}\t{r}\t{s}\t" for n, (s, r) in enumerate(zip(sources, references, strict=True))]
    rows[0] += "another"
    table.write_text("".join(f"{row}\n" for row in rows))
    arguments = ["--set", "decode.stop=count", "--json"]
    code, output, errors = headwise("evaluate", str(trained_run), *files(test_set), *arguments)
    assert code == 0, errors
    plain = json.loads(output)["runs"][0]["scores"]
    command = ["evaluate", str(trained_run), "--tsv", str(table)]
    code, output, errors = headwise(*command, "--columns", "3,2", *arguments)
    assert code == 0, errors
    assert json.loads(output)["runs"][0]["scores"] == plain
    code, output, errors = headwise(*command, "--columns", "3,2,4", *arguments)
    assert code == 0, errors
    assert "nrefs:var" in json.loads(output)["runs"][0]["scores"]["bleu"]["signature"]
    for columns, message in (
        ("3,5", "test.tsv:1: 4 columns, but column 5 is asked for"),
        ("0,1", "columns are counted from 1"),
        ("3", "'3' is not two column numbers or more"),
    ):
        code, output, errors = headwise(*command, "--columns", columns)
        assert (code, output) == (2, "")
        assert message in errors
    code, _, errors = headwise(*command, *files(test_set))
    assert code == 2
    assert "either --src and --ref, or --tsv" in errors
    code, _, errors = headwise("evaluate", str(trained_run), "--ref", str(table))
    assert code == 2
    assert "with --src and --ref, or with --tsv" in errors


def test_wrong_input_is_one_line(
    trained_run: Path, test_set: Path, headwise: Headwise, tmp_path: Path
) -> None:
    (tmp_path / "short").write_text("one\n")
    code, output, errors = headwise(
        "evaluate", str(trained_run), "--src", str(tmp_path / "short"), *files(test_set)[2:]
    )
    assert (code, output) == (2, "")
    assert "short" in errors
    assert len(errors.splitlines()) == 1
    (tmp_path / "nul").write_text("bana\nba\0na\n")
    nul = str(tmp_path / "nul")
    code, output, errors = headwise("evaluate", str(trained_run), "--src", nul, "--ref", nul)
    assert (code, output, "nul:2: a NUL character" in errors) == (2, "", True)
    unwritable = ("--output", str(tmp_path / "none" / "out"))
    code, output, errors = headwise("evaluate", str(trained_run), *files(test_set), *unwritable)
    assert (code, output) == (2, "")
    assert "none/out: cannot write the translations: No such file" in errors
    code, _, errors = headwise(
        "evaluate",
        str(trained_run),
        *files(test_set),
        "--engine",
        "ctranslate2",
        "--quantization",
        "int16",
    )
    assert code == 2
    assert "int16 does not exist: `headwise export" in errors


def test_the_other_engine_says_what_ours_says(
    trained_run: Path, test_set: Path, headwise: Headwise
) -> None:
    pytest.importorskip("ctranslate2", reason="pip install 'headwise[ctranslate2]'")
    code, output, errors = headwise(
        "export", str(trained_run), "--to", "ctranslate2", "--quantization", "float32"
    )
    assert code == 0, errors
    assert "equal greedy outputs" in output
    sources = (test_set / "text.src").read_text().splitlines()
    trained = load_model(RunDirectory(trained_run))
    ids = [trained.source.encode(source) for source in sources]
    theirs = load_translator(trained_run, engine="ctranslate2", quantization="float32")
    for beam, least in ((1, 0.99), (4, 0.95)):
        settings = SearchSettings(beam=beam, stop="count")  # The only stop that CTranslate2 has.
        found = TorchEngine(trained.model).translate(ids, settings, 50)
        ours = [trained.target.decode(list(hypotheses[0].ids)) for hypotheses in found]
        pairs = zip(ours, theirs.translate(sources, beam=beam), strict=True)
        assert sum(a == b.text for a, b in pairs) / len(sources) >= least
    assert not theirs.can_align
    command = ("evaluate", str(trained_run), *files(test_set), "--json")
    perplexities = []
    for engine in ("torch", "ctranslate2"):
        code, output, errors = headwise(*command, "--engine", engine)
        assert code == 0, errors
        (run,) = json.loads(output)["runs"]
        perplexities.append(run["perplexity"])
    assert "exports/ctranslate2-float32" in run["weights"]
    assert perplexities[1] == pytest.approx(perplexities[0], rel=1e-3)
    pair = [("bana ti", "ti bana")]
    assert theirs.score(pair) == pytest.approx(Translator.load(trained_run).score(pair), abs=1e-3)
    with pytest.raises(RequestError, match="^sampling needs the torch engine$"):
        theirs.translate(["bana"], sampling=SamplingSettings())
    with pytest.raises(RequestError, match="^attention needs the torch engine$"):
        theirs.trace("bana")

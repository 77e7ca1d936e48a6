"""Attention as numbers: what the model's trace holds, beside tokens that people can read."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from headwise import Translator
from headwise.config import Vocab
from headwise.errors import RequestError
from headwise.inspect.attention import BEGIN, END, AttentionRecord, attention_record, readable
from headwise.model import Trace, build_model
from headwise.runs.directory import RunDirectory
from headwise.tasks.translation.trained import load_model

SOURCE = "ban dora kuti ban"


@pytest.fixture(scope="module")
def translator(trained_run: Path) -> Translator:
    return Translator.load(trained_run)


@pytest.fixture(scope="module")
def record(translator: Translator) -> AttentionRecord:
    return attention_record(translator, SOURCE)


def test_the_weights_are_those_of_the_models_own_pass(
    trained_run: Path, translator: Translator, record: AttentionRecord
) -> None:
    trained = load_model(RunDirectory(trained_run))
    (translation,) = translator.translate([SOURCE])
    src = torch.tensor([[*trained.source.encode(SOURCE), Vocab.eos]])
    tgt_in = torch.tensor([[Vocab.bos, *translation.candidates[0].ids]])
    trace = Trace()
    with torch.no_grad():
        trained.model(src, tgt_in, trace=trace)
    for ours, theirs in (
        (record.encoder, trace.encoder.self_attention),
        (record.decoder, trace.decoder.self_attention),
        (record.cross, trace.decoder.cross_attention),
    ):
        assert torch.tensor(ours).shape == torch.stack(theirs)[:, 0].shape
        assert torch.tensor(ours) == pytest.approx(torch.stack(theirs)[:, 0], abs=0.5001e-4)
    assert (record.source, record.target) == (SOURCE, translation.text)


def test_tokens_and_weights_line_up_and_every_row_sums_to_1(record: AttentionRecord) -> None:
    assert "".join(record.source_tokens[:-1]).strip() == SOURCE
    assert "".join(record.output_tokens[:-1]).strip() == record.target
    assert record.source_tokens[-1] == record.output_tokens[-1] == END
    assert record.input_tokens == (BEGIN, *record.output_tokens[:-1])
    for kind in ("encoder", "decoder", "cross"):
        rows, columns = record.rows(kind), record.columns(kind)
        for layer in record.weights(kind):
            for head in layer:
                assert (len(head), {len(row) for row in head}) == (len(rows), {len(columns)})
                for row in head:
                    assert sum(row) == pytest.approx(1, abs=0.5e-4 * len(row))
    for layer in record.decoder:
        for head in layer:
            assert all(not any(row[n + 1 :]) for n, row in enumerate(head)), "the future is hidden"


def test_a_record_is_json_with_four_decimals(record: AttentionRecord) -> None:
    text = json.dumps(record.to_dict())
    values = json.loads(text)
    assert list(values) == [
        "source",
        "target",
        "source_tokens",
        "input_tokens",
        "output_tokens",
        "encoder",
        "decoder",
        "cross",
        "picture",
    ]
    numbers = [n for layer in values["cross"] for head in layer for row in head for n in row]
    assert all(len(f"{n!r}".partition(".")[2]) <= 4 for n in numbers if n >= 1e-4)
    assert values["cross"] == record.cross


def test_a_target_that_is_given_is_traced_instead(
    translator: Translator, record: AttentionRecord
) -> None:
    given = attention_record(translator, SOURCE, " kuti ban ")
    assert given.target == "kuti ban"
    assert "".join(given.output_tokens[:-1]).strip() == "kuti ban"
    assert given.encoder == record.encoder
    assert given.cross != record.cross
    same = attention_record(translator, SOURCE, record.target)
    assert same == record


def test_bytes_spaces_and_the_unknown_are_readable() -> None:
    tokens = ("▁Dog", "s", "▁", "<0xC3>", "<0xA9>", "<0x7E>", "<0xE4>", "▁x", "<0x0A>", "<unk>")
    assert readable(tokens) == [
        " Dog",
        "s",
        " ",
        "é 1/2",
        "é 2/2",
        "~",
        "byte E4",
        " x",
        "byte 0A",
        "‹unknown›",
    ]
    assert readable(("a\u202eb", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>")) == [
        "a\\u202eb",
        "😀 1/4",
        "😀 2/4",
        "😀 3/4",
        "😀 4/4",
    ]


def test_as_many_tokens_are_shown_as_there_are(translator: Translator) -> None:
    record = attention_record(translator, "ban 😀\t~", "ban \x07 ü")
    for kind in ("encoder", "decoder", "cross"):
        assert len(record.rows(kind)) == len(record.weights(kind)[0][0])
        assert len(record.columns(kind)) == len(record.weights(kind)[0][0][0])


@pytest.mark.parametrize(
    ("source", "target", "complaint"),
    [
        (" \t ", None, "the source is empty"),
        ("ban", "  ", "the target is empty"),
        ("ban\0", None, "the source has a NUL"),
        ("ban", "\udcff", "the target has a NUL character, or bytes that are not UTF-8"),
        ("ban " * 10, None, "a source of 10 tokens is too long: give at most 9 tokens"),
        ("ban" * 100_000, None, "a source of 300,000 characters is too long"),
        ("ban", "ban " * 60, "a target of 60 tokens is too long: give at most 51"),
    ],
)
def test_what_cannot_be_traced_is_refused_with_the_reason(
    translator: Translator, source: str, target: str | None, complaint: str
) -> None:
    with pytest.raises(RequestError, match=complaint):
        attention_record(translator, source, target)


def test_learned_positions_bound_the_target(translator: Translator, trained_run: Path) -> None:
    trained = load_model(RunDirectory(trained_run))
    config = replace(trained.config.model, positions="learned", max_positions=9)
    model = build_model(config, trained.model.vocab, "seq2seq")
    changed = replace(trained, model=model, config=replace(trained.config, model=config))
    small = Translator.of_model(changed, longest_source=8)
    assert len(attention_record(small, "ban", "ban " * 8).cross[0][0]) == 9
    with pytest.raises(RequestError, match="a target of 9 tokens is too long: give at most 8"):
        attention_record(small, "ban", "ban " * 9)


def test_an_engine_that_shows_no_attention_is_refused(translator: Translator) -> None:
    class Other:
        def translate(self, *_: object) -> list[object]:
            return []

    subwords = translator._source
    other = Translator(
        Other(),  # type: ignore[arg-type]
        subwords,
        subwords,
        translator.config,
        longest_source=9,
        name="other",
    )
    with pytest.raises(RequestError, match="attention needs the torch engine"):
        attention_record(other, "ban")

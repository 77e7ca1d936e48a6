"""Attention of a model without an encoder: one kind, in records, pages and pictures."""

import json
import re
from pathlib import Path

import pytest
import torch

from headwise.errors import RequestError
from headwise.inspect.attention import (
    BEGIN,
    END,
    Traceable,
    all_layers,
    attention_record,
    layer_weights,
    record_json,
)
from headwise.inspect.attention_file import write_attention
from tests.decoder_only import TextReader

TEXT = "an owl sat in an oak"


@pytest.fixture(scope="module")
def reader() -> TextReader:
    return TextReader()


def test_a_record_without_a_source_has_the_decoder_only(reader: TextReader) -> None:
    assert isinstance(reader, Traceable)
    record = attention_record(reader, TEXT)
    words = tuple(f" {word}" for word in TEXT.split())
    assert (record.source, record.target, record.text) == ("", TEXT, TEXT)
    assert (record.source_tokens, record.encoder, record.cross) == ((), [], [])
    assert record.input_tokens == (BEGIN, *words)
    assert record.output_tokens == (*words, END)
    assert record.kinds == ("decoder",)
    traced = torch.stack(reader.trace(TEXT).trace.decoder.self_attention)[:, 0]
    assert torch.tensor(record.decoder) == pytest.approx(traced, abs=0.5001e-4)


def test_its_json_has_the_same_keys_with_empty_lists(reader: TextReader) -> None:
    pair = reader.trace(TEXT)
    layers = [json.dumps(layer_weights(layer)) for layer in all_layers(pair)]
    values = json.loads(record_json(pair, layers))
    assert values == json.loads(json.dumps(attention_record(reader, TEXT).to_dict()))
    assert (values["source"], values["source_tokens"]) == ("", [])
    assert (values["encoder"], values["cross"]) == ([], [])


def test_a_page_begins_with_the_kind_that_is_there(reader: TextReader, tmp_path: Path) -> None:
    out = tmp_path / "a.html"
    write_attention(reader, TEXT, out, heads=[3])
    page = out.read_text("utf-8")
    data = json.loads(page.partition('id="page-data">')[2].partition("</script>")[0])
    assert data["choice"] == {"kind": "decoder", "layer": 0, "head": 2}
    assert f"<title>Attention: {TEXT}</title>" in page


def test_a_picture_shows_the_text_twice(reader: TextReader, tmp_path: Path) -> None:
    out = tmp_path / "a.svg"
    write_attention(reader, TEXT, out)
    comments = re.findall(r"<!-- (.*?) -->", out.read_text("utf-8"))
    assert "layer 1 of 2: what is written looks down at what was before" in comments
    assert comments.count("owl") == 2
    assert "head 3" in comments


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kind": "cross"}, "there is no cross attention: the model has decoder attention"),
        ({"kind": "encoder"}, "there is no encoder attention: the model has decoder attention"),
        ({"layer": 3}, "there is no layer 3: the model has 1 to 2"),
        ({"heads": [4]}, "there is no head 4: the model has 1 to 3"),
    ],
)
def test_what_the_model_does_not_have_is_refused(
    reader: TextReader, tmp_path: Path, options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(RequestError, match=complaint):
        write_attention(reader, TEXT, tmp_path / "a.png", **options)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []

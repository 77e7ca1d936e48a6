"""The API over real connections: its answers, and its errors."""

import dataclasses
import json
import random
import shutil
import threading
import tracemalloc
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from libretranslatepy import LibreTranslateAPI
from prometheus_client.parser import text_string_to_metric_families

from headwise.errors import CheckpointError
from headwise.interop.ctranslate2.export import export
from headwise.runs.directory import RunDirectory
from headwise.serving.keys import Keys, add_key
from headwise.serving.limits import Limits
from headwise.serving.models import ServedModel
from headwise.tasks.translation.translator import Candidate, Translator
from headwise.workflows.serve import load_served, printable_name
from tests.servers import Running, in_languages, running, served
from tests.small_runs import WORDS


@pytest.fixture(scope="module")
def translator(trained_run: Path) -> Translator:
    return Translator.load(trained_run)


@pytest.fixture(scope="module")
def server(translator: Translator) -> Iterator[Running]:
    def model(name: str, source: str, target: str) -> ServedModel:
        return ServedModel(name=name, translator=in_languages(translator, source, target))

    models = [model("first", "xx", "yy"), model("second", "zz", "yy"), model("third", "", "")]
    with running(models) as server:
        yield server


def sentences(count: int, seed: int = 1) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(2, 9))) for _ in range(count)]


def test_concurrent_clients_get_the_translators_results(
    server: Running, translator: Translator
) -> None:
    texts = sentences(60)
    expected = [each.text for each in translator.translate(texts, split=True)]
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        found[number] = server.translate(texts[number])[0]["text"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    differing = [n for n in range(60) if found[n] != expected[n]]
    # Where two candidates are as good as equal, neighbours may decide.
    assert len(differing) <= 1
    _, metrics, _ = server.ask("GET", "/metrics")
    assert b'headwise_batch_sentences_bucket{le="+Inf",model="first"}' in metrics


def test_all_fields_of_an_answer(server: Running, translator: Translator) -> None:
    text = "Ban dora kuti. Bara kun.\nKan"
    (answer,) = server.translate(text, nbest=3, beam=5, alpha=1, alignment=True, token_scores=True)
    (expected,) = translator.translate([text], nbest=3, beam=5, alpha=1, split=True)
    assert answer["text"] == expected.text
    assert answer["source_tokens"] == list(expected.source_tokens)
    assert answer["alignment"] == [list(link) for link in translator.alignment(expected)]
    assert len(answer["parts"]) == len(expected.parts) == 3
    for part, theirs in zip(answer["parts"], expected.parts, strict=True):
        assert [c["text"] for c in part["candidates"]] == [c.text for c in theirs.candidates]
        best = part["candidates"][0]
        assert best["score"] == pytest.approx(theirs.score, abs=1e-5)
        assert len(part["token_log_probs"]) == len(best["tokens"]) + 1
        assert sum(part["token_log_probs"]) == pytest.approx(best["log_prob"], abs=1e-4)
    (whole,), (cut,) = server.translate("kan\nban", split=False), server.translate("kan\nban")
    assert whole["text"] == translator.translate(["kan\nban"])[0].text
    assert (len(whole["parts"]), len(cut["parts"])) == (0, 2)
    assert [each["text"] for each in server.translate([])] == []
    assert [each["text"] for each in server.translate(["", " \n"])] == ["", ""]


def test_models_are_found_by_name_and_by_languages(server: Running) -> None:
    status, answer, _ = server.ask("GET", "/v1/models")
    assert status == 200
    assert [model["name"] for model in answer["models"]] == ["first", "second", "third"]
    for fields, name in (
        ({}, "first"),
        ({"model": "third"}, "third"),
        ({"source": "zz", "target": "yy"}, "second"),
        ({"model": "second", "target": "yy"}, "second"),
    ):
        _, answer, _ = server.ask("POST", "/v1/translate", {"q": "ban", **fields})
        assert answer["model"] == name
    status, answer, _ = server.ask("GET", "/languages")
    assert answer == [
        {"code": "xx", "name": "xx", "targets": ["yy"]},
        {"code": "zz", "name": "zz", "targets": ["yy"]},
    ]


def test_libretranslates_api(server: Running, translator: Translator) -> None:
    best = [c.text for c in translator.translate(["ban dora"], nbest=3)[0].candidates]
    fields = {"q": "ban dora", "source": "xx", "target": "yy"}
    boundary = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    form = "application/x-www-form-urlencoded"
    for kind, body in (
        ("application/json", json.dumps(fields)),
        (form, "q=ban+dora&source=xx&target=yy"),
        ("multipart/form-data; boundary=b", boundary + "--b--\r\n"),
    ):
        status, answer, _ = server.ask("POST", "/translate", body.encode(), {"Content-Type": kind})
        assert (status, answer) == (200, {"translatedText": best[0]})
    _, answer, _ = server.ask("POST", "/translate", {**fields, "alternatives": 2, "format": "text"})
    assert answer == {"translatedText": best[0], "alternatives": best[1:]}
    _, answer, _ = server.ask("POST", "/translate", {**fields, "q": ["ban dora", ""]})
    assert answer == {"translatedText": [best[0], ""]}
    for source in ("xx", "auto"):
        fields["source"] = source
        status, answer, _ = server.ask("POST", "/translate", fields)
        assert status == (200 if source == "xx" else 400)
    assert answer["error"].startswith("languages are not detected")


def test_libretranslates_alternatives_of_several_sentences(
    server: Running, translator: Translator
) -> None:
    fields = {"source": "XX", "target": "yY", "alternatives": 2}
    _, answer, _ = server.ask("POST", "/translate", {"q": "Ban dora.\nKuti.", **fields})
    first, second = translator.translate(["Ban dora.", "Kuti."], nbest=3)
    best, *alternatives = (
        f"{a.text}\n{b.text}" for a, b in zip(first.candidates, second.candidates, strict=True)
    )
    assert answer == {"translatedText": best, "alternatives": alternatives}
    status, answer, _ = server.ask("POST", "/translate", {"q": "a", **fields, "alternatives": 16})
    assert (status, answer["error"]) == (400, "alternatives may be 15 at most")


def test_auto_needs_a_single_source_language(trained_run: Path) -> None:
    with running([served(trained_run)]) as server:
        fields = {"q": "ban dora", "source": "auto", "target": "yy"}
        status, answer, _ = server.ask("POST", "/translate", fields)
        assert (status, answer["detectedLanguage"]) == (200, {"confidence": 0, "language": "xx"})


def test_the_client_of_libretranslate_translates(
    server: Running, translator: Translator, trained_run: Path, tmp_path: Path
) -> None:
    expected = translator.translate(["ban dora. Kuti & bun!"], split=True)[0].text
    client = LibreTranslateAPI(server.url)
    assert client.translate("ban dora. Kuti & bun!", "xx", "yy") == expected
    assert client.languages()[0]["code"] == "xx"
    key = add_key(tmp_path / "keys", "alice")
    with running([served(trained_run)], keys=Keys(tmp_path / "keys")) as guarded:
        client = LibreTranslateAPI(guarded.url, key)
        assert client.translate("ban dora. Kuti & bun!", "xx", "yy") == expected
        assert client.languages()[0]["code"] == "xx"
        for wrong, status in (("x", 403), (None, 401)):
            with pytest.raises(urllib.error.HTTPError, match=str(status)) as caught:
                LibreTranslateAPI(guarded.url, wrong).translate("ban", "xx", "yy")
            caught.value.close()


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/translate", b"{", 400, "the body is not JSON"),
        ("/v1/translate", b"[" * 100_000, 413, "the body has too many values"),
        ("/v1/translate", b"[" * 400, 400, "the body is not JSON"),
        ("/v1/translate", b"\xff\xfe", 400, "the body "),
        ("/v1/translate", {}, 400, "q: field required"),
        ("/v1/translate", {"q": 5}, 400, "q: input should be a string"),
        ("/v1/translate", {"q": ["a", None]}, 400, "q: entry 1 should be a string"),
        ("/v1/translate", {"q": "a", "beam": 0}, 400, "beam: "),
        ("/v1/translate", {"q": "a", "beam": 10**30}, 400, "beam and nbest may be 16 at most"),
        ("/v1/translate", {"q": "a", "nbest": 17}, 400, "beam and nbest may be 16 at most"),
        ("/v1/translate", {"q": "a", "min_length": 2**64}, 400, "min_length is at least 0"),
        ("/v1/translate", {"q": "a", "alpha": -1}, 400, "alpha: "),
        ("/v1/translate", {"q": "a", "alpha": 1e300}, 400, "alpha = 1e+300 must be a number from"),
        ("/v1/translate", b'{"q": "a", "alpha": NaN}', 400, "alpha: "),
        ("/v1/translate", {"q": "a", "nonsense": 1}, 400, "nonsense: there is no such field"),
        ("/v1/translate", {"q": "a", "\ud800": 1}, 400, "?: there is no such field"),
        ("/v1/translate", {"q": "a\0b"}, 400, "a text with a NUL character"),
        ("/v1/translate", {"q": "a\ud800"}, 400, "a text with half of a surrogate pair"),
        ("/v1/translate", {"q": "😀" * 15_001}, 413, "15,001 characters are too many"),
        ("/v1/translate", {"q": ["a"] * 501}, 413, "501 texts are too many"),
        ("/v1/translate", {"q": "a", "model": "../first"}, 404, "there is no model of that name"),
        ("/v1/translate", {"q": "a", "model": "/etc/passwd\0"}, 404, "there is no model of that"),
        ("/v1/translate", {"q": "a", "source": "en", "target": "\ud800"}, 400, "no model"),
        ("/v1/translate", {"q": "a", "source": "xx"}, 400, "a source language needs a target"),
        ("/v1/translate", {"q": "a", "model": "first", "target": "qq"}, 400, "this model does not"),
        ("/translate", b"{", 400, "the body is not JSON"),
        ("/translate", b"[1]", 400, "the body must be a JSON object"),
        ("/translate", b"\xff", 400, "the body is not UTF-8 text"),
        ("/translate", {"q": "a"}, 400, "source: field required"),
        ("/translate", {"q": {}, "source": "xx", "target": "yy"}, 400, "q: input"),
        ("/translate", {"q": "a", "source": "en", "target": "de"}, 400, "no model translates"),
        ("/translate", {"q": "<b>", "source": "xx", "target": "yy", "format": "html"}, 400, "only"),
        ("/v1/nonsense", {}, 404, "no such route"),
        ("/static/../app.py", b"", 404, "no such route"),
    ],
)
def test_errors_are_one_sentence(
    server: Running, path: str, body: object, status: int, words: str
) -> None:
    found, answer, _ = server.ask("POST", path, body, {"Content-Type": "application/json"})
    assert found == status
    assert list(answer) == ["error"]
    assert answer["error"].startswith(words)


@pytest.mark.parametrize("path", ["/translate", "/v1/translate", "/v1/attention"])
def test_json_must_be_declared_as_json(server: Running, path: str) -> None:
    body = b'{"q": "ban", "source": "xx", "target": "yy"}'
    for kind in ("application/json;charset=utf-8", "application/vnd.example+json"):
        assert server.ask("POST", path, body, {"Content-Type": kind})[0] == 200
    # Browsers send these for pages of other sites, without asking the server first.
    for headers in ({}, {"Content-Type": "text/plain"}):
        status, answer, _ = server.ask("POST", path, body, headers)
        assert status == 415
        assert answer["error"].startswith("send ")
        assert "application/json" in answer["error"]


def test_hostile_bodies_take_little_memory(server: Running) -> None:
    kind = {"Content-Type": "application/json"}
    for path in ("/translate", "/v1/translate", "/v1/attention"):
        for body in (
            b'{"q":[%s1]}' % (b"1," * 490_000),
            b"{%s}" % b",".join(b'"k%d":1' % number for number in range(80_000)),
            b'{"q":"%s"}' % (b"\\n" * 490_000),
        ):
            tracemalloc.start()
            try:
                status, answer, _ = server.ask("POST", path, body, kind)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
            assert (status in (400, 413), list(answer)) == (True, ["error"])
            assert peak < 20_000_000


def test_routes_parse_no_cookies_and_no_query(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Parsing a cookie full of backslashes takes seconds on some Pythons.
    parsed: list[str] = []

    def parse(query: str, **_: object) -> list[tuple[str, str]]:
        parsed.append(query)
        return []

    monkeypatch.setattr("starlette.requests.cookie_parser", parsed.append)
    monkeypatch.setattr("starlette.datastructures.parse_qsl", parse)
    for path in ("/healthz", "/v1/models"):
        assert server.ask("GET", f"{path}?a=b", headers={"Cookie": "a=b"})[0] == 200
    assert set(parsed) <= {""}


@pytest.mark.parametrize(
    "path",
    ["/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/x", "/%ff", "/translate/%00", "//"],
)
def test_no_path_leaves_the_static_files(server: Running, path: str) -> None:
    status, answer, _ = server.ask("GET", path)
    assert status == 404
    assert "error" in answer


def test_a_megabyte_of_emoji_is_too_long(server: Running) -> None:
    body = json.dumps({"q": "😀" * 240_000}, ensure_ascii=False).encode()
    assert len(body) > 950_000
    status, answer, _ = server.ask(
        "POST", "/v1/translate", body, {"Content-Type": "application/json"}
    )
    assert (status, answer["error"]) == (413, "a body may have 200,000 bytes at most")


def test_other_methods_and_health(server: Running) -> None:
    assert server.ask("GET", "/v1/translate")[0] == 405
    assert server.ask("GET", "/healthz")[:2] == (200, {"status": "alive"})
    assert server.ask("GET", "/readyz")[:2] == (200, {"status": "ready"})


def test_security_headers_and_cors(server: Running, trained_run: Path) -> None:
    ours = {"Origin": "https://mine.example"}
    for path in ("/", "/healthz", "/nothing"):
        headers = server.ask("GET", path, headers=ours)[2]
        assert "access-control-allow-origin" not in headers
        policy = headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    with running([served(trained_run)], origins=("https://mine.example",)) as open_server:
        headers = open_server.ask("GET", "/healthz", headers=ours)[2]
        assert headers["access-control-allow-origin"] == "https://mine.example"
        headers = open_server.ask("GET", "/healthz", headers={"Origin": "https://other.example"})[2]
        assert "access-control-allow-origin" not in headers


def test_ctranslate2_serves_all_but_attention(trained_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "exported"
    shutil.copytree(trained_run, run)
    export(RunDirectory(run), None, "int8")
    (model,) = load_served([run], engine="ctranslate2", quantization="int8")
    assert isinstance(model, ServedModel)
    with running([model]) as server:
        _, answer, _ = server.ask("GET", "/v1/models")
        assert (answer["models"][0]["name"], answer["models"][0]["attention"]) == (
            "exported",
            False,
        )
        texts = sentences(20)
        expected = [each.text for each in model.translator.translate(texts)]
        found = server.translate(texts, token_scores=True)
        assert [each["text"] for each in found] == expected
        with ThreadPoolExecutor(12) as clients:  # In batches of any composition.
            single = list(clients.map(lambda text: server.translate(text)[0]["text"], texts * 3))
        assert single == expected * 3
        for each in found:
            best = each["candidates"][0]
            assert sum(each["token_log_probs"]) == pytest.approx(best["log_prob"], abs=1e-3)
        for path, fields in (("/v1/attention", {}), ("/v1/translate", {"alignment": True})):
            status, answer, _ = server.ask("POST", path, {"q": "ban", **fields})
            assert (status, "needs the torch engine" in answer["error"]) == (400, True)


def test_a_directory_with_an_unprintable_name_is_served(trained_run: Path, tmp_path: Path) -> None:
    run = tmp_path / 'a"b\n\\c{}é'
    shutil.copytree(trained_run, run)
    models = load_served([run])
    assert models[0].name == 'a"b\N{REPLACEMENT CHARACTER}\\c{}é'
    # safetensors opens no file whose path is not UTF-8: such a name needs another engine.
    odd = dataclasses.replace(models[0], name=printable_name("x\udcff" + "y" * 10_000))
    with running([*models, odd]) as server:
        names = [model["name"] for model in server.ask("GET", "/v1/models")[1]["models"]]
        assert names == [models[0].name, odd.name]
        for name in names:
            _, answer, _ = server.ask("POST", "/v1/translate", {"q": "ban", "model": name})
            assert answer["model"] == name
        status, metrics, _ = server.ask("GET", "/metrics")
        assert status == 200
        families = text_string_to_metric_families(metrics.decode())
        labels = {sample.labels.get("model") for family in families for sample in family.samples}
        assert labels == {None, *names}


def test_the_card_has_the_stored_score(trained_run: Path, tmp_path: Path) -> None:
    run = RunDirectory(shutil.copytree(trained_run, tmp_path / "scored"))
    assert load_served([run.path])[0].card["test"] == {}
    kept = {"sentences": 1000, "bleu": {"value": 34.25}}
    run.scores_file.write_text(json.dumps(kept))
    assert load_served([run.path])[0].card["test"] == {"sentences": 1000, "bleu": 34.25}
    run.scores_file.write_text('{"sentences": "<b>", "bleu": {"value": NaN}}')
    assert load_served([run.path])[0].card["test"] == {}
    run.scores_file.write_text("[]")
    with pytest.raises(CheckpointError, match=r"scores\.json: damaged"):
        load_served([run.path])


def test_attention_of_every_sentence_that_fits(
    server: Running, translator: Translator, trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Ban dora kuti. Bara kun."
    status, answer, _ = server.ask("POST", "/v1/attention", {"q": text})
    assert (status, answer["left_out"]) == (200, 0)
    assert [record["source"] for record in answer["records"]] == ["Ban dora kuti.", "Bara kun."]
    (record, _) = answer["records"]
    assert record["target"] == translator.translate(["Ban dora kuti."])[0].text
    rows = record["cross"][0][0]
    assert (len(rows), len(rows[0])) == (len(record["output_tokens"]), len(record["source_tokens"]))
    assert sum(rows[0]) == pytest.approx(1, abs=0.01)
    assert server.ask("POST", "/v1/attention", {"q": " "})[1]["records"] == []
    monkeypatch.setattr("headwise.serving.translation.MOST_TOKENS", 5)
    long = "Ban dora kuti bun kan bara."
    _, answer, _ = server.ask("POST", "/v1/attention", {"q": f"Ban. {long} Kan."})
    assert ([each["source"] for each in answer["records"]], answer["left_out"]) == (["Ban."], 2)
    status, answer, _ = server.ask("POST", "/v1/attention", {"q": long})
    assert (status, answer["error"][:18]) == (413, "the first sentence")
    monkeypatch.undo()
    with running([served(trained_run)], limits=Limits(attention_weights=60)) as small:
        _, answer, _ = small.ask("POST", "/v1/attention", {"q": "kan\n" + "ban dora kuti " * 3})
        assert (len(answer["records"]), answer["left_out"] >= 1) == (1, True)
        status, answer, _ = small.ask("POST", "/v1/attention", {"q": "ban dora kuti bun kan"})
        assert (status, answer["error"][:18]) == (413, "the first sentence")


def test_attention_of_an_empty_translation_is_not_searched_again(
    server: Running, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Translator,
        "_candidate",
        lambda *_: Candidate(text="", score=0, log_prob=0, tokens=(), ids=()),
    )
    monkeypatch.setattr(Translator, "translate", None)
    status, answer, _ = server.ask("POST", "/v1/attention", {"q": "Ban. Kan."})
    assert (status, [each["output_tokens"] for each in answer["records"]]) == (200, [["‹end›"]] * 2)


def test_head_requests(server: Running) -> None:
    for path in ("/", "/healthz", "/v1/models"):
        status, content, headers = server.ask("HEAD", path)
        assert (status, content) == (200, b"")
        assert int(headers["content-length"]) > 0
    assert server.ask("HEAD", "/v1/translate")[0] == 405


def test_there_are_no_redirects(server: Running) -> None:
    status, _, headers = server.ask("GET", "/docs/", headers={"Host": "app.localhost"})
    assert (status, headers["location"]) == (404, None)


def test_a_body_with_two_lengths_closes_the_connection(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(
            b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        answer = b"".join(iter(lambda: connection.recv(10_000), b""))
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.endswith(
        b'{"error":"a request may not have both Content-Length and Transfer-Encoding"}'
    )
    assert answer.count(b"HTTP/1.1") == 1


def test_malformed_http_gets_a_json_error(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(b"what is this\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(10_000), b""))
    assert answer.startswith(b"HTTP/1.1 400 Bad Request")
    head, _, content = answer.partition(b"\r\n\r\n")
    assert b"application/json" in head
    assert json.loads(content) == {"error": "malformed HTTP request"}

"""OpenAI's API over real connections: completions, models, and errors in its format."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwise.serving.keys import Keys, add_key
from headwise.serving.limits import Limits
from headwise.tasks.language_model.generator import Generator
from tests.generators import events, served_generator, streaming
from tests.integration.test_generation_api import ENDLESS, make_double
from tests.servers import Running, SlowSteps, running

PATH = "/v1/completions"


@pytest.fixture(scope="module")
def generator() -> Generator:
    return make_double()


@pytest.fixture(scope="module")
def server(generator: Generator) -> Iterator[Running]:
    with running([served_generator(generator)]) as server:
        yield server


def complete(server: Running, **fields: object) -> Any:
    status, answer, _ = server.ask("POST", PATH, {"model": "lm", **fields})
    assert status == 200, answer
    return answer


def test_completions_are_the_generators(server: Running, generator: Generator) -> None:
    answer = complete(server, prompt=["ban", "bora kon"], n=2, seed=3, max_tokens=12, logprobs=2)
    settings = generator.settings(count=2, seed=3, max_tokens=12)
    expected = generator.generate_all(["ban", "bora kon"], settings)
    samples = [sample for each in expected for sample in each.samples]
    assert answer["object"] == "text_completion"
    assert answer["model"] == "lm"
    assert answer["id"].startswith("cmpl-")
    choices = answer["choices"]
    assert [each["index"] for each in choices] == [0, 1, 2, 3]
    assert [each["text"] for each in choices] == [sample.text for sample in samples]
    for choice, sample in zip(choices, samples, strict=True):
        assert choice["finish_reason"] == ("stop" if sample.is_ended else "length")
        found = choice["logprobs"]
        assert len(found["tokens"]) == len(sample.ids) == len(found["text_offset"])
        assert [len(each) for each in found["top_logprobs"]] == [2] * len(sample.ids)
        total = sum(found["token_logprobs"])
        assert sample.is_ended or total == pytest.approx(sample.log_prob)
        for token, written in zip(found["tokens"], sample.tokens, strict=True):
            if written.startswith("<0x"):
                assert token == f"bytes:\\x{written[3:5].lower()}"
            else:
                assert token == written.replace("▁", " ")
    prompt_tokens = sum(len(generator.tokenizer.encode(each)) for each in ("ban", "bora kon"))
    tokens = sum(len(sample.ids) for sample in samples)
    assert answer["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": prompt_tokens + tokens,
    }


def test_the_defaults_are_openais(server: Running, generator: Generator) -> None:
    answer = complete(server, prompt="ban", max_tokens=None, n=None, stop=None, logprobs=None)
    (choice,) = answer["choices"]
    assert answer["usage"]["completion_tokens"] <= 16
    assert choice["logprobs"] is None
    texts = {complete(server, prompt="ban")["choices"][0]["text"] for _ in range(5)}
    assert len(texts) > 1, "without a seed, each answer is another"
    greedy = generator.generate("", temperature=0, max_tokens=5).text
    assert complete(server, temperature=0, max_tokens=5)["choices"][0]["text"] == greedy
    # Parameters that are not supported may be sent as clients send them by default.
    harmless = {"best_of": 1, "frequency_penalty": 0.0, "presence_penalty": 0, "logit_bias": {}}
    harmless |= {"suffix": None, "user": "reader"}
    assert complete(server, prompt="ban", **harmless)["choices"]


def test_a_stream_adds_up_to_the_answer(server: Running) -> None:
    fields = {"prompt": ["ban", "kon"], "n": 2, "seed": 5, "max_tokens": 15, "logprobs": 1}
    whole = complete(server, **fields)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    with streaming(server, PATH, {**fields, **options}) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["x-accel-buffering"] == "no"
        *found, usage, done = events(answer)
    assert done == "[DONE]"
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
    assert {each["id"] for each in found} == {usage["id"]}
    for index, expected in enumerate(whole["choices"]):
        own = [c for each in found for c in each["choices"] if c["index"] == index]
        assert "".join(each["text"] for each in own) == expected["text"]
        tokens = [token for each in own for token in each["logprobs"]["tokens"]]
        assert tokens == expected["logprobs"]["tokens"]
        offsets = [offset for each in own for offset in each["logprobs"]["text_offset"]]
        assert offsets == expected["logprobs"]["text_offset"]
        assert [each["finish_reason"] for each in own[:-1]] == [None] * (len(own) - 1)
        assert own[-1]["finish_reason"] == expected["finish_reason"]
    with streaming(server, PATH, {"prompt": "ban", "stream": True}) as answer:
        assert all("usage" not in each for each in events(answer) if each != "[DONE]")


@pytest.mark.parametrize("is_stream", [False, True])
def test_echo_and_stop(server: Running, generator: Generator, is_stream: bool) -> None:
    text = generator.generate("ban", temperature=0, max_tokens=30).text
    fields = {"prompt": "ban", "temperature": 0, "max_tokens": 30, "echo": True, "n": 2}
    fields |= {"stop": text[5:8], "stream": is_stream}
    texts = ["", ""]
    if is_stream:
        with streaming(server, PATH, fields) as answer:
            for each in events(answer):
                for choice in [] if each == "[DONE]" else each["choices"]:
                    texts[choice["index"]] += choice["text"]
    else:
        texts = [each["text"] for each in complete(server, **fields)["choices"]]
    assert texts == ["ban" + text[: text.index(text[5:8])]] * 2


def test_models_are_listed(server: Running) -> None:
    status, answer, _ = server.ask("GET", "/v1/models")
    assert (status, answer["object"], answer["models"]) == (200, "list", [])
    (entry,) = answer["data"]
    assert (entry["id"], entry["object"]) == ("lm", "model")
    assert server.ask("GET", "/v1/models/lm")[:2] == (200, entry)


def error(found: tuple[int, Any, Any], status: int) -> dict[str, Any]:
    assert found[0] == status, found
    assert set(found[1]) == {"error"}
    object_: dict[str, Any] = found[1]["error"]
    assert set(object_) == {"message", "type", "param", "code"}
    assert int(found[2]["content-length"]) == len(json.dumps(found[1]))
    return object_


@pytest.mark.parametrize(
    ("fields", "status", "param", "message"),
    [
        ({"best_of": 2}, 400, "best_of", "best_of is not supported"),
        ({"logit_bias": {"5": 1}}, 400, "logit_bias", "logit_bias is not supported"),
        ({"suffix": "x"}, 400, "suffix", "suffix is not supported"),
        ({"presence_penalty": 0.5}, 400, "presence_penalty", "is not supported"),
        ({"frequency_penalty": -1}, 400, "frequency_penalty", "is not supported"),
        ({"echo": True, "logprobs": 1}, 400, "echo", "echo with logprobs is not supported"),
        ({"prompt": [5, 6]}, 400, "prompt", "token ids are not supported"),
        ({"prompt": [[5, 6]]}, 400, "prompt", "token ids are not supported"),
        ({"prompt": {}}, 400, "prompt", "should be a string or a list"),
        ({"prompt": []}, 400, "prompt", "at least one text"),
        ({"best": 2}, 400, "best", "there is no such field"),
        ({"temperature": "warm"}, 400, "temperature", "should be a valid number"),
        ({"max_tokens": 0}, 400, "max_tokens", "greater than or equal to 1"),
        ({"stream_options": {"x": 1}}, 400, "stream_options", "not permitted"),
        ({"logprobs": 6}, 400, "logprobs", "less than or equal to 5"),
        ({"model": "gpt"}, 404, "model", "there is no language model of that name"),
        ({"prompt": "a\0"}, 400, None, "NUL"),
        ({"prompt": "x" * 10_001}, 413, None, "10,001 characters are too many"),
        ({"max_tokens": 10_000_000}, 400, None, "more than 250,000"),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_errors_name_what_is_wrong(
    server: Running,
    fields: dict[str, Any],
    status: int,
    param: str | None,
    message: str,
    is_stream: bool,
) -> None:
    asked = {"prompt": "ban", "stream": is_stream, **fields}
    found = error(server.ask("POST", PATH, asked), status)
    assert message in found["message"]
    assert (found["type"], found["param"]) == ("invalid_request_error", param)
    assert found["code"] == ("model_not_found" if status == 404 else None)


def test_errors_of_guards_have_openais_format(generator: Generator, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "reader")
    limits = Limits(rate=3, body_bytes=2000)
    with running(
        [served_generator(generator)], keys=Keys(tmp_path / "keys"), limits=limits
    ) as server:
        fields = {"prompt": "ban", "max_tokens": 1}
        found = error(server.ask("POST", PATH, fields), 401)
        assert (found["type"], found["code"]) == ("authentication_error", "invalid_api_key")
        wrong = {"Authorization": "Bearer wrong"}
        found = error(server.ask("POST", PATH, fields, wrong), 403)
        assert found["message"] == "unknown API key"
        right = {"Authorization": f"Bearer {key}"}
        assert server.ask("POST", PATH, fields, right)[0] == 200
        answer = server.ask("POST", PATH, fields, right)
        found = error(answer, 429)
        assert (found["type"], found["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert int(answer[2]["Retry-After"]) >= 1
        error(server.ask("POST", PATH, {"prompt": "x" * 3000}, right), 413)
        error(server.ask("POST", PATH, b"{}", right), 415)
        error(server.ask("GET", PATH, None, right), 405)
        assert error(server.ask("GET", "/v1/models/no", None, right), 404)["param"] == "model"
        error(server.ask("GET", "/v1/models/lm"), 401)
        error(server.ask("POST", PATH, fields, {**right, "Host": "example.org"}), 421)
        # Our own routes keep our own format.
        assert isinstance(server.ask("GET", "/v1/models")[1]["error"], str)


def test_an_error_within_a_stream_is_its_last_event() -> None:
    generator = make_double()
    with (
        running([served_generator(generator)], limits=Limits(deadline=0.3)) as server,
        SlowSteps(generator, 0.01),
        streaming(server, PATH, ENDLESS) as answer,
    ):
        *_, last = events(answer)
    assert last["error"]["type"] == "server_error"
    assert "took longer than 0.3 seconds" in last["error"]["message"]


def test_pages_of_allowed_origins_may_use_it(generator: Generator) -> None:
    with running([served_generator(generator)], origins=("https://example.org",)) as server:
        headers = {"Origin": "https://example.org", "Sec-Fetch-Site": "cross-site"}
        fields = {"prompt": "ban", "max_tokens": 1}
        status, _, found = server.ask("POST", PATH, fields, headers)
        assert (status, found["access-control-allow-origin"]) == (200, "https://example.org")
        headers["Origin"] = "https://example.com"
        error(server.ask("POST", PATH, fields, headers), 403)

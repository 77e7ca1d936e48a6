"""POST /v1/generate over real connections: many at once, in streams, and clients that hang up."""

import json
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import ConfigError
from headwise.serving.keys import Keys, add_key
from headwise.serving.limits import Limits
from headwise.serving.server import make_server
from headwise.tasks.language_model.generator import Generator
from tests.generators import events, served_generator, streaming
from tests.integration.test_serving_fairness import ask_from
from tests.servers import COMPUTE, PausedSteps, Running, SlowSteps, running, start_serve, wait_for
from tests.unit.tasks.test_generator import make_generator

ENDLESS = {"prompt": "ban", "temperature": 0, "max_tokens": 50_000, "stream": True}
"""The most probable tokens never end the document of this model."""


def make_double() -> Generator:
    """Make a generator whose texts depend on no rounding."""
    generator = make_generator()
    generator.model.double()
    return generator


@pytest.fixture(scope="module")
def generator() -> Generator:
    return make_double()


@pytest.fixture(scope="module")
def server(generator: Generator) -> Iterator[Running]:
    with running([served_generator(generator)]) as server:
        yield server


def generate(server: Running, **fields: object) -> Any:
    status, answer, _ = server.ask("POST", "/v1/generate", fields)
    assert status == 200, answer
    return answer


def stream(server: Running, **fields: object) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the texts that the events of a stream add up to, and the last event of each."""
    with streaming(server, "/v1/generate", {**fields, "stream": True}) as answer:
        assert answer.status == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        *found, last = events(answer)
    assert last == "[DONE]"
    texts = [""] * (1 + max(each["index"] for each in found))
    ends: list[dict[str, Any]] = [{}] * len(texts)
    for each in found:
        assert not ends[each["index"]], "nothing comes after the end"
        texts[each["index"]] += each["text"]
        if "ending" in each:
            ends[each["index"]] = each
    assert all(ends)
    return texts, ends


def is_idle(server: Running) -> bool:
    service = server.uvicorn.service
    return not service.num_pending and not service._writers["lm"].num_searches


def test_an_answer_is_what_the_generator_returns(server: Running, generator: Generator) -> None:
    answer = generate(server, prompt="ban bara", count=3, seed=4, max_tokens=20, logprobs=2)
    expected = generator.generate("ban bara", count=3, seed=4, max_tokens=20)
    assert answer["texts"] == [sample.text for sample in expected.samples]
    assert answer["text"] == expected.text
    for tokens, ending, sample in zip(
        answer["tokens"], answer["endings"], expected.samples, strict=True
    ):
        assert tuple(token["token"] for token in tokens) == sample.tokens
        assert (ending == "end") == sample.is_ended
        total = sum(token["log_prob"] for token in tokens)
        assert sample.is_ended or total == pytest.approx(sample.log_prob)
        for token in tokens:
            first, second = token["best"].values()
            assert first >= second
    again = generate(server, prompt="ban bara", n=3, seed=4, max_tokens=20)
    assert again == {"text": answer["text"], "texts": answer["texts"], "endings": answer["endings"]}
    empty = generate(server, prompt="", max_tokens=3)
    assert empty["text"] == generator.generate("", max_tokens=3).text


def test_the_same_seed_gives_the_same_text_beside_other_requests(
    server: Running, generator: Generator
) -> None:
    """Thirty requests at once, with settings of their own, half of them streamed."""
    changes: list[dict[str, Any]] = [{}, {"temperature": 0}, {"top_k": 4}, {"top_p": 0.8}]

    def ask(number: int) -> list[str]:
        fields = {"prompt": "ban dun " * (number % 7), "seed": number, "n": 1 + number % 3}
        fields |= {"max_tokens": 1 + 2 * number, **changes[number % 4]}
        if number % 2:
            return stream(server, **fields)[0]
        texts: list[str] = generate(server, **fields)["texts"]
        return texts

    with ThreadPoolExecutor(30) as pool:
        found = list(pool.map(ask, range(30)))
    for number, texts in enumerate(found):
        expected = generator.generate(
            "ban dun " * (number % 7),
            seed=number,
            count=1 + number % 3,
            max_tokens=1 + 2 * number,
            **changes[number % 4],
        )
        assert texts == [sample.text for sample in expected.samples]
    lines = server.ask("GET", "/metrics")[1].decode()
    assert server.metric("headwise_generated_tokens_total") > 500
    assert "headwise_close_draws_total" in lines
    assert is_idle(server)


def test_a_text_ends_before_a_stop_sequence(server: Running, generator: Generator) -> None:
    text = generator.generate("ban", temperature=0, max_tokens=40).text
    stop = text[7:11]
    fields = {"prompt": "ban", "temperature": 0, "max_tokens": 40}
    answer = generate(server, **fields, stop=["\0never", stop], logprobs=0)
    assert answer["text"] == text[: text.index(stop)]
    assert answer["endings"] == ["stop"]
    assert all(token["offset"] < len(answer["text"]) for token in answer["tokens"][0])
    (streamed,), (last,) = stream(server, **fields, stop=stop)
    assert (streamed, last["ending"]) == (answer["text"], "stop")


def test_requests_join_while_a_long_one_goes_on(server: Running) -> None:
    with streaming(server, "/v1/generate", ENDLESS) as answer:
        arriving = events(answer)
        first = next(arriving)
        for number in range(3):
            assert generate(server, prompt="kon", max_tokens=5, seed=number)["text"]
        assert not is_idle(server)
        assert next(arriving)["index"] == first["index"] == 0
    wait_for(lambda: is_idle(server))


def test_a_client_that_hangs_up_stops_its_generation(generator: Generator) -> None:
    with (
        running([served_generator(generator)]) as server,
        SlowSteps(generator, 0.005) as steps,
    ):
        with streaming(server, "/v1/generate", ENDLESS) as answer:
            next(events(answer))
        wait_for(lambda: is_idle(server))
        # A request that is not streamed, too, and one that waits for its turn.
        connection = server.connect()
        body = json.dumps({**ENDLESS, "stream": False}).encode()
        head = "POST /v1/generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        before = steps.count
        wait_for(lambda: steps.count > before + 2)
        connection.close()
        wait_for(lambda: is_idle(server))
        assert server.metric("headwise_given_up_sentences_total") == 2
        assert server.metric("headwise_generated_tokens_total") == steps.count < 1000


def crowd(server: Running, count: int, max_tokens: int) -> None:
    """Have many clients stream at once; every other hangs up after a piece, the rest do not."""
    fields = {"prompt": "ban", "max_tokens": max_tokens, "stream": True}

    def client(number: int) -> str | None:
        asked = {**fields, "seed": number, "prompt": "ban dun " * (number % 3)}
        with streaming(server, "/v1/generate", asked) as answer:
            assert answer.status == 200
            arriving = events(answer)
            if number % 2:
                next(arriving)
                return None
            *found, last = arriving
            assert last == "[DONE]"
            assert found[-1]["ending"]
            return "".join(each["text"] for each in found)

    with ThreadPoolExecutor(count) as pool:
        texts = list(pool.map(client, range(count)))
    for number in range(0, count, 2):
        asked = {**fields, "seed": number, "prompt": "ban dun " * (number % 3), "stream": False}
        assert texts[number] == generate(server, **asked)["text"], number


def test_half_of_the_clients_hang_up_and_the_rest_get_whole_texts(server: Running) -> None:
    crowd(server, 20, max_tokens=60)
    wait_for(lambda: is_idle(server))


@pytest.mark.slow
def test_memory_stays_flat_while_hundreds_of_clients_stream_and_hang_up(
    trained_lm: Path, tmp_path: Path
) -> None:
    def memory(process: int) -> int:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        (line,) = [line for line in lines if line.startswith("VmRSS")]
        return int(line.split()[1]) // 1024

    with start_serve(trained_lm, tmp_path, "--max-requests", "1000") as server:
        crowd(server, 200, max_tokens=100)
        sizes = [memory(server.pid)]
        for _ in range(5):
            crowd(server, 200, max_tokens=100)
            sizes.append(memory(server.pid))
        assert max(sizes) - sizes[0] < 30, sizes
        _, lines, _ = server.ask("GET", "/metrics")
        assert b'headwise_failed_turns_total{model="run"} 0.0' in lines


def test_a_stream_past_its_deadline_ends_with_an_error() -> None:
    generator = make_double()
    limits = Limits(deadline=0.3)
    with (
        running([served_generator(generator)], limits=limits) as server,
        SlowSteps(generator, 0.01),
    ):
        with streaming(server, "/v1/generate", ENDLESS) as answer:
            assert answer.status == 200
            *found, last = events(answer)
        assert last["error"].startswith("this took longer than 0.3 seconds")
        assert all("ending" not in each for each in found)
        status, answer_, _ = server.ask("POST", "/v1/generate", {**ENDLESS, "stream": False})
        assert (status, answer_["error"][:21]) == (504, "this took longer than")
        wait_for(lambda: is_idle(server))


def test_a_server_that_stops_ends_streams_with_an_error() -> None:
    generator = make_double()
    with running([served_generator(generator)]) as server:
        with streaming(server, "/v1/generate", ENDLESS) as answer:
            arriving = events(answer)
            next(arriving)
            service = server.uvicorn.service
            loop = server.uvicorn._loop
            assert loop is not None
            loop.call_soon_threadsafe(service.cancel_requests)
            *_, last = arriving
        assert last == {"error": "the server is stopping: try again in a moment"}


def test_nan_logits_fail_a_request_and_the_server_goes_on() -> None:
    generator = make_double()
    weights = generator.model.embedding.weight.data
    before = weights.clone()
    with running([served_generator(generator)]) as server:
        weights[:] = math.nan
        for is_stream in (False, True):
            fields = {"prompt": "ban", "stream": is_stream}
            status, answer, _ = server.ask("POST", "/v1/generate", fields)
            assert (status, "NaN" in answer["error"]) == (500, True)
        weights[:] = before
        assert generate(server, prompt="ban", max_tokens=4)["text"]


def test_a_bug_ends_a_stream_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = make_double()
    with running([served_generator(generator)]) as server:
        with streaming(server, "/v1/generate", ENDLESS) as answer:
            arriving = events(answer)
            next(arriving)
            with monkeypatch.context() as bug:
                bug.setattr(generator.model, "step", None)
                *_, last = arriving
        assert last == {"error": "internal error: the server has logged it"}
        assert generate(server, prompt="ban", max_tokens=4)["text"]


def test_clients_share_the_server(generator: Generator) -> None:
    """A client with many continuations does not delay another's."""
    with running([served_generator(generator)]) as server, SlowSteps(generator, 0.002):
        hogs = {"prompt": "ban", "n": 16, "max_tokens": 10_000, "temperature": 0, "stream": True}
        with streaming(server, "/v1/generate", hogs) as answer:
            next(events(answer))
            fields = {"prompt": "kon", "max_tokens": 5}
            status, _, _ = ask_from("127.0.0.2", server, fields, "/v1/generate")
            assert status == 200
            assert not is_idle(server)
        wait_for(lambda: is_idle(server))


def test_limits_are_those_of_translation(generator: Generator, tmp_path: Path) -> None:
    limits = Limits(characters=100, cost=400, rate=150, queue=4)
    with running([served_generator(generator)], limits=limits) as server:
        cases: list[tuple[dict[str, Any], int, str]] = [
            ({"prompt": "x" * 101}, 413, "101 characters are too many"),
            ({"prompt": "ban", "max_tokens": 400}, 400, "may have 401 tokens, more than 400"),
            ({"prompt": "ban dun", "max_tokens": 398}, 400, "more than 400"),
            ({"prompt": "ban", "n": 8, "max_tokens": 50}, 400, "more than 400"),
            ({"prompt": "ban", "n": 17}, 400, "n: input should be less than or equal to 16"),
            ({"prompt": "ban", "n": 2, "count": 3}, 400, "n and count are the same"),
            ({"prompt": "ban", "model": "other"}, 404, "no language model of that name"),
            ({"prompt": "ban", "stop": [""]}, 400, "stop.0: string should have at least 1"),
            ({"prompt": "ban", "stop": ["a"] * 5}, 400, "stop: list should have at most 4"),
            ({"prompt": "ban", "logprobs": 6}, 400, "logprobs: input should be less than"),
            ({"prompt": "b\0"}, 400, "NUL"),
            ({"prompt": "x" * 100}, 200, ""),
            ({"prompt": "x" * 100}, 429, "more than 150 characters a minute"),
        ]
        for fields, status, message in cases:
            for is_stream in (False, True) if status != 200 else (False,):
                found, answer, _ = server.ask(
                    "POST", "/v1/generate", {**fields, "stream": is_stream}
                )
                assert (found, message in str(answer)) == (status, True), answer
    keys = tmp_path / "keys"
    key = add_key(keys, "reader")
    with running([served_generator(generator)], keys=Keys(keys)) as server:
        asked = {"prompt": "ban", "max_tokens": 2}
        assert server.ask("POST", "/v1/generate", asked)[0] == 401
        headers = {"Authorization": f"Bearer {key}"}
        assert server.ask("POST", "/v1/generate", asked, headers)[0] == 200


def test_a_full_queue_and_too_many_requests_are_refused(generator: Generator) -> None:
    limits = Limits(queue=2, requests=2)
    with (
        running([served_generator(generator)], limits=limits) as server,
        PausedSteps(generator) as steps,
        ThreadPoolExecutor(2) as pool,
    ):
        fields = {"prompt": "ban", "max_tokens": 2}
        first = pool.submit(generate, server, **fields)
        wait_for(lambda: steps.count == 1)
        second = pool.submit(generate, server, **fields, n=3)
        wait_for(lambda: server.uvicorn.service.num_pending == 2)
        status, answer, headers = server.ask("POST", "/v1/generate", fields)
        assert (status, headers["Retry-After"]) == (429, "1")
        assert answer["error"].startswith("more than 2 requests at once")
        steps.release()
        assert first.result()["text"]
        assert len(second.result()["texts"]) == 3


def test_models_of_one_name_are_refused(generator: Generator) -> None:
    models = [served_generator(generator), served_generator(generator)]
    with pytest.raises(ConfigError, match="two runs are called 'lm'"):
        make_server(models, COMPUTE)


def test_several_models_are_found_by_their_names(generator: Generator) -> None:
    other = make_double()
    other.model.embedding.weight.data.neg_()
    models = [served_generator(generator, "one"), served_generator(other, "two")]
    with running(models) as server:
        fields = {"prompt": "ban", "max_tokens": 9}
        found = [generate(server, **fields, model=name)["text"] for name in ("one", "two")]
        assert found == [each.generate("ban", max_tokens=9).text for each in (generator, other)]
        assert generate(server, **fields)["text"] == found[0]
        _, answer, _ = server.ask("GET", "/v1/models")
        assert [each["id"] for each in answer["data"]] == ["one", "two"]
        assert threading.active_count() < 50

"""Limits on cost and rate, fair shares of the server, and health."""

import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwise.errors import ConfigError
from headwise.serving.compute import ComputeThread
from headwise.serving.limits import Limits
from headwise.serving.models import ServedModel
from headwise.serving.server import make_server
from headwise.tasks.translation.translator import Translation, Translator
from tests.servers import COMPUTE, Running, SlowSteps, running, served, wait_for

Answer = tuple[int, Any, http.client.HTTPMessage]


def ask_from(address: str, server: Running, body: object, path: str = "/v1/translate") -> Answer:
    """Send a request from another address."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.port, timeout=60, source_address=(address, 0)
    )
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers
    finally:
        connection.close()


class Asking:
    """A request in a background thread."""

    def __init__(self, address: str, server: Running, body: object) -> None:
        self.answer: list[Answer] = []
        self._thread = threading.Thread(
            target=lambda: self.answer.append(ask_from(address, server, body))
        )
        self._thread.start()

    def wait(self) -> Answer:
        self._thread.join(60)
        return self.answer[0]


@pytest.fixture(scope="module")
def server(trained_run: Path) -> Iterator[Running]:
    with running([served(trained_run)]) as server:
        yield server


def test_requests_that_cost_too_much_are_refused(server: Running) -> None:
    many = "kan\n" * 2400
    status, answer, _ = server.ask("POST", "/v1/translate", {"q": many})
    assert status == 400
    assert "2,400 sentences with a beam of 4 may take" in answer["error"]
    assert "send fewer sentences at a time" in answer["error"]
    few = "kan\n" * 400
    assert server.ask("POST", "/v1/translate", {"q": few, "beam": 16})[0] == 400
    assert server.ask("POST", "/v1/translate", {"q": few})[0] == 200


def test_the_characters_per_minute_of_a_client_are_limited(trained_run: Path) -> None:
    with running([served(trained_run)], limits=Limits(rate=50)) as server:
        body = {"q": "kan dun kan dun kan dun kan dun"}
        assert ask_from("127.0.0.2", server, body)[0] == 200
        status, answer, headers = ask_from("127.0.0.2", server, body)
        assert (status, answer["error"][:32]) == (429, "more than 50 characters a minute")
        assert 1 <= int(headers["Retry-After"]) <= 60
        assert ask_from("127.0.0.3", server, body)[0] == 200


def test_the_concurrent_requests_of_a_client_are_limited(trained_run: Path) -> None:
    model = served(trained_run)
    with (
        running([model], limits=Limits(requests=2)) as server,
        SlowSteps(model.translator, 0.02),
    ):
        body = {"q": "kan dun kan", "min_length": 40}
        busy = [Asking("127.0.0.2", server, body) for _ in range(2)]
        wait_for(lambda: server.uvicorn.service.num_pending == 2)
        status, answer, headers = ask_from("127.0.0.2", server, body)
        assert (status, headers["Retry-After"]) == (429, "1")
        assert answer["error"].startswith("more than 2 requests at once")
        assert ask_from("127.0.0.3", server, {"q": "kan"})[0] == 200
        assert [each.wait()[0] for each in busy] == [200, 200]


def test_a_short_request_overtakes_a_long_one_of_another_client(trained_run: Path) -> None:
    model = served(trained_run)
    with running([model]) as server, SlowSteps(model.translator, 0.02) as steps:
        hog = Asking("127.0.0.2", server, {"q": "kan dun\n" * 150, "min_length": 45})
        wait_for(lambda: steps.count > 2)
        assert ask_from("127.0.0.3", server, {"q": "kan dun"})[0] == 200
        assert not hog.answer, "it was answered while the long request is searched"
        assert hog.wait()[0] in (200, 504)


def test_min_length_is_limited_by_each_sentences_source(server: Running, trained_run: Path) -> None:
    translator = Translator.load(trained_run)
    extra = translator.config.decode.max_extra_tokens
    bounded = server.translate(["kan", "kan dun kan"], min_length=900_000)
    for text in bounded:
        longest = len(text["source_tokens"]) + extra
        assert len(text["candidates"][0]["tokens"]) == longest
    assert [each["text"] for each in bounded] == [
        each.text for each in translator.translate(["kan", "kan dun kan"], min_length=900_000)
    ]


def test_alignment_stops_at_the_deadline(
    trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, calls = threading.Event(), 0
    align = Translator.alignment

    def slow(translator: Translator, translation: Translation) -> list[tuple[int, int]]:
        nonlocal calls
        calls += 1
        assert may_go_on.wait(60)
        return align(translator, translation)

    monkeypatch.setattr(Translator, "alignment", slow)
    with running([served(trained_run)], limits=Limits(deadline=1.5)) as server:
        body = {"q": "kan\ndun\nkan\ndun", "alignment": True}
        assert ask_from("127.0.0.2", server, body)[0] == 504
        may_go_on.set()
        assert ask_from("127.0.0.2", server, {"q": "kan"})[0] == 200
    assert calls == 1, "the slices after the deadline were never computed"


def test_the_limit_on_attention_weights_holds_for_alignment(trained_run: Path) -> None:
    limits = Limits(attention_weights=100)
    with running([served(trained_run)], limits=limits) as server:
        short, long = (
            {"q": "kan", "alignment": True},
            {"q": "kan dun kan dun kan dun kan", "alignment": True},
        )
        assert server.ask("POST", "/v1/translate", short)[0] == 200
        status, answer, _ = server.ask("POST", "/v1/translate", long)
        assert (status, "too long to be aligned" in answer["error"]) == (413, True)


def test_a_recipe_beyond_the_limits_is_refused_at_the_start(
    trained_run: Path,
) -> None:
    model = served(trained_run)
    decode = replace(model.translator.config.decode, beam=17)
    model.translator.config = replace(model.translator.config, decode=decode)
    with pytest.raises(ConfigError, match="run: its decode.beam is 17, and at most 16"):
        make_server([model], COMPUTE)
    with pytest.raises(ConfigError, match="its longest sentence may take .* --max-cost"):
        make_server([served(trained_run)], COMPUTE, limits=Limits(cost=10))


class CrashingSearch:
    """A search with a bug that crashes the model's batcher."""

    def __init__(self, *_: object) -> None:
        self._looks = 0

    def __len__(self) -> int:
        return 1

    @property
    def is_ready(self) -> bool:
        self._looks += 1
        if self._looks > 1:
            raise ValueError("a bug")
        return False

    def add(self, sources: object) -> None:
        pass


def test_a_crashed_model_does_not_take_down_another(
    trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [served(trained_run, name=name) for name in ("broken", "good")]
    with running(models) as server:

        def crash(model: ServedModel) -> None:
            monkeypatch.setattr(model.translator, "search", CrashingSearch)
            body = json.dumps({"q": "kan", "model": model.name}).encode()
            with server.connect() as client:
                client.sendall(
                    b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\n"
                    b"Content-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
                )
                wait_for(lambda: model.name in server.uvicorn.service.broken())

        crash(models[0])
        status, answer, _ = server.ask("GET", "/readyz")
        assert (status, answer) == (200, {"status": "ready", "broken": {"broken": "has crashed"}})
        assert server.ask("GET", "/healthz")[0] == 200
        status, answer, headers = server.ask(
            "POST", "/v1/translate", {"q": "kan", "model": "broken"}
        )
        assert (status, headers["Retry-After"]) == (503, "5")
        assert answer["error"] == "the model broken has crashed: try again in a moment"
        assert server.translate("kan", model="good")
        crash(models[1])
        assert [server.ask("GET", path)[0] for path in ("/readyz", "/healthz")] == [503, 503]


def test_a_hanging_step_fails_the_health_checks_until_it_ends(
    trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, may_go_on = served(trained_run), threading.Event()
    module = model.translator.model
    step = module.step

    def hang(*arguments: Any) -> Any:
        assert may_go_on.wait(60)
        return step(*arguments)

    monkeypatch.setattr(module, "step", hang)
    limits = Limits(deadline=0.1, hang_seconds=0.1)
    with running([model], limits=limits) as server:
        assert server.ask("GET", "/healthz")[0] == 200
        assert server.ask("POST", "/v1/translate", {"q": "kan dun"})[0] == 504
        wait_for(lambda: server.ask("GET", "/healthz")[0] == 503)
        status, answer, _ = server.ask("GET", "/readyz")
        assert (status, answer["error"]) == (503, "not ready: run hangs")
        assert server.ask("POST", "/v1/translate", {"q": "kan dun"})[0] == 503
        may_go_on.set()
        wait_for(lambda: server.ask("GET", "/healthz")[0] == 200)
        assert server.ask("GET", "/readyz")[0] == 200


def test_a_crashed_compute_thread_is_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    own = ComputeThread()

    class Crash:
        def due(self) -> float | None:
            return 0

        def priority(self) -> tuple[float, float]:
            return 0.0, 0.0

        def turn(self) -> None:
            raise SystemExit

    assert own.stalled_seconds == 0
    own.add(Crash())
    wait_for(lambda: own.stalled_seconds == float("inf"))
    assert COMPUTE.stalled_seconds < 60

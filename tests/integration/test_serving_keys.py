"""API keys: every route but the health checks needs one."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from headwise.errors import ConfigError
from headwise.serving.clients import TrustedProxies
from headwise.serving.keys import Keys, Sessions, add_key
from headwise.serving.limits import Limits
from headwise.serving.models import Models
from headwise.serving.observation import Metrics
from headwise.serving.server import make_routes
from headwise.serving.service import Service
from tests.conftest import Headwise
from tests.servers import COMPUTE, Running, running, served

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass
class Guarded:
    server: Running
    key: str
    routes: list[tuple[str, str]]


@pytest.fixture(scope="module")
def guarded(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    file = tmp_path_factory.mktemp("keys") / "keys.txt"
    key = add_key(file, "alice")
    add_key(file, "bob")
    model, keys = served(trained_run), Keys(file)
    service = Service(Models([model]), Limits(), Metrics(), COMPUTE)
    app = make_routes(service, Sessions(keys, TrustedProxies()), [])
    routes = [(method, path) for path, methods in table(app.routes) for method in sorted(methods)]
    with running([model], keys=keys) as server:
        yield Guarded(server, key, routes)


def table(routes: Sequence[object]) -> Iterator[tuple[str, set[str]]]:
    """Yield every path of an app with its methods, those of included routers too."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield route.path, set(route.methods or ())
        else:
            inner = getattr(route, "original_router", None)
            assert inner is not None, f"a route of another kind: {route}"
            yield from table(inner.routes)


def test_every_route_but_health_needs_a_key(guarded: Guarded) -> None:
    paths = {path for _, path in guarded.routes}
    assert paths >= {"/", "/docs", "/openapi.json", "/metrics", "/translate", "/v1/attention"}
    for method, path in guarded.routes:
        concrete = re.sub(r"\{\w+\}", "page.js", path)
        for accept in ("text/html", "application/json"):
            for wrong, status in ((None, 401), ("Bearer hw_wrong", 403)):
                headers = {"Accept": accept, **FORM}
                if wrong:
                    headers["Authorization"] = wrong
                found, answer, _ = guarded.server.ask(method, concrete, b"", headers)
                if path in ("/healthz", "/readyz"):
                    assert found == 200
                else:
                    assert found in (status, 401), (method, path, found)
                    assert b"alice" not in str(answer).encode()
        headers = {"Authorization": f"Bearer {guarded.key}"}
        found, _, _ = guarded.server.ask(method, concrete, b"", headers)
        # Some of them need more than a key.
        assert found not in (401, 403) or path == "/session", (method, path)


def test_missing_routes_are_not_revealed_without_a_key(guarded: Guarded) -> None:
    for path in ("/nothing", "/healthz/", "/healthz/../metrics", "/static/x", "//healthz"):
        assert guarded.server.ask("GET", path)[0] == 401
    assert guarded.server.ask("DELETE", "/v1/translate")[0] == 401


def test_hostile_forms_without_a_key_are_refused(guarded: Guarded) -> None:
    head = b"--x\r\nContent-Disposition: "
    for body in (head + b"(" * 300, head + b'form-data; name="' + b"=?utf-8?q?a?= " * 13_000):
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        found, answer, _ = guarded.server.ask("POST", "/translate", body, kind, timeout=5)
        assert (found, answer["error"][:10]) == (401, "an API key")


def test_libretranslates_ways_to_send_a_key(guarded: Guarded) -> None:
    fields = {"q": "ban", "source": "xx", "target": "yy"}
    ask, key = guarded.server.ask, guarded.key
    assert ask("POST", "/translate", {**fields, "api_key": key})[0] == 200
    assert ask("POST", "/translate", {**fields, "api_key": "wrong"})[0] == 403
    assert ask("POST", "/translate", {**fields, "api_key": 5})[0] == 401
    assert ask("POST", "/translate", fields)[0] == 401
    assert ask("GET", f"/languages?api_key={key}")[0] == 200
    assert ask("GET", "/languages?api_key=")[0] == 401
    assert ask("GET", f"/languages?{'a&' * 2000}api_key={key}")[0] == 401
    assert ask("POST", "/translate", json.dumps({**fields, "api_key": key}).encode())[0] == 401
    assert ask("POST", "/v1/translate", {"q": "ban", "api_key": key})[0] == 401


def test_a_person_signs_in_once(guarded: Guarded) -> None:
    ask = guarded.server.ask
    status, page, headers = ask("GET", "/", headers={"Accept": "text/html"})
    assert status == 401
    assert b'<form method="post" action="/session"' in page
    assert "script-src" not in headers["content-security-policy"], "there is none"
    # With no-referrer, Chromium sends the form with "Origin: null", which is refused.
    assert headers["referrer-policy"] == "same-origin"
    assert ask("POST", "/session", f"api_key={guarded.key}".encode())[0] == 415
    status, page, headers = ask("POST", "/session", b"api_key=wrong", FORM)
    assert status == 403
    assert b"This key is not known here." in page
    assert "set-cookie" not in headers
    status, _, headers = ask("POST", "/session", f"api_key={guarded.key}".encode(), FORM)
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert guarded.key not in cookie
    session = cookie.partition(";")[0]
    assert ask("GET", "/v1/models", headers={"Cookie": session})[0] == 200
    assert ask("GET", "/v1/models", headers={"Cookie": f"{session}x"})[0] == 401
    # One can sign in again after a session has ended.
    ended = {**FORM, "Cookie": f"{session}x"}
    assert ask("POST", "/session", f"api_key={guarded.key}".encode(), ended)[0] == 303
    assert ask("GET", "/v1/models", headers={"Cookie": 'a="; b'})[0] == 401


def test_refused_keys_are_logged_by_a_prefix_of_their_hash(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr("headwise.serving.keys.log", lambda *event, **f: events.append((*event, f)))
    ask = guarded.server.ask
    _, _, headers = ask("GET", "/v1/models", headers={"Authorization": "Bearer hw_wrong"})
    ask("POST", "/translate", {"q": "ban", "api_key": "hw_wrong"})
    ask("GET", "/languages?api_key=hw_wrong")
    ask("POST", "/session", b"api_key=hw_wrong", FORM)
    # These have no key.
    ask("GET", "/v1/models")
    ask("POST", "/session", b"", FORM)
    digest = hashlib.sha256(b"hw_wrong").hexdigest()[:8]
    assert [event for event, _ in events] == ["key refused"] * 4
    assert {(fields["client"], fields["hash"]) for _, fields in events} == {("127.0.0.1", digest)}
    assert events[0][1]["request"] == headers["x-request-id"]
    assert "hw_wrong" not in str(events)


def test_keys_are_stored_as_hashes(headwise: Headwise, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    code, first, _ = headwise("serve", "--keys", str(file), "--new-key", "alice")
    assert code == 0
    code, second, _ = headwise("serve", "--keys", str(file), "--new-key", "bob")
    assert code == 0
    content = file.read_text()
    assert first.strip() not in content
    assert file.stat().st_mode & 0o777 == 0o600
    keys = Keys(file)
    assert keys.holder(first.strip()) == "alice"
    assert keys.holder(second.strip()) == "bob"
    assert keys.holder("\ud800") is None
    code, _, errors = headwise("serve", "--new-key", "bob")
    assert (code, "--keys FILE" in errors) == (2, True)
    code, _, errors = headwise("serve", "--keys", str(file), "--new-key", "no\nname")
    assert (code, "is not a valid name for a key" in errors) == (2, True)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("nonsense\n", "keys:1: not a hash and a name"), ("# none\n", "has no keys")],
)
def test_a_file_without_keys_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "keys").write_text(content)
    with pytest.raises(ConfigError, match=complaint):
        Keys(tmp_path / "keys")
    with pytest.raises(ConfigError, match="cannot read the keys"):
        Keys(tmp_path / "nothing")


def test_a_changed_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = []
    monkeypatch.setattr("headwise.serving.keys.log", lambda event, **_: events.append(event))
    monkeypatch.setattr("headwise.serving.keys._CHECK_SECONDS", 0.0)
    file = tmp_path / "keys"
    alice = add_key(file, "alice")
    keys = Keys(file)
    bob = add_key(file, "bob")
    assert (keys.holder(alice), keys.holder(bob)) == ("alice", "bob")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if "alice" not in line))
    assert (keys.holder(alice), keys.holder(bob)) == (None, "bob")
    # A file that is being written changes nothing.
    file.write_text("half a li")
    assert keys.holder(bob) == "bob"
    file.unlink()
    assert keys.holder(bob) == "bob"
    # A valid file without keys revokes all.
    file.write_text("# none\n")
    assert keys.holder(bob) is None
    assert events == ["keys read", "keys read", "keys not read", "keys not read", "keys read"]

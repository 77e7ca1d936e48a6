"""Sessions of people who are signed in."""

import time
from pathlib import Path

import pytest
from starlette.responses import Response
from starlette.types import Scope

from headwise.serving.clients import TrustedProxies
from headwise.serving.keys import _SESSION_SECONDS, Keys, Sessions, add_key


@pytest.fixture(autouse=True)
def _keys_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwise.serving.keys._CHECK_SECONDS", 0.0)


def scope(*, host: str = "127.0.0.1:8000", cookie: str = "", scheme: str = "http") -> Scope:
    return {
        "type": "http",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "state": {"facts": {}},
        "headers": [
            (b"host", host.encode()),
            (b"cookie", cookie.encode()),
            (b"x-forwarded-proto", scheme.encode()),
        ],
    }


def sign_in(sessions: Sessions, key: str, asked: Scope | None = None) -> str:
    """Sign in with a key, and return the cookie."""
    answer = Response()
    assert sessions.sign_in(asked or scope(), key, answer)
    return answer.headers["set-cookie"]


def test_a_session_is_valid_until_its_key_is_revoked(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = add_key(file, "alice")
    other = add_key(file, "bob")
    sessions = Sessions(Keys(file), TrustedProxies())
    assert not sessions.sign_in(scope(), "wrong", Response())
    cookie = sign_in(sessions, key)
    value = cookie.partition(";")[0]
    assert key not in cookie
    assert sessions.holder(scope(cookie=f"a=b; {value}; c=d")) == "alice"
    assert sessions.holder(scope(cookie=f"{value}x")) is None
    assert sessions.holder(scope()) is None
    assert sessions.holder(scope(cookie=f"headwise_session_8000={key}")) is None
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if "alice" not in line))
    assert sessions.holder(scope(cookie=value)) is None
    assert sessions.holder(scope(cookie=sign_in(sessions, other).partition(";")[0])) == "bob"


def test_a_session_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = add_key(tmp_path / "keys", "alice")
    sessions = Sessions(Keys(tmp_path / "keys"), TrustedProxies())
    value = sign_in(sessions, key).partition(";")[0]
    later = time.monotonic() + _SESSION_SECONDS
    monkeypatch.setattr("headwise.serving.keys.time.monotonic", lambda: later)
    assert sessions.holder(scope(cookie=value)) is None
    sign_in(sessions, key)
    assert len(sessions) == 1, "expired sessions are removed"


def test_more_sessions_of_a_key_end_only_its_oldest(tmp_path: Path) -> None:
    key, other = add_key(tmp_path / "keys", "alice"), add_key(tmp_path / "keys", "bob")
    sessions = Sessions(Keys(tmp_path / "keys"), TrustedProxies())
    values = [sign_in(sessions, each).partition(";")[0] for each in (other, *[key] * 17)]
    holders = [sessions.holder(scope(cookie=value)) for value in values]
    assert holders == ["bob", None, *["alice"] * 16]


def test_the_cookie_is_not_shared_with_scripts_other_sites_ports_or_plain_http(
    tmp_path: Path,
) -> None:
    key = add_key(tmp_path / "keys", "alice")
    sessions = Sessions(Keys(tmp_path / "keys"), TrustedProxies(["127.0.0.1"]))
    plain = sign_in(sessions, key)
    assert plain.startswith("headwise_session_8000=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(plain.split("; "))
    assert "Secure" not in plain
    # A cookie for one port is sent to all of them.
    value = plain.partition(";")[0]
    assert sessions.holder(scope(cookie=value)) == "alice"
    assert sessions.holder(scope(cookie=value, host="127.0.0.1:8001")) is None
    secure = sign_in(sessions, key, scope(host="translate.example", scheme="https"))
    assert secure.startswith("__Host-headwise_session_443=")
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Secure"} <= set(secure.split("; "))
    assert "Domain" not in secure
    value = secure.partition(";")[0]
    asked = scope(host="translate.example", scheme="https", cookie=value)
    assert sessions.holder(asked) == "alice"
    # What was set over plain HTTP, perhaps by an attacker in between, is no session over TLS.
    forged = scope(host="translate.example", scheme="https", cookie=value.removeprefix("__Host-"))
    assert sessions.holder(forged) is None

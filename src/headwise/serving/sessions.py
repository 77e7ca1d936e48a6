"""Sessions of people who gave their key to the page: a random token in a cookie, not the key."""

import secrets
import time
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from headwise.serving.clients import TrustedProxies
from headwise.serving.hosts import parse_host, scheme_of
from headwise.serving.keys import Keys, admit, digest_of

_SECONDS = 12 * 60 * 60.0
_MOST_PER_KEY = 16
"""Further sign-ins with a key end its oldest session."""


class _Session(NamedTuple):
    key_digest: str
    ends_at: float


class Sessions:
    """Who is signed in. Kept in memory alone: a restart ends all sessions."""

    def __init__(self, keys: Keys, proxies: TrustedProxies) -> None:
        self._keys, self._proxies = keys, proxies
        # By the hash of the token, so that the time of a lookup says nothing about a token.
        self._sessions: dict[str, _Session] = {}

    def sign_in(self, scope: Scope, key: str, answer: Response) -> bool:
        """Begin a session with a key and set its cookie; return whether the key is known."""
        if not key or not admit(scope, self._keys, key):
            return False
        now, key_digest = time.monotonic(), digest_of(key)
        live = {token: each for token, each in self._sessions.items() if each.ends_at > now}
        of_key = [token for token, each in live.items() if each.key_digest == key_digest]
        for token in of_key[: max(0, len(of_key) - _MOST_PER_KEY + 1)]:
            del live[token]
        token = secrets.token_urlsafe(32)
        live[digest_of(token)] = _Session(key_digest, now + _SECONDS)
        self._sessions = live
        # Out of reach of scripts and of other sites, and gone with the browser's window.
        answer.set_cookie(
            self._cookie(scope),
            token,
            httponly=True,
            samesite="strict",
            secure=self._is_secure(scope),
        )
        return True

    def holder(self, scope: Scope) -> str | None:
        """Return whose session a request belongs to; None if it has no valid one."""
        token = _cookie_value(Headers(scope=scope).get("cookie", ""), self._cookie(scope))
        session = None if token is None else self._sessions.get(digest_of(token))
        if session is None or session.ends_at <= time.monotonic():
            return None
        return self._keys.holder_of_digest(session.key_digest)

    def _cookie(self, scope: Scope) -> str:
        """Return the cookie's name, with the port: browsers share cookies between a host's ports.

        The prefix __Host- has a browser take the cookie from a TLS connection to this host alone.
        """
        scheme = scheme_of(scope, self._proxies)
        host = parse_host(Headers(scope=scope).get("host", ""), scheme)
        name = f"headwise_session_{host.port if host else 0}"
        return f"__Host-{name}" if self._is_secure(scope) else name

    def _is_secure(self, scope: Scope) -> bool:
        return scheme_of(scope, self._proxies) == "https"


def _cookie_value(header: str, wanted: str) -> str | None:
    # Not by http.cookies: on some Pythons, a header full of backslashes keeps it busy for seconds.
    for cookie in header.split(";"):
        name, _, value = cookie.partition("=")
        if name.strip() == wanted:
            return value.strip() or None
    return None

"""Check API keys: their file, the guards that require one, and sessions of the web page.

A key is 32 random bytes, so its SHA-256 cannot be found with a dictionary; a slow hash would only
slow the server down. The file has a line for each key: its hash and its holder's name.
"""

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headwise.errors import ConfigError
from headwise.files import replacing
from headwise.serving.clients import HEALTH_CHECKS, TrustedProxies, parse_host, scheme_of
from headwise.serving.forms import urlencoded_fields
from headwise.serving.limits import RefusedError
from headwise.serving.logs import log

Refuse = Callable[[Scope, bool], Response]
"""Returns the response to a request without a key, or with a wrong one (True)."""

_LINE = re.compile(r"([0-9a-f]{64}) (\S+)")
_NAME = re.compile(r"[\w.@-]{1,64}")

_FIRST_LINE = "# SHA-256 of each key, and whose it is. Remove a line to revoke a key.\n"

_CHECK_SECONDS = 1.0
"""How often the file is checked for changes."""


class Keys:
    """The accepted keys, by their hashes; changes of the file take effect within a second."""

    def __init__(self, path: Path) -> None:
        """Read a file of keys, which must have at least one."""
        self._path = path
        self._stamp = _stamp_of(path)
        self._names = _names_in(path)
        self._check_at = time.monotonic() + _CHECK_SECONDS
        if not self._names:
            raise ConfigError(
                f"{path}: has no keys: add one with `headwise serve --keys {path} --new-key NAME`"
            )

    def holder(self, key: str) -> str | None:
        """Return a key's holder, or None, in a time that does not depend on which key it is."""
        return self.holder_of_digest(digest_of(key))

    def holder_of_digest(self, digest: str) -> str | None:
        """Return the holder of the key with a digest; None if there is none, or no longer."""
        self._reload()
        found = None
        for known, name in self._names.items():
            if hmac.compare_digest(known, digest):
                found = name
        return found

    def _reload(self) -> None:
        """Read the file again if it has changed; keep the known keys if it cannot be read."""
        if time.monotonic() < self._check_at:
            return
        self._check_at = time.monotonic() + _CHECK_SECONDS
        stamp = _stamp_of(self._path)
        if stamp == self._stamp:
            return
        try:
            self._names = _names_in(self._path)
        except ConfigError as error:
            log("keys not read", error=str(error))  # Repeated until it is fixed.
        else:
            self._stamp = stamp
            log("keys read", keys=len(self._names))


def _stamp_of(path: Path) -> tuple[int, ...]:
    """Return metadata that changes when a file does."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _names_in(path: Path) -> dict[str, str]:
    """Return the holders of all keys in a file, by the keys' hashes."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError as error:
        raise ConfigError(
            f"{path}: cannot read the keys: there is no such file: "
            f"`headwise serve --keys {path} --new-key NAME` makes one"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot read the keys: {error}") from error
    names = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise ConfigError(
                f"{path}:{number}: not a hash and a name: "
                "`headwise serve --keys FILE --new-key NAME` adds such lines"
            )
        names[match[1]] = match[2]
    return names


def add_key(path: Path, name: str) -> str:
    """Make a key for a holder, add its hash to a file, and return the key: it is not stored."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a valid name for a key: use letters, digits, '.', '-' and '_'"
        )
    path = path.resolve()
    key = f"hw_{secrets.token_urlsafe(32)}"
    with _locked(path.parent):
        owner, before = None, _FIRST_LINE
        if path.exists():
            _names_in(path)
            owner, before = path.stat(), path.read_text("utf-8").rstrip("\n") + "\n"
        content = f"{before}{digest_of(key)} {name}\n".encode()
        with replacing(path) as file:
            _make_private(file.fileno(), path, owner)
            file.write(content)
    return key


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold an exclusive lock on a directory.

    A lock on the key file itself would be lost when the file is replaced.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _make_private(new: int, path: Path, before: os.stat_result | None) -> None:
    """Give a new file the owner and mode of the file it replaces, or make it private."""
    os.fchmod(new, 0o600)
    if before is None:
        return
    made = os.fstat(new)
    if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.fchown(new, before.st_uid, before.st_gid)
        except PermissionError as error:
            raise ConfigError(
                f"{path}: not changed: only root can keep its owner, user {before.st_uid} and "
                f"group {before.st_gid}: run this as that user or as root"
            ) from error
    os.fchmod(new, stat.S_IMODE(before.st_mode))


def digest_of(key: str) -> str:
    """Return the SHA-256 of a key or token: only that is stored."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def admit(scope: Scope, keys: Keys, key: str) -> bool:
    """Return whether a key is known, and record its holder; log the hash of one that is not."""
    holder = keys.holder(key)
    if holder is None:
        log("key refused", **scope["state"]["facts"], hash=digest_of(key)[:8])
        return False
    record_holder(scope, holder)
    return True


def record_holder(scope: Scope, holder: str) -> None:
    """Log a request, and count it in limits, under its key's holder."""
    scope["state"]["facts"]["key"] = holder
    scope["state"]["client"] = f"key {holder}"


class KeyGuard:
    """Refuse requests without a key, except health checks.

    The key is in the header `Authorization: Bearer`, or the request belongs to a session of the web
    page. The paths in `left_open` check the key later.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        *,
        session_holder: Callable[[Scope], str | None],
        left_open: Collection[str],
        refuse: Refuse,
    ) -> None:
        """Use `session_holder` to find the holder of a request's session."""
        self._app, self._keys, self._refuse = app, keys, refuse
        self._session_holder, self._left_open = session_holder, left_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in HEALTH_CHECKS:
            await self._app(scope, receive, send)
            return
        key = _bearer(Headers(scope=scope))
        if key is not None:
            is_allowed = admit(scope, self._keys, key)
        elif (holder := self._session_holder(scope)) is not None:
            record_holder(scope, holder)
            is_allowed = True
        else:
            is_allowed = scope["path"] in self._left_open
        if not is_allowed:
            await self._refuse(scope, key is not None)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class BodyKeyGuard:
    """Require a key on paths where it may be in the query or body, as in LibreTranslate's API."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        *,
        paths: Collection[str],
        key_in: Callable[[str, bytes], object],
        refuse: Refuse,
    ) -> None:
        """Use `key_in` to find the key in a body, given its content type."""
        self._app, self._keys, self._refuse = app, keys, refuse
        self._paths, self._key_in = paths, key_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        facts = scope.get("state", {}).get("facts", {})
        if scope["type"] == "http" and scope["path"] in self._paths and "key" not in facts:
            key = self._key(scope)
            if key is None or not admit(scope, self._keys, key):
                await self._refuse(scope, key is not None)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _key(self, scope: Scope) -> str | None:
        content_type = Headers(scope=scope).get("content-type", "")
        try:
            key: object = urlencoded_fields(scope["query_string"]).get("api_key", [""])[0]
            key = key or self._key_in(content_type, scope["state"]["body"])
        except RefusedError:
            return None
        return key if isinstance(key, str) and key else None


def _bearer(headers: Headers) -> str | None:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None


_SESSION_SECONDS = 12 * 60 * 60.0
_MOST_PER_KEY = 16
"""More sign-ins with a key end its oldest session."""


class _Session(NamedTuple):
    key_digest: str
    ends_at: float


class Sessions:
    """Sessions of people who entered their key on the page: a random token in a cookie.

    They are kept in memory: a restart ends all sessions.
    """

    def __init__(self, keys: Keys, proxies: TrustedProxies) -> None:
        self._keys, self._proxies = keys, proxies
        # By the token's hash, so that the time of a lookup reveals nothing about tokens.
        self._sessions: dict[str, _Session] = {}

    def sign_in(self, scope: Scope, key: str, answer: Response) -> bool:
        """Start a session with a key and set its cookie; return whether the key is known."""
        if not key or not admit(scope, self._keys, key):
            return False
        now, key_digest = time.monotonic(), digest_of(key)
        live = {token: each for token, each in self._sessions.items() if each.ends_at > now}
        of_key = [token for token, each in live.items() if each.key_digest == key_digest]
        for token in of_key[: max(0, len(of_key) - _MOST_PER_KEY + 1)]:
            del live[token]
        token = secrets.token_urlsafe(32)
        live[digest_of(token)] = _Session(key_digest, now + _SESSION_SECONDS)
        self._sessions = live
        # Not readable by scripts, not sent for other sites, and deleted with the browser session.
        answer.set_cookie(
            self._cookie(scope),
            token,
            httponly=True,
            samesite="strict",
            secure=self._is_secure(scope),
        )
        return True

    def __len__(self) -> int:
        """Return how many sessions are kept; expired ones are removed at the next sign-in."""
        return len(self._sessions)

    def holder(self, scope: Scope) -> str | None:
        """Return the holder of a request's session; None if it has no valid one."""
        token = _cookie_value(Headers(scope=scope).get("cookie", ""), self._cookie(scope))
        session = None if token is None else self._sessions.get(digest_of(token))
        if session is None or session.ends_at <= time.monotonic():
            return None
        return self._keys.holder_of_digest(session.key_digest)

    def _cookie(self, scope: Scope) -> str:
        """Return the cookie's name, with the port: browsers share cookies between a host's ports.

        With the prefix __Host-, browsers accept the cookie only over TLS and from this host.
        """
        scheme = scheme_of(scope, self._proxies)
        host = parse_host(Headers(scope=scope).get("host", ""), scheme)
        name = f"headwise_session_{host.port if host else 0}"
        return f"__Host-{name}" if self._is_secure(scope) else name

    def _is_secure(self, scope: Scope) -> bool:
        return scheme_of(scope, self._proxies) == "https"


def _cookie_value(header: str, wanted: str) -> str | None:
    # On some Pythons, http.cookies takes seconds for a header full of backslashes.
    for cookie in header.split(";"):
        name, _, value = cookie.partition("=")
        if name.strip() == wanted:
            return value.strip() or None
    return None

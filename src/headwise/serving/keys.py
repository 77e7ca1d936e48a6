"""API keys: a file of hashes, and a guard that lets nobody pass without one.

A key is 32 random bytes, so that there is no dictionary to try against its SHA-256; a slow hash
would only slow the server down. The file has a line for each: the hash and the name of its holder.
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

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headwise.errors import ConfigError
from headwise.files import replacing
from headwise.serving.forms import urlencoded_fields
from headwise.serving.limits import RefusedError
from headwise.serving.logs import log

OPEN = ("/healthz", "/readyz")
"""What is answered without a key."""

Refuse = Callable[[Scope, bool], Response]
"""Answers whoever has no key, or a wrong one (True)."""

_LINE = re.compile(r"([0-9a-f]{64}) (\S+)")
_NAME = re.compile(r"[\w.@-]{1,64}")

_FIRST_LINE = "# SHA-256 of each key, and whose it is. Remove a line to revoke a key.\n"

_LOOK_SECONDS = 1.0
"""How long a file that was changed may go unnoticed."""


class Keys:
    """The keys that are accepted, by their hashes: those of a file, as it is now."""

    def __init__(self, path: Path) -> None:
        """Read a file of keys, of which there must be some to begin with."""
        self._path = path
        self._stamp = _stamp_of(path)
        self._names = _names_in(path)
        self._look_at = time.monotonic() + _LOOK_SECONDS
        if not self._names:
            raise ConfigError(
                f"{path}: has no keys: add one with `headwise serve --keys {path} --new-key NAME`"
            )

    def holder(self, key: str) -> str | None:
        """Return whose key this is; None if it is nobody's. Takes as long whosever it is."""
        return self.holder_of_digest(digest_of(key))

    def holder_of_digest(self, digest: str) -> str | None:
        """Return whose key has a digest; None if there is no such key, or not any more."""
        self._look_again()
        found = None
        for known, name in self._names.items():
            if hmac.compare_digest(known, digest):
                found = name
        return found

    def _look_again(self) -> None:
        """Read the file again if it has changed; one that cannot be read changes nothing."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_SECONDS
        stamp = _stamp_of(self._path)
        if stamp == self._stamp:
            return
        try:
            self._names = _names_in(self._path)
        except ConfigError as error:
            log("keys not read", error=str(error))  # Again and again, until somebody sees to it.
        else:
            self._stamp = stamp
            log("keys read", keys=len(self._names))


def _stamp_of(path: Path) -> tuple[int, ...]:
    """Return what changes with a file."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _names_in(path: Path) -> dict[str, str]:
    """Return the names of the holders of all keys in a file, by the keys' hashes."""
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
    """Make a key for somebody, add it to a file of keys, and return it: it is not kept."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for a key: use letters, digits, '.', '-' and '_'")
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
    """Let one process at a time change the files of a directory.

    A lock on a file that is replaced would be a lock on the one that is no longer there.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _make_private(new: int, path: Path, before: os.stat_result | None) -> None:
    """Give the open file that takes the place of another the other's owner and mode."""
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
    """Return the SHA-256 of a key, which is what is kept of it."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def admit(scope: Scope, keys: Keys, key: str) -> bool:
    """Return whether a key is known, and note whose it is; log one that is not, by its hash."""
    holder = keys.holder(key)
    if holder is None:
        log("key refused", **scope["state"]["facts"], hash=digest_of(key)[:8])
        return False
    note_holder(scope, holder)
    return True


def note_holder(scope: Scope, holder: str) -> None:
    """Log a request, and count it towards limits, as that of a key's holder."""
    scope["state"]["facts"]["key"] = holder
    scope["state"]["client"] = f"key {holder}"


class KeyGuard:
    """Let nobody pass without a key, but to ask how the server is.

    A key stands in the header `Authorization: Bearer`; a person who gave it to the page has a
    session instead. On the paths that are `left_open`, a later guard asks for it.
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
        """Find the holder of a request's session with `session_holder`."""
        self._app, self._keys, self._refuse = app, keys, refuse
        self._session_holder, self._left_open = session_holder, left_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        key = _bearer(Headers(scope=scope))
        if key is not None:
            may_pass = admit(scope, self._keys, key)
        elif (holder := self._session_holder(scope)) is not None:
            note_holder(scope, holder)
            may_pass = True
        else:
            may_pass = scope["path"] in self._left_open
        if not may_pass:
            await self._refuse(scope, key is not None)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class BodyKeyGuard:
    """Ask for the key on paths where it may stand in the request: LibreTranslate's."""

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        *,
        paths: Collection[str],
        key_in: Callable[[str, bytes], object],
        refuse: Refuse,
    ) -> None:
        """Find the key in a body of some content type with `key_in`."""
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

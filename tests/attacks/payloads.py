"""What the attackers send: each attack's requests, made once and sent again and again."""

import json
from collections.abc import Iterator
from itertools import count, cycle

LARGE_BYTES = 980_000
"""Larger than a body may be."""
BODY_BYTES = 195_000
"""As large as a body may be, almost."""
LONGEST_MINIMUM = 1_000_000
"""The longest minimum that a request may ask a translation to have."""
CHARACTERS = 9_990
"""As long as the texts of a request may be, almost."""


def request(
    path: str,
    body: bytes = b"",
    kind: str = "application/json",
    *,
    method: str = "POST",
    host: str = "127.0.0.1",
    **headers: str,
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}"]
    if body:
        lines.append(f"Content-Type: {kind}")
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def api(path: str, **fields: object) -> bytes:
    return request(path, json.dumps(fields).encode())


def words(characters: int) -> str:
    """Return a text of about so many characters, without any end of a sentence."""
    return ("ban dora kuti don bara " * (characters // 23 + 1))[:characters].strip()


def filled(begin: bytes, piece: bytes, end: bytes, size: int = BODY_BYTES) -> bytes:
    """Return a body that repeats a piece until it is as large as a body may be."""
    return begin + piece * ((size - len(begin) - len(end)) // len(piece)) + end


def wrong_types() -> Iterator[bytes]:
    sizes = (BODY_BYTES, LARGE_BYTES)
    bodies = [filled(b'{"q":[1', b",1", b"]}", size) for size in sizes]
    return cycle(
        [request(path, body) for body in bodies for path in ("/v1/translate", "/translate")]
    )


def odd_json() -> Iterator[bytes]:
    keys = ",".join(f'"k{number}":0' for number in range(17_000)).encode()
    bodies = [
        b'{"q":"ban",' + keys + b"}",
        filled(b'{"q":', b"[", b"0"),
        filled(b'{"q":[{}', b",{}", b"]}"),
    ]
    return cycle(
        [request(path, each) for each in bodies for path in ("/v1/translate", "/translate")]
    )


def odd_forms() -> Iterator[bytes]:
    form, parts = "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"
    field = b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n'
    bodies = [
        (filled(b"q=ban", b"&a=1", b""), form),
        (filled(b"q=", b"%61", b""), form),
        (filled(b"", field, b"--b--\r\n"), parts),
        (filled(b"", b"\r\n--b", b""), parts),
    ]
    return cycle(
        [request(path, body, kind) for body, kind in bodies for path in ("/translate", "/session")]
    )


def many_lines() -> Iterator[bytes]:
    """Ask for texts of many lines: as many as fit, and fewer, which may be accepted."""
    return cycle([api("/v1/translate", q="a\n" * lines) for lines in (CHARACTERS // 2, 900, 400)])


def wide() -> Iterator[bytes]:
    """Ask for wide and long searches, each with settings that it shares with no other.

    The longest texts, and a length that no search has, may be refused; the others not.
    """
    texts = cycle([words(characters) for characters in (CHARACTERS, 3_000, 1_000, 3_000, 300)])
    for number in count(1):
        least = 10**9 if number % 10 == 0 else LONGEST_MINIMUM
        yield api(
            "/v1/translate",
            q=next(texts),
            beam=16,
            nbest=16,
            alpha=number / 10_000,
            min_length=least,
        )


def details() -> Iterator[bytes]:
    text = words(CHARACTERS)
    return cycle(
        [
            api("/v1/translate", q=text, alignment=True, token_scores=True),
            api("/v1/translate", q=words(3_000), alignment=True, token_scores=True),
            api("/v1/attention", q=words(700)),
            api("/v1/attention", q=text),
        ]
    )


def large_answers() -> Iterator[bytes]:
    return cycle([api("/v1/attention", q=words(700)), api("/v1/translate", q=words(5000), nbest=8)])


def other_sites() -> Iterator[bytes]:
    elsewhere = {"Origin": "https://evil.example", "Sec_Fetch_Site": "cross-site"}
    question = json.dumps({"q": "ban dora"}).encode()
    return cycle(
        [
            request("/v1/models", method="GET", host="evil.example"),
            request("/v1/translate", question, host="evil.example"),
            request("/v1/translate", question, "text/plain", **elsewhere),
            request("/v1/translate", question, **elsewhere),
            request(
                "/translate", b"q=ban&source=auto&target=tgt", "application/x-www-form-urlencoded",
                **elsewhere,
            ),
        ]
    )  # fmt: skip


def pipelined() -> bytes:
    """Return requests to be sent without waiting for the answers."""
    return b"".join(
        [api("/v1/translate", q=words(300))] * 50 + [request("/v1/models", method="GET")] * 50
    )


def garbage() -> Iterator[bytes]:
    """Requests that are refused while malformed chunks still arrive."""
    chunks = b"5\r\nabcde\r\nzz\r\n" + b"\xff" * 20_000
    head = b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    return cycle(
        [
            head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
            head + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + chunks,
            head + b"Content-Length: 99999999\r\n\r\n" + chunks,
            b"\x16\x03\x01" + chunks,
        ]
    )

"""The limits of a server, and the error for requests beyond them."""

from dataclasses import dataclass

from headwise.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a server; the defaults suit a small machine."""

    body_bytes: int = 200_000
    """Most bytes of a request's body: a character takes at most 12 in JSON. Parsing 1 MB would hold
    the GIL for 25 ms."""
    upload_bytes: int = 20_000_000
    """The same of a request with files, such as images and sounds."""
    all_bodies_bytes: int = 64_000_000
    """Most bytes of all bodies whose requests are not answered yet."""
    all_uploads_bytes: int = 64_000_000
    """The same of bodies with files; a client may have `upload_bytes` of it at a time."""
    keyless_bodies_bytes: int = 4_000_000
    """Most bytes of all bodies being read from clients that have not sent a key yet, where keys are
    in use."""
    all_answers_bytes: int = 64_000_000
    """Most bytes of all responses that clients have not received yet."""
    connections: int = 256
    """Most connections from one client address."""
    characters: int = 10_000
    """Most characters of all texts of a request."""
    texts: int = 500
    """Most texts of a request."""
    candidates: int = 16
    """Widest beam and longest n-best list."""
    cost: int = 250_000
    """Most tokens that a request may generate: those of all hypotheses of all sentences at their
    greatest length. Of a language model: those of all prompts that it reads, and of all
    continuations."""
    attention_weights: int = 400_000
    """Most attention weights of a response (a few megabytes), and of one sentence's alignment."""
    queue: int = 1000
    """Most sentences that wait for a model, divided among the waiting clients."""
    rate: int | None = None
    """Most characters per minute from one client; None: unlimited."""
    requests: int = 256
    """Most concurrent requests from one client."""
    deadline: float = 30.0
    """Timeout of a request in seconds."""
    read_seconds: float = 10.0
    """Seconds within which a request's header must arrive, and then its body."""
    answer_seconds: float = 60.0
    """Seconds within which a client must receive the whole response."""
    stop_seconds: float = 10.0
    """Seconds that requests have to finish once the server is stopping."""
    hang_seconds: float = 60.0
    """Seconds without a completed step after which a model or worker counts as hung; at least the
    deadline."""


class RefusedError(RequestError):
    """A request that is refused with an HTTP status, and after how many seconds to retry it."""

    def __init__(
        self,
        status: int,
        sentence: str,
        *,
        retry_after: int | None = None,
        field: str | None = None,
    ) -> None:
        """Name the `field` of the request that is wrong, if it is one."""
        super().__init__(sentence)
        self.status, self.retry_after, self.field = status, retry_after, field


def too_long(what: str, count: int, most: int) -> RefusedError:
    """Return the refusal of a request that has more of something than is allowed."""
    return RefusedError(413, f"{count:,} {what} are too many: send at most {most:,} in one request")

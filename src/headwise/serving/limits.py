"""What one request may take, and what a request that may not is told."""

from dataclasses import dataclass

from headwise.errors import RequestError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is served to whom; each has a value that suits a small machine."""

    body_bytes: int = 200_000
    """Most bytes of a request's body: as JSON, a character has twelve at most, and a key needs few.
    To parse a megabyte would hold Python's lock for 25 ms."""
    all_bodies_bytes: int = 64_000_000
    """Most bytes of all bodies that are being read at once."""
    keyless_bodies_bytes: int = 4_000_000
    """Most bytes of all bodies that are being read from clients that have not shown a key yet,
    where keys are in use."""
    all_answers_bytes: int = 64_000_000
    """Most bytes of all answers that wait for their clients to take them."""
    connections: int = 256
    """Most connections from one client address."""
    characters: int = 10_000
    """Most characters of all texts of a request."""
    texts: int = 500
    """Most texts of a request."""
    candidates: int = 16
    """Widest beam and longest n-best list."""
    cost: int = 250_000
    """Most tokens that a request may make a search write: of all hypotheses of all sentences, each
    as long as it can become."""
    attention_weights: int = 400_000
    """Most attention weights of an answer, a few megabytes, and of one sentence's alignment."""
    queue: int = 1000
    """Most sentences that wait for a model, divided among the clients that wait."""
    rate: int | None = None
    """Most characters a minute from one client; None: any number."""
    requests: int = 256
    """Most requests from one client that are answered at once."""
    deadline: float = 30.0
    """Seconds after which a request is given up."""
    read_seconds: float = 10.0
    """Seconds in which a request's header must be there, and then its body."""
    answer_seconds: float = 60.0
    """Seconds in which a client must take the whole answer."""
    stop_seconds: float = 10.0
    """Seconds that requests have to finish once the server is told to stop."""
    hang_seconds: float = 60.0
    """Seconds without a completed step after which what computes counts as hung; not less than the
    deadline."""


class RefusedError(RequestError):
    """A request that is answered with an error and, where it may come again, when."""

    def __init__(self, status: int, sentence: str, *, retry_after: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.retry_after = status, retry_after


def too_long(what: str, count: int, most: int) -> RefusedError:
    """Say that a request has more of something than it may have."""
    return RefusedError(413, f"{count:,} {what} are too many: send at most {most:,} in one request")

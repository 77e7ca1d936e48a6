"""Limits on bodies: of clients that have not sent a key, and of those that send files."""

import asyncio

from starlette.responses import PlainTextResponse
from starlette.types import Message, Scope

from headwise.serving.bodies import BodyGuard
from headwise.serving.limits import Limits

LIMITS = Limits(
    keyless_bodies_bytes=100,
    all_bodies_bytes=1000,
    body_bytes=500,
    upload_bytes=5_000,
    all_uploads_bytes=8_000,
)
UPLOADS = "/v1/classify"


class Client:
    """Sends a body as a test says, and receives the response."""

    def __init__(
        self, guard: BodyGuard, *, key: str | None = None, client: str = "", uploads: bool = False
    ) -> None:
        self._guard, self.status, self.said = guard, 0, b""
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        facts = {} if key is None else {"key": key}
        headers = [(b"content-type", b"multipart/form-data; boundary=x")] if uploads else []
        self._scope: Scope = {
            "type": "http",
            "path": UPLOADS,
            "headers": headers,
            "state": {"facts": facts, "client": client},
        }
        self._task = asyncio.create_task(guard(self._scope, self._messages.get, self._take))

    async def send(self, size: int, *, more: bool) -> None:
        body = b" " * size
        await self._messages.put({"type": "http.request", "body": body, "more_body": more})
        while not self._messages.empty():
            await asyncio.sleep(0)

    async def leave(self) -> None:
        await self._messages.put({"type": "http.disconnect"})
        await self._task

    async def answer(self) -> int:
        await self._task
        return self.status

    async def _take(self, message: Message) -> None:
        self.status = message.get("status", self.status)
        self.said += message.get("body", b"")


def test_bodies_without_a_key_have_a_small_budget_of_their_own() -> None:
    async def scenario() -> None:
        guard = BodyGuard(PlainTextResponse("read"), LIMITS, has_keys=True)
        first, second = Client(guard), Client(guard)
        await first.send(90, more=True)
        await second.send(20, more=True)
        assert await second.answer() == 503
        with_key = Client(guard, key="alice")
        await with_key.send(400, more=False)
        assert await with_key.answer() == 200, "clients with a key are not affected"
        await first.send(0, more=False)
        assert await first.answer() == 200
        third = Client(guard)
        await third.send(100, more=False)
        assert await third.answer() == 200, "the first has left room"

    asyncio.run(scenario())


def test_refused_and_lost_bodies_leave_the_budget() -> None:
    async def scenario() -> None:
        guard = BodyGuard(PlainTextResponse("read"), LIMITS, has_keys=True)
        lost, too_large = Client(guard), Client(guard)
        await lost.send(90, more=True)
        await lost.leave()
        await too_large.send(501, more=True)
        assert await too_large.answer() == 413
        assert (guard.bodies.held, guard.keyless_bytes) == (0, 0)

    asyncio.run(scenario())


def test_where_no_keys_are_in_use_there_is_one_budget() -> None:
    async def scenario() -> None:
        client = Client(BodyGuard(PlainTextResponse("read"), LIMITS))
        await client.send(400, more=False)
        assert await client.answer() == 200

    asyncio.run(scenario())


def test_bodies_with_files_have_a_budget_of_their_own_and_a_share_for_each_client() -> None:
    async def scenario() -> None:
        guard = BodyGuard(PlainTextResponse("read"), LIMITS, uploads=[UPLOADS])
        first = Client(guard, client="alice", uploads=True)
        await first.send(4_000, more=True)
        same = Client(guard, client="alice", uploads=True)
        await same.send(2_000, more=True)
        assert await same.answer() == 429
        assert "more than 0.005 MB of uploads at once from this client" in same.said.decode()
        second = Client(guard, client="bob", uploads=True)
        await second.send(4_500, more=True)
        assert await second.answer() == 503, "of all clients together"
        text = Client(guard, client="bob")
        await text.send(400, more=False)
        assert await text.answer() == 200, "texts are not affected"
        large = Client(guard, client="bob")
        await large.send(501, more=True)
        assert await large.answer() == 413, "only a body with files may be large"
        await first.send(0, more=False)
        assert await first.answer() == 200
        assert (guard.bodies.held, guard.uploads.held) == (0, 0)

    asyncio.run(scenario())

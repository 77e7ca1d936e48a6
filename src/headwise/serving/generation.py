"""Continue prompts for clients, within the limits."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from headwise.serving.batching import Batcher
from headwise.serving.fairness import Ticket
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.models import GenerationModel
from headwise.serving.searches import Source
from headwise.serving.service import Service
from headwise.serving.writing import TOGETHER, Arrivals, Job, Result
from headwise.tasks.language_model.generation import GenerationSettings
from headwise.tasks.language_model.writing import Piece

_MOST_INLINE_CHARACTERS = 1000
"""What is cut into tokens in the event loop: that takes a few milliseconds."""
_MOST_INLINE_ENTRIES = 2000
"""Of tokens and their probabilities: from these, answers are made in the event loop."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a request asks for, whatever API it uses."""

    prompts: Sequence[str]
    settings: GenerationSettings
    """Those of each prompt; `count` continuations are written of each."""
    stop: Sequence[str] = ()
    num_best: int | None = None


async def submit(
    service: Service,
    model: GenerationModel,
    order: Order,
    client: str,
    arrivals: Arrivals | None = None,
) -> "Writing":
    """Queue the continuations that a request asks for, within the limits.

    The caller must drop what it returns, whatever happens.
    """
    service.check_size(order.prompts)
    batcher, limits, settings = service.writer(model), service.limits, order.settings
    if settings.count > limits.candidates:
        raise RefusedError(400, f"at most {limits.candidates} continuations of a prompt are served")
    # Each prompt has at least the end of the document before it: check before it is read.
    count = len(order.prompts) * settings.count
    _check_cost(count * (1 + settings.max_tokens), limits)
    batcher.check_room(client, count)
    characters = sum(map(len, order.prompts))
    is_long = characters > _MOST_INLINE_CHARACTERS
    if is_long:
        service.bulk_calls.check_room(client)
    make = partial(
        model.generator.drafts,
        order.prompts,
        settings,
        stop=order.stop,
        num_best=order.num_best,
    )
    drafts = await service.between_steps(make, client, is_long=is_long)
    context = model.generator.config.data.context
    _check_cost(
        sum(draft.num_read(context) for draft in drafts) + count * settings.max_tokens, limits
    )
    batcher.check_room(client, count)
    service.rate.take(client, characters)
    jobs = [Job(draft, context, index, arrivals) for index, draft in enumerate(drafts)]
    num_tokens = sum(len(draft.prompt) - 1 for draft in drafts[:: settings.count])
    return Writing(batcher, batcher.submit(jobs, TOGETHER, client), arrivals, num_tokens)


class Writing:
    """The continuations of a request, in the order of its prompts."""

    def __init__(
        self,
        batcher: Batcher[Job, Result],
        ticket: Ticket[Source[Job], Result],
        arrivals: Arrivals | None,
        num_prompt_tokens: int,
    ) -> None:
        self._batcher, self._ticket, self._arrivals = batcher, ticket, arrivals
        self.num_prompt_tokens = num_prompt_tokens
        # Read the error, which would be logged if no one awaited it.
        ticket.future.add_done_callback(lambda each: each.cancelled() or each.exception())

    def drop(self) -> None:
        """Stop writing what is not done."""
        self._batcher.drop(self._ticket)

    async def whole(self) -> list[Piece]:
        """Return all continuations once they have ended."""
        found = await self._ticket.future
        return [piece for piece in found if piece is not None]

    async def pieces(self) -> AsyncIterator[dict[int, Piece]]:
        """Yield what is added to each continuation, by its number, as it arrives."""
        arrivals, future = self._arrivals, self._ticket.future
        assert arrivals is not None
        future.add_done_callback(lambda _: arrivals.wake())
        left = self._ticket.size
        while left:
            found = await arrivals.take()
            if future.done() and future.exception() is not None:
                future.result()
            left -= sum(piece.ending is not None for piece in found.values())
            if found:
                yield found


def _check_cost(tokens: int, limits: Limits) -> None:
    if tokens > limits.cost:
        raise RefusedError(
            400,
            f"prompts and continuations may have {tokens:,} tokens, more than {limits.cost:,}: "
            "ask for fewer, or for shorter ones",
        )


async def make_answer(
    service: Service, order: Order, found: Sequence[Piece], client: str, make: Callable[[], str]
) -> str:
    """Return the answer that `make` makes of whole continuations."""
    entries = sum(len(each.tokens) for each in found) * (1 + (order.num_best or 0))
    return await service.between_steps(make, client, is_long=entries > _MOST_INLINE_ENTRIES)

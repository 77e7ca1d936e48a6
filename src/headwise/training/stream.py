"""The endless row of batches, entered anywhere."""

from collections.abc import Iterator
from dataclasses import dataclass

from headwise.data.batches import Batches, Indices


@dataclass(frozen=True, kw_only=True)
class Place:
    """One batch and where it stands."""

    epoch: int
    batch: int
    examples: Indices
    unit: str = "examples"
    """What they are called."""

    def __str__(self) -> str:
        some = ", ".join(map(str, self.examples[:3]))
        more = ", …" if len(self.examples) > 3 else ""
        where = f"epoch {self.epoch + 1}, batch {self.batch + 1}"
        return f"{where} ({self.unit} {some}{more} of the data)"


class BatchStream:
    """Batches of one epoch after the other, from a given place on."""

    def __init__(self, batches: Batches, *, epoch: int, batch: int, unit: str) -> None:
        self._batches, self._unit = batches, unit
        self.epoch, self.batch = epoch, batch
        self._rest = self._enter(epoch, batch)
        self._next = next(self._rest, None)
        if self._next is None:
            self._turn()

    def take(self, count: int) -> list[Place]:
        """Return the next batches; `epoch` and `batch` then say where the one after them stands."""
        places = []
        for _ in range(count):
            assert self._next is not None
            place = Place(epoch=self.epoch, batch=self.batch, examples=self._next, unit=self._unit)
            places.append(place)
            self.batch += 1
            self._next = next(self._rest, None)
            if self._next is None:
                self._turn()
        return places

    def _turn(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0
        self._rest = self._enter(self.epoch, 0)
        self._next = next(self._rest, None)

    def _enter(self, epoch: int, batch: int) -> Iterator[Indices]:
        rest = self._batches.epoch(epoch)
        for _ in range(batch):
            next(rest, None)
        return rest

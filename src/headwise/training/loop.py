"""The training loop: updates until a limit, with validation and checkpoints on the way.

Everything random in it is keyed by where training stands (batches by seed and epoch, dropout by
seed, update and batch), so that a run that was stopped anywhere and resumed is the run that never
was: bit for bit, on the same machine with the same number of threads.

Paper: §5.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from headwise.config import AnyConfig
from headwise.data.batches import Batches, on_device
from headwise.errors import CheckpointError, ConfigError, DivergenceError
from headwise.machine import is_out_of_memory
from headwise.runs.checkpoint import Checkpoint, write_checkpoint
from headwise.runs.checkpoints import prune
from headwise.runs.directory import RunDirectory
from headwise.runs.metrics import MetricsFile
from headwise.runs.state import TrainingState
from headwise.runs.weights import load_optimizer, load_weights, model_weights, optimizer_tensors
from headwise.training.distributed import World
from headwise.training.events import Event, Note, Saved, Updated, Validated
from headwise.training.memory import peak_mib
from headwise.training.optimizer import adam
from headwise.training.products import fast_float32_products
from headwise.training.schedule import learning_rate
from headwise.training.step import keyed_dropout
from headwise.training.stops import StopSignal, limit_reached, share_done
from headwise.training.stream import BatchStream, Place
from headwise.training.validation import Collate, Validation, ValidationResult
from headwise.training.window import Window


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Why training ended."""

    state: TrainingState
    reason: str
    signal: int = 0
    """The signal that asked for it, if one did."""


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """Examples to train on, in batches."""

    batches: Batches
    collate: Collate
    unit: str
    """What an example is called, in the plural."""


class TrainingLoop:
    """Train a model until a limit is reached or a signal comes."""

    def __init__(
        self,
        model: nn.Module,
        objective: nn.Module,
        config: AnyConfig,
        data: TrainingSet,
        validation: Validation | None,
        run: RunDirectory,
        world: World,
        on_event: Callable[[Event], None],
    ) -> None:
        """Train `model` by `objective`, which holds it and returns its loss."""
        self.model, self.objective = model.to(world.device), objective
        self.state = TrainingState(
            batches_per_update=config.train.accumulate * world.size,
            score=(validation.score if validation else "") or TrainingState.score,
        )
        self._config, self._data, self._validation = config, data, validation
        self._batches = data.batches
        self._run, self._world, self._on_event = run, world, on_event
        self._optimizer = adam(self.model.parameters(), config.train)
        self._step = objective
        self._saved_step = 0

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint."""
        source = str(self._run.step_directory(checkpoint.state.step))
        if checkpoint.state.batches_per_update != self.state.batches_per_update:
            raise CheckpointError(
                f"{source}: an update of this run has {checkpoint.state.batches_per_update} "
                f"batches, and here it would have {self.state.batches_per_update} "
                f"(train.accumulate × {self._world.size} processes): use as many as before"
            )
        load_weights(self.model, checkpoint.weights, source)
        load_optimizer(self.model, self._optimizer, checkpoint.optimizer, source)
        self.state = replace(checkpoint.state, interrupted=False)
        self._saved_step = self.state.step

    def measure(self, weights: Mapping[str, Tensor]) -> ValidationResult | None:
        """Validate other weights, and restore the model's own."""
        if self._validation is None:
            return None
        own = {name: tensor.clone() for name, tensor in model_weights(self.model).items()}
        load_weights(self.model, weights, "these weights")
        try:
            return self._measure(self._validation)
        finally:
            load_weights(self.model, own, "the model's own weights")

    def run(self, wish: StopSignal) -> Ending:
        """Make updates until there is a reason not to; save; say why."""
        # Not before: from here on every backward pass is one of all processes together.
        self._step = self._world.share(self.objective)
        if self._config.train.compile:
            self._step.compile(dynamic=True)
        metrics = None
        if self._world.is_first:
            metrics = MetricsFile(self._run.metrics_file, step=self.state.step)
            if metrics.unreadable:
                lines = f"{metrics.unreadable:,} lines of {self._run.metrics_file}"
                self._on_event(Note(text=f"{lines} could not be read: left out", is_warning=True))
        try:
            with fast_float32_products(self._world.device):
                return self._until_the_end(wish, metrics)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise ConfigError(
                f"there is not enough memory for update {self.state.step + 1:,}: lower "
                "train.batch_tokens, and raise train.accumulate by as much for the same updates"
            ) from error
        finally:
            if metrics is not None:
                metrics.close()

    def _until_the_end(self, wish: StopSignal, metrics: MetricsFile | None) -> Ending:
        train, state = self._config.train, self.state
        stream = BatchStream(
            self._batches, epoch=state.epoch, batch=state.batch, unit=self._data.unit
        )
        window = Window()
        began = time.monotonic() - 60 * state.minutes
        saved_at = state.due_minutes
        # The clock and the signals are each process's own; what follows from them is common.
        minutes, signal = state.minutes, 0
        while True:
            if reason := limit_reached(train, self.state, minutes):
                if self._saved_step < self.state.step:
                    self._save(metrics, began)
                return Ending(state=self.state, reason=reason)
            if signal or not self._update(stream, window, minutes, wish):
                if self._saved_step < self.state.step:
                    stopped = replace(_unvalidated(self.state), interrupted=True)
                    self._write(replace(stopped, minutes=minutes))
                signal = signal or wish.number
                return Ending(state=self.state, reason="told to stop", signal=signal)
            agreed = self._world.largest([(time.monotonic() - began) / 60, float(wish.number)])
            minutes, signal = agreed[0], int(agreed[1])
            self.state = replace(self.state, minutes=minutes)
            self._tell(window, metrics, minutes)
            due_by_clock = 0 < train.save_every_minutes <= minutes - saved_at
            if due_by_clock or (
                train.save_every_steps and self.state.step % train.save_every_steps == 0
            ):
                self._save(metrics, began)
                minutes = saved_at = self.state.minutes
                window.resume()

    def _update(
        self, stream: BatchStream, window: Window, minutes: float, wish: StopSignal
    ) -> bool:
        """Make one update; return False if a signal came before it was whole, and was not made."""
        train, world, number = self._config.train, self._world, self.state.step + 1
        places = stream.take(self.state.batches_per_update)
        tokens: Counter[str] = Counter()
        for place in places:
            tokens.update(self._batches.tokens(place.examples))
        targets = sum(self._batches.targets(place.examples) for place in places)
        for index in range(world.rank, len(places), world.size):
            is_last = index + world.size >= len(places)
            examples = places[index].examples
            batch = on_device(self._data.collate(examples, places[index].epoch), world.device)
            with window.computing():
                # DDP averages over processes; the loss is a mean over the tokens of them all.
                scale = world.size / targets
                smoothed, nll = self._accumulate(batch, places[index], index, is_last, scale)
            window.add_batch(
                smoothed=smoothed,
                nll=nll,
                targets=self._batches.targets(examples),
                positions=self._batches.positions(examples),
                filled=sum(self._batches.tokens(examples).values()),
            )
            # Processes must agree to stop; alone, one need not finish the update.
            if wish.number and world.size == 1 and not is_last:
                self._optimizer.zero_grad()
                return False
        rate = learning_rate(number, train, self._config.model.d_model, minutes)
        with window.computing():
            norm = self._apply(rate, places)
        window.add_update(rate=rate, norm=norm, tokens=tokens)
        self.state = replace(
            self.state,
            step=number,
            epoch=stream.epoch,
            batch=stream.batch,
            tokens=self.state.tokens + targets,
        )
        return True

    def _accumulate(
        self, batch: tuple[Tensor, ...], place: Place, index: int, is_last: bool, scale: float
    ) -> tuple[float, float]:
        """Add one batch's gradient to those of its update; return its sums of loss and NLL."""
        exchange = nullcontext()
        if self._world.size > 1 and not is_last:
            exchange = self._step.no_sync()  # type: ignore[operator]
        key = self._config.train.seed, self.state.step + 1, index
        with exchange:
            with keyed_dropout(*key), self._autocast():
                sums, _ = self._step(*batch)
            smoothed, nll = float(sums.smoothed.detach()), float(sums.nll)
            if not math.isfinite(smoothed):
                raise DivergenceError(self._divergence(f"the loss is {smoothed}", place))
            (sums.smoothed * scale).backward()
        return smoothed, nll

    def _apply(self, rate: float, places: list[Place]) -> float:
        """Let Adam make the update; return the gradient's norm, before any clipping."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = float(nn.utils.get_total_norm(gradients))
        if not math.isfinite(norm):
            raise DivergenceError(self._divergence(f"the gradient's norm is {norm}", places[0]))
        clip = self._config.train.clip_norm
        if 0 < clip < norm:
            torch._foreach_mul_(gradients, clip / norm)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad()
        return norm

    def _autocast(self) -> torch.autocast:
        enabled = self._config.train.precision == "bfloat16"
        return torch.autocast(self._world.device.type, torch.bfloat16, enabled=enabled)

    def _divergence(self, what: str, place: Place) -> str:
        return (
            f"update {self.state.step + 1:,}, {place}: {what}: stopped before the update; "
            f"{self._last_good()}. "
            "Try a lower rate, a longer warm-up (train.warmup_steps) or train.clip_norm=1"
        )

    def _tell(self, window: Window, metrics: MetricsFile | None, minutes: float) -> None:
        """Log a line every so many updates, and tell whoever watches of each."""
        train, step = self._config.train, self.state.step
        logged = step % train.log_every_steps == 0
        if logged:
            window.gather(self._world)
        if metrics is not None:
            epochs = self.state.tokens / self._batches.target_tokens
            means, memory = window.means(), peak_mib(self._world.device)
            if logged:
                place = {"kind": "train", "step": step, "epoch": epochs, "minutes": minutes}
                metrics.add({**place, **means.to_dict(), "memory_mib": memory})
            self._on_event(
                Updated(
                    step=step,
                    epoch=epochs,
                    minutes=minutes,
                    share_done=share_done(train, self.state, epochs, minutes),
                    means=means,
                    memory_mib=memory,
                    logged=logged,
                )
            )
        if logged:
            window.clear()

    def _save(self, metrics: MetricsFile | None, began: float) -> None:
        """Validate and save a checkpoint that is due."""
        self.state = _unvalidated(self.state)
        if self._validation is not None:
            self._validate(self._validation, metrics)
        (minutes,) = self._world.largest([(time.monotonic() - began) / 60])
        self.state = replace(self.state, minutes=minutes, due_minutes=minutes)
        if metrics is not None:
            metrics.sync()
        self._write(self.state)

    def _measure(self, validation: Validation) -> ValidationResult:
        return validation.measure(self.objective, self.model, self._world, self._autocast())

    def _validate(self, validation: Validation, metrics: MetricsFile | None) -> None:
        result = self._measure(validation)
        state = replace(self.state, valid_loss=result.loss)
        is_best = result.loss < state.best_loss
        if validation.score in result.figures:
            state = replace(state, valid_score=result.figures[validation.score])
            is_best = state.valid_score > state.best_score
        if is_best:
            state = replace(
                state,
                best_loss=result.loss,
                best_score=state.valid_score,
                best_step=state.step,
                validations_since_best=0,
            )
        else:
            state = replace(state, validations_since_best=state.validations_since_best + 1)
        self.state = state
        if metrics is None:
            return
        place = {
            "kind": "valid",
            "step": state.step,
            "epoch": state.tokens / self._batches.target_tokens,
            "minutes": state.minutes,
        }
        metrics.add({**place, **result.to_dict()})
        self._on_event(Validated(step=state.step, result=result, is_best=is_best))

    def _write(self, state: TrainingState) -> None:
        """Write a checkpoint, and remove those that are no longer wanted."""
        self._saved_step = state.step
        if self._world.is_first:
            directory = self._run.step_directory(state.step)
            weights = model_weights(self.model)
            try:
                write_checkpoint(
                    directory, weights, optimizer_tensors(self.model, self._optimizer), state
                )
            except OSError as error:
                raise CheckpointError(
                    f"{directory}: cannot be saved: {error.strerror}: {self._last_good()}"
                ) from error
            keep = max(self._config.train.keep_last, self._config.train.average_last)
            prune(self._run, keep=keep, best=state.best_step)
            self._on_event(Saved(step=state.step, path=directory))
        self._world.wait()

    def _last_good(self) -> str:
        steps = self._run.steps()
        if not steps:
            return "there is no checkpoint yet"
        return f"the last good checkpoint is {self._run.step_directory(steps[-1])}"


def _unvalidated(state: TrainingState) -> TrainingState:
    return replace(state, valid_loss=math.inf, valid_score=-math.inf)

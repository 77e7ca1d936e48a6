"""What turns a model and batches into a better model: loss, schedule, optimizer, step."""

from headwise.training.optimizer import adam
from headwise.training.schedule import learning_rate
from headwise.training.step import LossSums, TrainingStep, keyed_dropout

__all__ = ["LossSums", "TrainingStep", "adam", "keyed_dropout", "learning_rate"]

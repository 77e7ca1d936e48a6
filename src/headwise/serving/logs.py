"""Write logs as JSON lines, one per event, without any text of users."""

import json
import logging
import sys
import time
import traceback
from typing import Any

_FRAMES = 10

_LOG = logging.getLogger("headwise.serving")


class JsonLines(logging.Formatter):
    """Format a record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; of an exception only type and traceback: its message may quote users."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[0] is not None:
            kind, _, trace = record.exc_info
            line["error"] = kind.__name__
            line["where"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(trace)[-_FRAMES:]
            ]
        return json.dumps(line)


def log(event: str, **fields: object) -> None:
    """Log an event."""
    _LOG.info(event, extra={"fields": fields})


def log_error(event: str, **fields: object) -> None:
    """Log an event, with the exception being handled."""
    _LOG.error(event, exc_info=True, extra={"fields": fields})


def configure() -> None:
    """Send our events, uvicorn's warnings and asyncio's errors to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    levels = {
        "headwise.serving": logging.INFO,
        "uvicorn": logging.WARNING,
        "asyncio": logging.ERROR,
    }
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)

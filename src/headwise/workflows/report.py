"""Write a run's report: what its task says about it, with attention, curves, recipe and machine."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwise.errors import ConfigError, RequestError
from headwise.files import replace_file, write_output
from headwise.inspect.attention import attention_record
from headwise.inspect.curves import load_curves
from headwise.inspect.report_page import Report, render_report
from headwise.runs.directory import RunDirectory
from headwise.runs.environment import read_sessions
from headwise.runs.metrics import iterate_metrics
from headwise.tasks.report import Contents, ReportsRuns
from headwise.tasks.table import load_task
from headwise.training.task import Progress


def report(
    run: RunDirectory,
    predictor: Any,
    *,
    values: Mapping[str, Any] | None = None,
    out: Path | None = None,
    on_progress: Progress = lambda *_: None,
) -> Path:
    """Write the report of a run, and return its path.

    `predictor` is the run's, as `load_predictor` loads it. `values` are those of the options of
    `headwise report`, which may name a test set.
    """
    config = run.config()
    task = load_task(config)
    if not isinstance(task, ReportsRuns):
        raise ConfigError(f"{run.path} is a run of {config.task}, which has no report")
    contents = task.report_contents(run, predictor, values or {}, on_progress)
    return write_report(run, predictor, contents, out=out)


def write_report(
    run: RunDirectory, predictor: Any, contents: Contents, *, out: Path | None = None
) -> Path:
    """Write a report with given contents, by default as the run's report.html."""
    config = run.config()
    vocab = load_task(config).vocab(config, run.folder)
    content = render_report(
        Report(
            name=run.path.resolve().name,
            config=config,
            weights=predictor.name,
            parameters=config.model.count_parameters(vocab, config.row.assembly),
            contents=contents,
            records=[attention_record(predictor, text) for text in contents.traced],
            curves=load_curves([run.path]) if _has_metrics(run) else None,
            sessions=read_sessions(run.environment_file),
        )
    )
    path, write = (run.path / "report.html", replace_file) if out is None else (out, write_output)
    try:
        # A name or a setting may have characters that UTF-8 cannot encode, such as file name bytes.
        write(path, content.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise RequestError(f"{path}: cannot write the report: {error.strerror}") from error
    return path


def _has_metrics(run: RunDirectory) -> bool:
    """Return whether there are metrics yet: a run may be stopped before the first."""
    has_file = run.folder.has(run.metrics_file.name)
    return has_file and next(iterate_metrics(run.metrics_file), None) is not None

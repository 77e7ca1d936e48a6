"""`headwise serve`: models behind HTTP, and a page."""

import re
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headwise.cli.engine_options import engine_options
from headwise.cli.output import note, show
from headwise.cli.text_options import FILE
from headwise.serving.limits import Limits

if TYPE_CHECKING:
    from headwise.workflows.translators import EngineName, Quantization

EPILOG = """\b
Examples:
  headwise serve runs/ende                       a page and an API on this machine alone
  headwise serve runs/ende runs/deen --port 80 --host 0.0.0.0 --keys keys.txt
  headwise serve --keys keys.txt --new-key alice make a key, and print it
  headwise serve runs/ende --engine ctranslate2 --quantization int8

\b
  curl http://127.0.0.1:8000/translate -d q='A man .' -d source=en -d target=de

The page is at /, the API's description at /docs. Ctrl-C or SIGTERM lets requests finish first,
a second one does not.
"""


def _origin(given: str) -> str:
    """Return where pages may come from, as a browser would say it."""
    if given != "*" and not re.fullmatch(r"https?://[^/?#\s]+", given):
        raise click.BadParameter(f"{given!r} is not an origin, as https://example.org is, nor '*'")
    return given


@click.command(epilog=EPILOG)
@click.argument("runs", metavar="RUN...", nargs=-1, type=FILE)
@click.option("--host", default="127.0.0.1", show_default=True, help="0.0.0.0: all networks.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="0: any that is free.",
)
@click.option("--keys", "key_file", type=FILE, help="Ask for an API key of this file.")
@click.option("--new-key", metavar="NAME", help="Add a key for somebody to the file; print it.")
@click.option(
    "--cors",
    "origins",
    metavar="ORIGIN",
    multiple=True,
    callback=lambda _, __, given: [_origin(each) for each in given],
    help="Let pages from there use the API.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    metavar="ADDRESS",
    multiple=True,
    help="Take clients' addresses from the X-Forwarded-For of this proxy or network.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    metavar="NAME",
    multiple=True,
    help="Answer for this host name, too, or with *.NAME for all below it.",
)
@click.option("--tls-cert", "tls_certificate", type=FILE, help="Speak HTTPS: certificate, PEM.")
@click.option("--tls-key", type=FILE, help="The certificate's private key, PEM.")
@click.option(
    "--max-characters",
    type=click.IntRange(min=1),
    default=Limits.characters,
    show_default=True,
    help="Of one request.",
)
@click.option(
    "--max-upload",
    type=click.FloatRange(min=0, max=Limits.all_uploads_bytes / 1e6, min_open=True),
    default=Limits.upload_bytes / 1e6,
    show_default=True,
    help="MB of the files of one request.",
)
@click.option(
    "--max-queue",
    type=click.IntRange(min=1),
    default=Limits.queue,
    show_default=True,
    help="Sentences that may wait for a model.",
)
@click.option(
    "--max-cost",
    type=click.IntRange(min=1),
    default=Limits.cost,
    show_default=True,
    help="Sentences x beam x longest output of one request, or tokens to read and to generate.",
)
@click.option(
    "--max-requests",
    type=click.IntRange(min=1),
    default=Limits.requests,
    show_default=True,
    help="At once, of one client: a key, else an address.",
)
@click.option(
    "--rate",
    metavar="CHARACTERS",
    type=click.IntRange(min=1),
    help="A minute, of one client.  [default: any number]",
)
@click.option(
    "--max-connections",
    type=click.IntRange(min=1),
    default=Limits.connections,
    show_default=True,
    help="From one client address.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(min=0, min_open=True),
    default=Limits.deadline,
    show_default=True,
    help="Seconds after which a request is given up.",
)
@click.option("--checkpoint", help="averaged, best, last or a step; by default in that order.")
@engine_options
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, ...")
@click.option(
    "--workers",
    "num_workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that search, for many clients: torch on CPU, which they share.",
)
def serve(
    runs: tuple[Path, ...],
    host: str,
    port: int,
    key_file: Path | None,
    new_key: str | None,
    origins: tuple[str, ...],
    trusted_proxies: tuple[str, ...],
    allowed_hosts: tuple[str, ...],
    tls_certificate: Path | None,
    tls_key: Path | None,
    max_characters: int,
    max_upload: float,
    max_queue: int,
    max_cost: int,
    max_requests: int,
    rate: int | None,
    max_connections: int,
    deadline: float,
    checkpoint: str | None,
    engine: "EngineName",
    quantization: "Quantization | None",
    device: str,
    num_workers: int,
) -> None:
    """Serve trained runs: a translation API and a web page."""
    from headwise.errors import ConfigError

    missing = [name for name in ("fastapi", "uvicorn", "prometheus_client") if not find_spec(name)]
    if missing:
        raise ConfigError(
            f"serving needs {', '.join(missing)}: install with pip install 'headwise[serve]'"
        )
    from headwise.serving.clients import TrustedProxies
    from headwise.serving.keys import Keys, add_key

    if new_key is not None:
        if key_file is None:
            raise click.UsageError("--new-key needs the file to add it to: --keys FILE")
        click.echo(add_key(key_file, new_key))
        return
    if not runs:
        raise click.UsageError("Missing argument 'RUN...'")
    if num_workers > 1 and (engine != "torch" or device != "cpu"):
        raise click.UsageError(
            "--workers is for torch on CPU: CTranslate2 uses all cores, and a GPU has one queue"
        )
    if (tls_certificate is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key need each other")
    keys = None if key_file is None else Keys(key_file)
    proxies = TrustedProxies(trusted_proxies)

    from headwise.serving.clients import AllowedHosts
    from headwise.serving.compute import ComputeThread, exiting_when_idle
    from headwise.serving.protocol import tls_context
    from headwise.serving.server import exposure_warnings, listen, make_server
    from headwise.serving.server import serve as run_server
    from headwise.serving.task_api import TaskModel
    from headwise.workflows.serve import load_served, searched_by_workers

    hosts = AllowedHosts([host, *allowed_hosts])
    tls = None
    if tls_certificate is not None and tls_key is not None:
        tls = tls_context(tls_certificate, tls_key)
    limits = Limits(
        body_bytes=20 * max_characters,
        upload_bytes=int(1e6 * max_upload),
        characters=max_characters,
        queue=max_queue,
        cost=max_cost,
        requests=max_requests,
        rate=rate,
        connections=max_connections,
        deadline=deadline,
    )
    compute = ComputeThread()
    with exiting_when_idle(compute), listen(host, port) as listener, ExitStack() as stack:
        # A trusted proxy is there to speak TLS.
        has_tls = tls is not None or bool(trusted_proxies)
        for warning in exposure_warnings(listener, has_tls=has_tls, has_keys=keys is not None):
            note(f"warning: {warning}")
        models = compute.call(
            lambda: load_served(
                runs,
                engine=engine,
                quantization=quantization,
                checkpoint=checkpoint,
                device=device,
            )
        )
        if num_workers > 1:
            models = stack.enter_context(searched_by_workers(models, num_workers, compute))
        for model in models:
            if isinstance(model, TaskModel):
                note(f"{model.name}: {model.task}, at /v1/{model.served.verb}")
                continue
            languages = f"{model.source} to {model.target}"
            if not model.has_languages:
                languages = "by name only: its config has no data.source_language, target_language"
            note(f"{model.name}: {languages}, using {model.translator.name}")
        server = make_server(
            models,
            compute,
            limits=limits,
            keys=keys,
            origins=origins,
            hosts=hosts,
            proxies=proxies,
            tls=tls,
        )
        run_server(server, listener, lambda address: show(f"serving at {address}"))

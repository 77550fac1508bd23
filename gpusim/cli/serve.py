"""A GPU with knobs: a live page and its JSON API."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.console import emit, refuse
from gpusim.cli.options import JobsOption, NoCacheOption

HELP = """Serve a page on which a GPU has knobs, and the JSON API behind it.

A workload and a GPU are chosen; what the GPU is made of is turned, and time, limit, stalls, roofline and power follow,
beside the board as shipped. A second board can stand beside it. The address of the page holds what one sees; buttons
write the board as YAML and the page as a file. The API is described at /docs and /openapi.json.

The server answers on this machine alone unless --host says otherwise: there is no password, and whoever reaches it may
use the processor. Requests name GPUs and models, never files; their sizes and times are bounded. Ctrl-C ends it.

Examples: gpusim serve; gpusim serve --port 0 --no-open --models captured
"""


def serve(
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to answer on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 8080,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
    models: Annotated[
        Path | None,
        typer.Option("--models", metavar="DIR", help="Folder of captured models, which can be chosen by name."),
    ] = None,
    jobs: JobsOption = None,
    no_cache: NoCacheOption = False,
) -> None:
    """Serve the live page."""
    names = ("fastapi", "uvicorn", "jinja2", "vl_convert")
    if missing := [name for name in names if find_spec(name) is None]:
        refuse(f"serve needs {' and '.join(missing)}; install gpusim[serve]")
    from gpusim.execution.workers import available_cores
    from gpusim.serve.app import Limits
    from gpusim.serve.choices import choices_of
    from gpusim.serve.guard import is_loopback
    from gpusim.serve.server import listening, serve_on

    choices = choices_of(models)
    socket, url = listening(host, port)
    with socket:
        if not is_loopback(host):
            print(
                f"gpusim: {host} can be reached from other machines, and there is no password; leave out --host to"
                " serve this machine alone",
                file=sys.stderr,
            )
        limits = Limits(jobs or available_cores(), cache=not no_cache)

        def ready() -> None:
            emit(lambda: print(url))
            if open_browser:
                typer.launch(url)

        serve_on(socket, choices, limits, host, ready)

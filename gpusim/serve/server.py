"""The server as a process: its socket, and its life until a signal ends it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from gpusim.errors import InputError
from gpusim.hardware.machine import Machine
from gpusim.progress import without_lines
from gpusim.serve.app import Limits, create_app
from gpusim.serve.choices import Choices
from gpusim.serve.guard import hosts_of
from gpusim.sim.drivers.choice import has_numba
from gpusim.sim.drivers.code_folder import is_kept
from gpusim.sim.simulate import compile_ahead
from gpusim.specs import load_spec

MOST_CONNECTIONS = 512
IDLE_S = 10
"""Time that a connection without a request stays open."""
LEAVING_S = 2
"""Time that answers have to end in when the server does."""


def listening(host: str, port: int) -> tuple[socket.socket, str]:
    """A socket that listens, and the address of its page.

    Raises:
        InputError: the address is none of this machine, or the port is taken.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.create_server(address[:2], family=family, backlog=MOST_CONNECTIONS)
        # Of what it accepts, too: else the body of an answer waits 40 ms for the acknowledgement of its headers.
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, UnicodeError, OverflowError) as error:
        number = getattr(error, "errno", None) or 0
        problem = os.strerror(number) if number > 0 else error  # those of names have numbers below 0
        remedy = "choose another, or --port 0 for a free port"
        raise InputError(f"--host {host} --port {port}: {problem}; {remedy}") from None
    name = f"[{host}]" if ":" in host else host
    return found, f"http://{name}:{found.getsockname()[1]}/"


def serve_on(listener: socket.socket, choices: Choices, limits: Limits, host: str, ready: Callable[[], None]) -> None:
    """Answer requests until a signal ends the process.

    Args:
        host: address that it answers on.
        ready: called when it answers.
    """
    if has_numba() and not is_kept():
        gpu = load_spec(choices.boards[0]).gpu
        compile_ahead(Machine.of(gpu, gpu.clock.max_mhz))  # before workers, which show nothing of it

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready()

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if not self.should_exit:  # a second signal does not interrupt the clean-up, which takes LEAVING_S at most
                super().handle_exit(sig, frame)

    config = uvicorn.Config(
        create_app(choices, limits, hosts_of(host)),
        log_level="error",
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=LEAVING_S,
        h11_max_incomplete_event_size=16_384,
    )
    with without_lines():
        Server(config).run([listener])

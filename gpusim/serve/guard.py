"""What every request passes: the bound of its size, its Host, and the headers of its answer."""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY_BYTES = 65_536
"""Most bytes of a request: one with every value of a spec replaced has fewer."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
"""What the pages may load and run: files of this server alone, and no text of a page as a script or a style."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def is_loopback(host: str) -> bool:
    """Whether an address is one of this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def hosts_of(host: str) -> list[str]:
    """Values of the header Host that a server at an address answers to.

    A page of elsewhere, whose name its owner lets stand for this machine (DNS rebinding), sends that name.
    """
    if is_loopback(host):
        return list(LOOPBACK)
    own = socket.gethostname()
    found = {host, own, socket.getfqdn()}
    with suppress(OSError):  # a machine that does not know its own name
        found |= {str(one[4][0]) for one in socket.getaddrinfo(own, None)}
    return [*LOOPBACK, *sorted(f"[{one}]" if ":" in one else one for one in found)]


def policy_text(**others: str) -> str:
    """The Content-Security-Policy, with other values for some directives: ``script_src="'none'"``."""
    policy = {**POLICY, **{name.replace("_", "-"): value for name, value in others.items()}}
    return "; ".join(f"{name} {value}" for name, value in policy.items())


class Headed:
    """Adds the headers to every answer that does not have its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**HEADERS, "Content-Security-Policy": policy_text()}.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, headed)

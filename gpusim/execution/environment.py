"""Versions that all machines of a cluster must share: results do not depend on where they were computed."""

from __future__ import annotations

import sysconfig
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pkgutil import resolve_name
from urllib.parse import urlsplit

LISTED = 5
"""Hosts that a message lists by name."""

QUESTIONS: Mapping[str, tuple[Callable[..., object], *tuple[str, ...]]] = {
    "gpusim": (resolve_name, "gpusim.version:__version__"),
    "model version": (resolve_name, "gpusim.version:MODEL_VERSION"),
    "Python": (sysconfig.get_python_version,),
    "distributed": (resolve_name, "distributed:__version__"),
}
"""Functions that give the versions, with arguments. All are of the standard library: any machine can be asked."""


@cache
def environment() -> dict[str, str]:
    """The versions of this process."""
    return {name: str(function(*arguments)) for name, (function, *arguments) in QUESTIONS.items()}


def text_of(versions: Mapping[str, str]) -> str:
    """Versions as a message names them.

    >>> text_of({"gpusim": "0.1.0", "Python": "3.11"})
    'gpusim 0.1.0, Python 3.11'
    """
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def differences(answers: Mapping[str, Mapping[str, object]]) -> str:
    """Which hosts have other versions than this process; empty if none has.

    >>> here = environment()
    >>> differences({"tcp://node2:40123": here, "tcp://node1:33117": {**here, "Python": "2.7"}})
    'Python 2.7 on node1'
    >>> differences({"the scheduler": {**here, "gpusim": ModuleNotFoundError("gpusim")}})
    'no gpusim on the scheduler'

    Args:
        answers: Answers to the questions, or errors, by address. Errors other than of an import say nothing, nor does
            a missing answer: machines come and go.
    """
    here = {f"{name} {version}" for name, version in environment().items()}
    hosts: dict[str, set[str]] = defaultdict(set)
    for address, versions in answers.items():
        texts = [_text(name, version) for name, version in versions.items()]
        others = [text for text in texts if text and text not in here]
        if others:
            hosts[", ".join(others)].add(urlsplit(address).hostname or address)
    return "; ".join(f"{text} on {_listed(sorted(names))}" for text, names in sorted(hosts.items()))


def _text(name: str, version: object) -> str:
    """An answer as text; empty if there is none."""
    if isinstance(version, ImportError | AttributeError):
        return f"no {name}"
    return "" if isinstance(version, Exception) else f"{name} {version}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more

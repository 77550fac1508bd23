"""NVIDIA's containers of PyTorch by month, and the versions in them: data in ``containers.yaml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

from packaging.version import Version

from gpusim.errors import excerpt
from gpusim.files.checked_document import Part, checked, load_document
from gpusim.models.policy import NEWEST, PolicyError

_NAME = re.compile(r"(?:nvcr\.io/nvidia/)?pytorch[-:](?P<month>\d\d\.\d\d)(?:-py3)?")


class Container(Part):
    """What a container holds."""

    pytorch: str
    """Version that the container states, without its commit."""
    runs_as: str = ""
    """Release that it behaves as, where that is another one."""
    cuda: str | None = None
    cudnn: str | None = None
    source: Literal["notes", "jetson", "banner", "between"]

    @property
    def version(self) -> str:
        """Release of PyTorch that decides what is launched: that of a pre-release is the one that followed it."""
        return self.runs_as or ".".join(map(str, Version(self.pytorch).release[:2]))


class _Containers(Part):
    containers: Mapping[str, Container]


@cache
def containers() -> Mapping[str, Container]:
    """Containers by month, the oldest first.

    >>> containers()["22.09"].version, containers()["20.06"].cuda
    ('1.13', '11.0.167')
    """
    path = Path(str(resources.files("gpusim"))) / "models" / "containers.yaml"
    document = load_document(path)
    return checked(_Containers, document, document.data, {}).containers


def version_in(container: str) -> str:
    """The version of PyTorch in a container such as ``pytorch-21.03-py3``; the newest here of what names no month.

    Raises:
        PolicyError: as :func:`known_container`.
    """
    found = _NAME.match(container)
    return containers()[_known_month(container, found["month"])].version if found else NEWEST


def known_container(name: str) -> str:
    """A container of which the version of PyTorch is known, as ``pytorch-YY.MM-py3``, or none.

    Raises:
        PolicyError: another one; the text names the nearest months.
    """
    if not name:
        return name
    found = _NAME.fullmatch(name)
    if found is None:
        example = "such as pytorch-22.09-py3"
        raise PolicyError(
            f"no version of PyTorch is known of '{excerpt(name)}'; name a container of NVIDIA's, {example}"
        )
    return f"pytorch-{_known_month(name, found['month'])}-py3"


def _known_month(name: str, month: str) -> str:
    known = list(containers())
    if month in known:
        return month
    near = " and ".join([*[one for one in known if one < month][-1:], *[one for one in known if one > month][:1]])
    raise PolicyError(f"no version of PyTorch is known of '{excerpt(name)}'; the nearest are those of {near}")

"""Versions of CUDA, which decide the kernels that libraries have."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from gpusim.errors import excerpt

LAST_MINOR = 99


class CudaVersion(NamedTuple):
    """A version of CUDA; without a minor version, the last one of its major version.

    >>> CudaVersion.of("11.8") < CudaVersion.of("12.4") < CudaVersion.of("12")
    True
    >>> str(CudaVersion.of(12.4)), str(CudaVersion.of(12))
    ('12.4', '12')
    """

    major: int
    minor: int = LAST_MINOR

    @classmethod
    def of(cls, version: object) -> CudaVersion:
        """The version that a number or a text states.

        Raises:
            ValueError: it states none.
        """
        found = cls._stated(version)
        if found is None or not found.major:
            raise ValueError(f"expected a version of CUDA, such as 12 or 12.4, got {excerpt(repr(str(version)))}")
        return found

    @classmethod
    def first_of(cls, version: object) -> CudaVersion:
        """The version that is stated; without a minor version, the first one of its major version. 0 is before all."""
        found = cls._stated(version)
        if found is None:
            raise ValueError(f"expected a version of CUDA, such as 12 or 12.4, got {excerpt(repr(str(version)))}")
        return found._replace(minor=0) if found.minor == LAST_MINOR else found

    @classmethod
    def _stated(cls, version: object) -> CudaVersion | None:
        stated = re.fullmatch(r"(\d{1,3})(?:\.(\d{1,2}))?", str(version), re.ASCII)
        if not stated:
            return None
        major, minor = stated.groups()
        return cls(int(major), LAST_MINOR if minor is None else int(minor))

    def __str__(self) -> str:
        return str(self.major) if self.minor == LAST_MINOR else f"{self.major}.{self.minor}"


_AS_TEXT = (PlainSerializer(str), WithJsonSchema({"type": ["number", "string"], "minimum": 0}))
LastCuda = Annotated[CudaVersion, PlainValidator(CudaVersion.of), *_AS_TEXT]
"""Field of a record: a version of CUDA, 12 for the last of its minor versions."""
FirstCuda = Annotated[CudaVersion, PlainValidator(CudaVersion.first_of), *_AS_TEXT]
"""Field of a record: a version of CUDA, 12 for 12.0."""

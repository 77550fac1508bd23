"""Microbenchmark sources compile for their GPUs; skipped without NVRTC."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.files.checked_document import shipped_folder
from gpusim.measure.device import UnavailableError
from gpusim.measure.instructions import INSTRUCTIONS, benchmark
from gpusim.measure.nvrtc import compile_cubin, load

CAPABILITIES = ((8, 0), (9, 0))
KERNELS = sorted((shipped_folder("measure") / "kernels").glob("*.cu"))


def cubin(source: str, architecture: str) -> bytes:
    try:
        return compile_cubin(source, architecture)
    except UnavailableError as reason:
        if "no libnvrtc found" in str(reason):
            pytest.skip(str(reason))
        raise


def test_the_package_has_kernel_sources() -> None:
    assert {path.stem for path in KERNELS} == {"latency", "bandwidth", "launch"}


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_a_source_file_compiles(path: Path, architecture: str) -> None:
    assert cubin(path.read_text(encoding="utf-8"), architecture).startswith(b"\x7fELF")


def test_a_source_that_does_not_compile_says_why() -> None:
    with pytest.raises(UnavailableError, match=r"NVRTC for sm_80: .*error: identifier \"nothing\" is undefined"):
        cubin("__device__ int i = nothing;", "sm_80")


def test_without_a_driver_nothing_is_loaded() -> None:
    with pytest.raises(UnavailableError, match="driver"):
        load(b"no machine code")


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_every_instruction_compiles_where_it_runs(name: str) -> None:
    for major, minor in CAPABILITIES:
        if INSTRUCTIONS[name].runs_on(major, minor):
            for latency in (True, False):
                source = benchmark(INSTRUCTIONS[name], latency=latency).source
                assert cubin(source, f"sm_{major}{minor}" + "a" * (major >= 9)).startswith(b"\x7fELF")

"""Names of GPUs in measured tables and drivers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from gpusim.errors import excerpt
from gpusim.specs import Spec, UnknownGpuError, load_spec


def board_of(gpu: str, arch_path: Iterable[Path] = (), *, without: Path | None = None) -> Spec:
    """The spec of the board named in a table; a table names boards, never files.

    Raises:
        UnknownGpuError: no board has the name.
        SpecError: a spec is wrong, or a folder of specs is not there.
    """
    if gpu.endswith((".yaml", ".yml")):
        raise UnknownGpuError(f"{excerpt(gpu)}: a table names GPUs, not files; write the name of the GPU")
    return load_spec(gpu, arch_path, without=without)


@cache
def gpu_of_device(device: str) -> str:
    """The id of a GPU in measured tables from the name that CUDA reports.

    A GPU that has a spec goes by the spec's name, another by what CUDA says without the brand.

    >>> gpu_of_device("Tesla V100-PCIE-32GB"), gpu_of_device("NVIDIA B200")
    ('v100-pcie-32gb', 'b200')
    """
    try:
        return board_of(device).gpu.name.lower()
    except UnknownGpuError:
        words = [word for word in device.lower().split() if word not in ("nvidia", "tesla", "geforce")]
        return "-".join(words)

"""A GPU performance simulator: predicts the time of an operator on a GPU, and what limits it.

The names in ``__all__`` are public; docs/stability.md says what of them stays the same. All other modules are private.

>>> import gpusim
>>> result = gpusim.predict("v100-sxm2-16gb", m=16, n=4096, k=4096, dtype="fp16")
>>> result.bottleneck
'dram'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpusim.version import __version__

if TYPE_CHECKING:
    from gpusim import program
    from gpusim.api import ArgumentError, UnknownArgumentError, load_gpu, load_system, predict
    from gpusim.errors import InputError
    from gpusim.files.yamlfile import SpecError
    from gpusim.hardware.gpu import Gpu
    from gpusim.hardware.machine import Machine
    from gpusim.launch import Grid, Launch, Resources, Tensor
    from gpusim.numbers.formats import Dtype
    from gpusim.prediction.results import Result
    from gpusim.prediction.selection import UnsupportedError
    from gpusim.sim.simulate import simulate
    from gpusim.studies.columns import sweep
    from gpusim.studies.compare import Compared, compare
    from gpusim.studies.explain.explanation import Explanation, explain
    from gpusim.system import System
    from gpusim.workloads.gemm import Gemm

__all__ = [
    "ArgumentError",
    "Compared",
    "Dtype",
    "Explanation",
    "Gemm",
    "Gpu",
    "Grid",
    "InputError",
    "Launch",
    "Machine",
    "Resources",
    "Result",
    "SpecError",
    "System",
    "Tensor",
    "UnknownArgumentError",
    "UnsupportedError",
    "__version__",
    "compare",
    "explain",
    "load_gpu",
    "load_system",
    "predict",
    "program",
    "simulate",
    "sweep",
]

_NAMES_OF = {
    "gpusim.api": ("ArgumentError", "UnknownArgumentError", "load_gpu", "load_system", "predict"),
    "gpusim.errors": ("InputError",),
    "gpusim.files.yamlfile": ("SpecError",),
    "gpusim.hardware.gpu": ("Gpu",),
    "gpusim.hardware.machine": ("Machine",),
    "gpusim.launch": ("Grid", "Launch", "Resources", "Tensor"),
    "gpusim.prediction.selection": ("UnsupportedError",),
    "gpusim.prediction.results": ("Result",),
    "gpusim.sim.simulate": ("simulate",),
    "gpusim.studies.columns": ("sweep",),
    "gpusim.studies.compare": ("Compared", "compare"),
    "gpusim.studies.explain.explanation": ("Explanation", "explain"),
    "gpusim.system": ("System",),
    "gpusim.numbers.formats": ("Dtype",),
    "gpusim.workloads.gemm": ("Gemm",),
}
_HOMES = {name: module for module, names in _NAMES_OF.items() for name in names}


if not TYPE_CHECKING:  # for a type checker the names above are all there are

    def __getattr__(name: str) -> Any:
        """A public name, imported when it is first used (PEP 562)."""
        if name == "program":
            return import_module("gpusim.program")
        if name not in _HOMES:
            raise AttributeError(f"module 'gpusim' has no attribute '{name}'")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return list(__all__)

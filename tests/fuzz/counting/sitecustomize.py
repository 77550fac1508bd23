"""Lists the predictions that processes finish: a line in the file ``COUNTED_PREDICTIONS`` for each.

Python imports this module at start-up where its folder is on ``PYTHONPATH``, in worker processes too.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULE = "gpusim.prediction.predict"
LIST = os.environ.get("COUNTED_PREDICTIONS", "")
"""Path of the file; nothing is counted where it is not set."""


class CountingFinder:
    """Finds the module that predicts, and wraps its function once it has been imported."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == MODULE else None
        if spec is not None and spec.loader is not None:
            import_it = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                import_it(module)
                vars(module)["predict"] = counted(vars(module)["predict"])

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def counted(predict: Callable[..., Any]) -> Callable[..., Any]:
    """``predict``, listing each case in one write, which other processes do not interleave."""
    file = os.open(LIST, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def predict_and_list(system: Any, operator: Any, *arguments: Any, **named: Any) -> Any:
        result = predict(system, operator, *arguments, **named)
        case = f"{system.gpu.name} {operator!r}"
        os.write(file, hashlib.sha256(case.encode()).hexdigest().encode() + b"\n")
        return result

    return predict_and_list


if LIST:
    sys.meta_path.insert(0, CountingFinder)

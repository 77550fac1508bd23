"""YAML specs to records, each value with its source: the registry of boards, and cross-checks."""

from gpusim.specs.load import Spec, implausibilities, load_spec
from gpusim.specs.overrides import with_overrides
from gpusim.specs.records import Provenance
from gpusim.specs.registry import ArchEntry, UnknownGpuError, list_archs, spec_file

__all__ = [
    "ArchEntry",
    "Provenance",
    "Spec",
    "UnknownGpuError",
    "implausibilities",
    "list_archs",
    "load_spec",
    "spec_file",
    "with_overrides",
]

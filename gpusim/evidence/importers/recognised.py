"""Files that an importer refuses, recognised by what stands in them: a profiler's terminal output, or another kind."""

from __future__ import annotations

import re
from pathlib import Path

from gpusim.evidence.fields import MeasuredError, read_text

MOST_CHARACTERS = 1_000_000
"""Characters of a file that are searched."""
PRINTED = (
    (
        r"^ *Problem ID: \d+ *$|^ *CUTLASS Profiler",
        r"\bProblem,Provider,OperationKind,",
        "cutlass_profiler",
        "add --output=runs.csv to it and import runs.gemm.csv or runs.conv2d.csv as cutlass",
    ),
    (
        r"^==PROF== |^ +Section: (?:GPU Speed Of Light|Command line profiler metrics)",
        r'^"ID",|^==(?:ERROR|WARNING)==',
        "ncu",
        "add --csv --page raw --log-file runs.csv to it, or ncu -i REPORT.ncu-rep --csv --page raw, and import as ncu",
    ),
    (
        r"^ *\*\* .*\((?:cuda_|gpu|nvtx_|osrt_|cudaapi)\w*\): *$|^Generating SQLite file|^Processing \[.*\.sqlite\]",
        r"^\S.*,\"?Name\"?$",
        "nsys",
        "use nsys export --type sqlite, or nsys stats --format csv -r cuda_gpu_trace, and import as nsys",
    ),
    (
        r"^==\d+== (?:Profiling result|NVPROF is profiling|Profiling application)",
        r'^"Start",',
        "nvprof",
        "profile with ncu --csv --page raw, or add --csv --print-gpu-trace to nvprof and import as csv with --map",
    ),
    (
        r"Self CUDA %|Self CUDA time total",
        r"traceEvents",
        "PyTorch's key_averages().table()",
        "call prof.export_chrome_trace('trace.json') and import it as kineto",
    ),
)
"""Lines that a program prints in a terminal, what stands in a table of it, the program, and how to have a table."""
TABLES = (
    (r"\bProblem,Provider,OperationKind,", "cutlass"),
    (r'^"ID",.*"Kernel Name"', "ncu"),
    (r"^\"?(?:Start|Time)\b.*,\"?Name\"?$", "nsys"),
    (r'"traceEvents"', "kineto"),
)
"""What stands in files of a kind, whatever is printed beside it."""


def recognised(path: Path, kind: str) -> str:
    """The refusal of a file that is not of its kind: another kind's, or what a profiler prints in a terminal.

    Empty where it is neither; a file that cannot be read as text is neither.
    """
    try:
        text = read_text(path)[:MOST_CHARACTERS]
    except MeasuredError:
        return ""
    for pattern, table, program, remedy in PRINTED:
        if (line := re.search(pattern, text, re.MULTILINE)) and not re.search(table, text, re.MULTILINE):
            return f"{_place(path, text, line)}: what {program} prints in a terminal, which is no table; {remedy}"
    for table, other in TABLES:
        if line := re.search(table, text, re.MULTILINE):
            return "" if other == kind else f"{_place(path, text, line)}: a file of kind {other}; import it as {other}"
    return ""


def _place(path: Path, text: str, line: re.Match[str]) -> str:
    number = text.count("\n", 0, line.start()) + 1
    return f"{path}:{number}"

"""Makes shipped boards again from their datasheets alone, and says how far the predictions move.

    python benchmarks/datasheet_specs.py [--calibrate FOLDER] [--rows N] [--write] [BOARD...]

Each board (by default those with measured runs) is passed over while its spec is made as ``gpusim archs new`` makes it,
from what a datasheet states: architecture, SMs, clocks, L2, memory, power limit, NVLink, the FP16 peak. 30 operators
are predicted with both specs. With a folder of measured tables, so are rows of the board drawn at random from them:
these tables are those that fits of other boards may have seen, and only the difference of the two errors says anything.
``--write`` puts the table into docs/extending.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from numpy.random import default_rng
from provenance import ROOT, commit
from sections import replaced, row

from gpusim.errors import InputError
from gpusim.evidence.boards import board_of
from gpusim.evidence.measured import MeasuredRow, read_measured, write_measured
from gpusim.execution.service import Service
from gpusim.execution.workers import available_cores
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError
from gpusim.specs import Spec, UnknownGpuError, list_archs, load_spec
from gpusim.specs.datasheet import Datasheet, spec_of
from gpusim.studies.validation.report import ValidationReport, validate
from gpusim.workloads.convolution import Convolution, ConvolutionShape
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.operators import Operator
from gpusim.workloads.vector import Elementwise, LayerNorm, Softmax

PAGE = ROOT / "docs" / "extending.md"
SECTION = "datasheets"
ROWS = 30
NEAR = 3.0
"""Points by which the error of a spec that is made may lie above that of the shipped one."""
SIZES = (
    *((size, size, size) for size in (256, 512, 1024, 2048, 4096)),
    *((8192, 8192, 1024), (128, 12288, 4096), (16, 4096, 4096), (1, 8192, 8192)),
)
IMAGES = (ConvolutionShape(32, 64, 56, 56, 64, 3, 3, pad=(1, 1)), ConvolutionShape(16, 256, 14, 14, 1024, 1, 1))
OPERATORS: tuple[Operator, ...] = (
    *(Gemm(m, n, k, dtype) for dtype in (Dtype.FP16, Dtype.FP32) for m, n, k in SIZES),
    *(of(m, n, Dtype.FP32) for of in (Softmax, LayerNorm) for m, n in ((512, 1024), (16384, 1024))),
    *(Elementwise(m, 4096, Dtype.FP32, kind) for kind in ("add", "gelu") for m in (64, 8192)),
    *(Convolution(shape, Dtype.FP16, "conv_fwd", "nhwc") for shape in IMAGES),
    *(Convolution(shape, Dtype.FP32, "conv_fwd", "nchw") for shape in IMAGES),
)
"""30 operators: matrix products from small to large and with few rows, vector operators, convolutions."""


class Comparison(NamedTuple):
    """A board as shipped and as made from its datasheet."""

    board: str
    like: str
    median_pct: float
    """Median deviation of the times of the operators [%]."""
    largest_pct: float
    rows: int
    shipped_mape: float | None
    """Mean error on measured rows [%]; None without any."""
    made_mape: float | None


def deviations(shipped: Spec, made: Spec) -> list[float]:
    """How far the time of each operator that the board has kernels for moves, as a fraction."""
    options, found = Options(limits=False), []
    for one in OPERATORS:
        with suppress(UnsupportedError):
            before, after = (predict(spec.system, one, options).time_us for spec in (shipped, made))
            found.append(abs(after / before - 1))
    return found


def write_made(shipped: Spec, folder: Path) -> str:
    """Write the spec of a board as made from its datasheet; the name of the board that the rest is after.

    Boards that extend it are hidden, too.
    """
    hidden = {entry.name for entry in list_archs() if shipped.files[0] in load_spec(entry.name).files}
    made = spec_of(Datasheet.of(shipped.gpu), without=hidden)
    (folder / shipped.files[0].name).write_text(made.text, encoding="utf-8")
    return made.like


def compared(board: str, measured: Sequence[MeasuredRow]) -> Comparison:
    """A board made again; with its measured rows, if there are any."""
    shipped = load_spec(board)
    with TemporaryDirectory() as name:
        folder = Path(name)
        like = write_made(shipped, folder)
        moved = deviations(shipped, load_spec(folder / shipped.files[0].name))
        mape: list[float | None] = [None, None]
        if measured:
            table = folder / "measured.csv"
            write_measured(table, measured)
            service = Service(available_cores(), cache=True)
            mape = [_mape(validate([table], service=service, arch_path=path)) for path in ((), (folder,))]
    return Comparison(board, like, 100 * median(moved), 100 * max(moved), len(measured), *mape)


def _mape(report: ValidationReport) -> float | None:
    """Mean error of all rows [%]."""
    mape: float | None = report.as_dict()["overall"]["mape"]
    return mape


def drawn(folder: Path, count: int) -> dict[str, list[MeasuredRow]]:
    """Rows of each board, drawn at random from all tables of a folder, of operators that the shipped fits know."""
    rows: dict[str, list[MeasuredRow]] = {}
    for path in sorted(folder.glob("*.csv")):
        for one in read_measured(path):
            if one.operator is not None and (spec := _spec(one.gpu)) and _known(spec, one.operator):
                rows.setdefault(spec.gpu.name, []).append(one)
    chosen = {name: default_rng(0).permutation(len(found))[:count] for name, found in rows.items()}
    return {name: [rows[name][at] for at in sorted(places)] for name, places in chosen.items()}


@cache
def _spec(gpu: str) -> Spec | None:
    """The shipped board of a name in a table."""
    try:
        return board_of(gpu)
    except UnknownGpuError:
        return None


def _known(spec: Spec, operator: Operator) -> bool:
    """Whether measured operators of the architecture surround one."""
    known = spec.system.confidence
    return known is not None and known.evidence(spec.gpu.name, operator) != "extrapolated"


def table(found: Sequence[Comparison]) -> Iterator[str]:
    """Lines of Markdown."""
    headings = ("board", "derived from", "median deviation", "largest", "rows", "error as shipped", "as made")
    yield row(headings)
    yield "|---|---|---:|---:|---:|---:|---:|"
    for one in found:
        errors = ("" if mape is None else f"{mape:.1f} %" for mape in (one.shipped_mape, one.made_mape))
        moved = (f"{one.median_pct:.1f} %", f"{one.largest_pct:.1f} %")
        yield row((one.board, one.like, *moved, str(one.rows) if one.rows else "", *errors))
    yield ""
    medians = [one.median_pct for one in found]
    yield f"Median deviation: {median(medians):.1f} % in the median of the boards, {max(medians):.1f} % at most."
    risen = [
        one.made_mape - one.shipped_mape for one in found if one.made_mape is not None and one.shipped_mape is not None
    ]
    if risen:
        near = sum(points <= NEAR for points in risen)
        yield f"Error: at most {NEAR:g} points above that of the shipped spec on {near} of {len(risen)} boards."
    yield f"Written at {commit()}."


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description="Make shipped boards again from their datasheets alone.")
    parser.add_argument("boards", nargs="*", metavar="BOARD")
    parser.add_argument("--calibrate", type=Path, metavar="FOLDER")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    try:
        specs = [load_spec(name) for name in given.boards or (entry.path for entry in list_archs())]
        boards = [one.gpu.name for one in specs if given.boards or one.system.calibrated_on == "board"]
        rows = drawn(given.calibrate, given.rows) if given.calibrate else {}
        lines = list(table([compared(board, rows.get(board, [])) for board in boards]))
    except InputError as error:
        sys.exit(f"datasheet_specs: {error}")
    text = "\n".join(lines) + "\n"
    if given.write:
        PAGE.write_text(replaced(PAGE, {SECTION: text}), encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()

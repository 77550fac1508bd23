"""Damaged measured tables and files to import: python tests/fuzz/tables.py --count 10000 --seed 1.

An input is a small valid file with some of it replaced, cut, repeated, nested, encoded or packed otherwise. What an
importer accepts and writes, the reader of measured tables must accept; what it refuses leaves nothing behind.
``--reproduce KIND:SEED`` writes that one input into the current folder and prints its command.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache, partial
from pathlib import Path
from typing import Any

import harness
import importer_samples
import pyarrow as pa
from pyarrow import parquet

from gpusim.evidence.fields import MeasuredError
from gpusim.evidence.importers import KINDS
from gpusim.evidence.measured import read_measured

MEASURED = (
    "gpu,op,batch,m,n,k,dtype,acc_dtype,layout,sparsity,time_us,method,l2,kernel,threads,tile_m,tile_n,grid_x,grid_y,"
    "grid_z,source,load,out_dtype,cuda,timer_us,repeat_p90,padded_to,p10_us,p90_us,dram__bytes_read.sum,"
    "n_img,in_channels,height,width,out_channels,filter_h,filter_w,pad_h,pad_w,stride_h,stride_w\n"
    "t4,gemm,1,512,509,512,fp16,fp32,tn,dense,25.5,graph,warm,,,,,,,,deepbench,burst,,10,0.5,,8,25,26,1000000,,,,,,,,,,,\n"
    "v100-sxm2-16gb,linear,2,64,4096,1024,fp32,fp32,nn,dense,315.5,event,cold,"
    "volta_sgemm_128x64_nn,128,128,64,64,1,2,neusight,26,fp32,12,,0.02,,310,320,2e6,,,,,,,,,,,\n"
    "a100-sxm4-80gb,bmm,1,16,4096,1024,bf16,,,2:4,12.5,profiler,cold,,,,,,,,,sustained,,,,,,,,,,,,,,,,,,,\n"
    "t4,softmax,1,64,4096,,fp32,,,dense,9,host,warm,,,,,,,,,,,,,,,,,,,,,,,,,,,,\n"
    "t4,conv_fwd,2,1568,64,576,fp16,,nchw,dense,40,event,warm,,,,,,,,,,,,,,,,,,2,64,28,28,64,3,3,1,1,1,1\n"
)
VALIDATE = ("validate", "{file}", "--jobs", "1", "--detail", "bound")
COMMANDS: tuple[tuple[str, ...], ...] = (
    VALIDATE,
    (*VALIDATE, "--format", "json"),
    (*VALIDATE, "--strata", "--more", "--overhead", "event=12.5"),
    (*VALIDATE, "--pair", "t4", "v100-sxm2-16gb"),
    ("validate", "{file}", "--jobs", "1", "--detail", "sampled"),
    ("counters", "{file}", "--detail", "bound", "--format", "json"),
)
SHAPE = ("-m", "64", "-n", "128", "-k", "256")
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "aiconfigurator": (),
    "csv": (
        *("--dtype", "bf16", "--method", "stream", "--l2", "warm", "--layout", "tn", "--map"),
        ",".join(f"{column}={text}" for column, text in importer_samples.OF_TABLE.columns.items()),
    ),
    "cutlass": ("--gpu", "a100-sxm4-80gb"),
    "deepbench": ("--gpu", "t4"),
    "kineto": (),
    "llmservingsim": (
        "--gpu",
        "rtx-3090",
        "--dtype",
        "bf16",
        "--model-config",
        str(importer_samples.SAMPLES / "config.json"),
    ),
    "ncu": ("--gpu", "a100-pcie-40gb", *SHAPE),
    "neusight": (),
    "nsys": SHAPE,
    "traces": (),
}
HOSTILE = (
    *("", " ", "0", "-1", "1", "1.5", "-0.0", "1e3", "1e400", "1e-400", "1e308", "nan", "inf", "-inf", "NaN", "true"),
    *("null", "None", "0x10", "1_000", "9" * 19, "9" * 400, "9" * 5000, "0." + "0" * 400 + "1", str(2**63), str(2**64)),
    *(str(2**62), "१२", "²", "A" * 300, "A" * 200_000, "é", "\ufeff", "\x00", "\n", "\r", "\t", '"', "'", ",", ";"),
    *("../../x.yaml", "/dev/zero", "mine.yaml", "t4", "h200-sxm-141gb", "fp8", "int8", "fp64", "2:4", "tt", "conv_fwd"),
    *("linear_fwd_bwd", "stream", "layer", "sustained", "999999999999", "[1, 2]", "[" * 3000, "{}", "(1, 1, 1)"),
    *("xmma_gemm_" + "a1e1" * 60, "sgemm_128x64_nn", "aiconfigurator-trtllm-sq", "$$", "%s", "{x}", "=1+1", "\udcff"),
)
HOSTILE_JSON: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        2**63,
        10**400,
        1e308,
        -1e308,
        float("nan"),
        float("inf"),
        "",
        "x" * 100_000,
        "\x00",
        "\ud800",
    ),
    *([], {}, [[]], [{}], [1] * 1000, {"a": {"b": []}}, "9" * 400, [2**64, 1, 1], [[2**62, 2**62], [2**62, 2**62]]),
)

FILLERS = ((b"", 0), (b"", 0), (b" ", 2**28), (b"[],", 2**22), (b"[", 2**20))
"""What follows a packed trace, and how often."""

MOST_CHARACTERS = 20_000
"""Size of a table up to which it is damaged further; one more damage makes it 2,000 times as large at most."""
MOST_PARTS = 2_000
"""Cells of a table or values of a document from which it grows no further."""

Item = tuple[str, int]
"""Kind of file and seed of what is done to it."""


def inputs(count: int, seed: int) -> list[Item]:
    """Half of them measured tables, the others files to import."""
    pick = random.Random(seed)
    kinds = [*["measured"] * len(KINDS), *KINDS]
    return [(pick.choice(kinds), pick.randrange(2**32)) for _ in range(count)]


def feed(folder: Path, item: Item) -> tuple[str, str]:
    """Write one damaged file, give it to its command, and see what the command leaves."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    command = prepared(folder, work, item)
    before = sorted(work.iterdir())
    outcome, detail = harness.command(command)
    left = [path for path in sorted(work.iterdir()) if path not in before]
    if item[0] == "measured" or outcome != harness.ACCEPTED:
        return ("files left behind", str(left)) if left else (outcome, detail)
    try:
        read_measured(work / "imported.csv")
    except MeasuredError as error:
        return "imported, but refused by the reader", str(error)[: harness.SHOWN_CHARACTERS]
    return outcome, detail


def prepared(samples: Path, work: Path, item: Item) -> list[str]:
    """The command for an input whose file lies in ``work`` then."""
    kind, seed = item
    pick = random.Random(seed)
    if kind == "measured":
        file = work / "runs.csv"
        file.write_bytes(_damaged_text(MEASURED.encode(), pick))
        return [word.format(file=file) for word in pick.choice(COMMANDS)]
    sample = pick.choice(sorted((samples / kind).iterdir()))
    file = work / sample.name
    shutil.copy(sample, file)
    _damage(file, pick)
    return ["import", kind, str(file), "-o", str(work / "imported.csv"), *ARGUMENTS[kind]]


# What is done to a file --------------------------------------------------------------------------


def _damage(file: Path, pick: random.Random) -> None:
    """Damage a file inside its format, or its bytes."""
    inside: dict[str, Callable[[Path, random.Random], None]] = {
        ".xlsx": _damage_workbook,
        ".parquet": _damage_parquet,
        ".sqlite": _damage_database,
        ".json": _damage_json,
        ".gz": _damage_packed,
    }
    if file.suffix in inside and pick.random() < 0.7:
        inside[file.suffix](file, pick)
        return
    damage = _damaged_bytes if file.suffix in inside else _damaged_text
    file.write_bytes(damage(file.read_bytes(), pick))


def _damaged_bytes(data: bytes, pick: random.Random) -> bytes:
    """Some bytes turned, cut out, repeated or put in."""
    for _ in range(pick.choice((1, 1, 2, 8))):
        if not data:
            break
        at, other = sorted(pick.randrange(len(data) + 1) for _ in range(2))
        match pick.randrange(6):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + data[other:]
            case 2:
                data = data[:other] + data[at:other] * pick.choice((1, 3)) + data[other:]
            case 3:
                data = data[:at] + pick.randbytes(pick.choice((1, 4, 64))) + data[at:]
            case 4:
                data = data[:at] + b"\x00" * pick.choice((1, 8, 4096)) + data[at:]
            case _:
                flipped = bytearray(data)
                for _ in range(pick.choice((1, 4, 32))):
                    flipped[pick.randrange(len(flipped))] ^= 1 << pick.randrange(8)
                data = bytes(flipped)
    return data


def _damaged_text(data: bytes, pick: random.Random) -> bytes:
    """Cells of a CSV replaced, its columns or lines moved, or its encoding or bytes changed."""
    match pick.randrange(10):
        case 0:
            return _damaged_bytes(data, pick)
        case 1:
            text = data.decode("utf-8", errors="replace")
            return text.encode(pick.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037")), errors="replace")
        case 2:
            return data.replace(b"\n", pick.choice((b"\r", b"\r\n", b"\n\n", b"", b"\x85", b"\n,\n", b'\n"')))
        case 3:
            return data.replace(b",", pick.choice((b";", b"\t", b",,", b" , ", b"")), pick.choice((-1, 3, 30)))
    return _damaged_cells(data.decode("utf-8", errors="replace"), pick).encode("utf-8", errors="surrogateescape")


def _damaged_cells(text: str, pick: random.Random) -> str:
    """Cells replaced, and lines taken away, grown, repeated or mixed."""
    lines = list(csv.reader(io.StringIO(text)))
    for _ in range(pick.choice((1, 1, 1, 2, 5))):
        line = pick.choice([*lines, *lines[1:], *lines[1:]]) if lines else []
        if not line or len(line) * len(lines) > MOST_PARTS:
            continue
        if sum(len(cell) + 1 for row in lines for cell in row) > MOST_CHARACTERS:
            break
        match pick.randrange(12):
            case 0:
                lines.remove(line)
            case 1:
                lines.append(line * pick.choice((1, 2, 2000)))
            case 2:
                lines[1:] = lines[1:] * pick.choice((2, 50))
            case 3:
                pick.shuffle(line)
            case _:
                line[pick.randrange(len(line))] = pick.choice(HOSTILE)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def _damage_json(file: Path, pick: random.Random) -> None:
    file.write_bytes(_damaged_json(file.read_bytes(), pick))


def _damage_packed(file: Path, pick: random.Random) -> None:
    """What is packed damaged, or far larger than what packs it."""
    text = gzip.decompress(file.read_bytes())
    file.write_bytes(gzip.compress(_damaged_json(text, pick)) + _packed(*pick.choice(FILLERS)))


@cache
def _packed(unit: bytes, count: int) -> bytes:
    """A gzip stream of repetitions: it may follow another one."""
    return gzip.compress(unit * count, compresslevel=1)


def _damaged_json(data: bytes, pick: random.Random) -> bytes:
    """Values of a document replaced, repeated or buried; what is no longer JSON is damaged as bytes."""
    if pick.random() < 0.2:
        return _damaged_bytes(data, pick)
    document = json.loads(data)
    for _ in range(pick.choice((1, 1, 2, 5, 20))):
        places = _places(document)
        if len(places) > MOST_PARTS:
            break
        parent, key = pick.choice(places)
        match pick.randrange(8):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, list):
                parent.extend(deepcopy(parent[key]) for _ in range(pick.choice((1, 300))))
            case 2:
                parent[key] = [parent[key]]
            case _:
                parent[key] = deepcopy(pick.choice(HOSTILE_JSON))
        if not document:
            break
    text = json.dumps(document)
    if pick.random() < 0.05:
        deep = pick.choice((100, 900, 100_000))
        text = text.replace("[", "[" * deep, 1).replace("]", "]" * deep, 1)
    return text.encode("utf-8", errors="surrogatepass")


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every parent and key in a document."""
    found: list[tuple[Any, Any]] = []
    parts: list[Any] = [value]
    while parts:
        part = parts.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        found += [(part, key) for key in keys]
        parts += [part[key] for key in keys]
    return found or [([None], 0)]


def _damage_workbook(file: Path, pick: random.Random) -> None:
    """Parts of a workbook damaged, taken away or grown; its sheet with cells and merges anywhere."""
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = pick.choice([*parts, *[part for part in parts if "sheet" in part or "String" in part] * 3])
    text = parts[name].decode("utf-8")
    cell = pick.choice(("XFD1048576", "A999999999", "ZZZZ1", "B2", "A0"))
    hostile = pick.choice([one for one in HOSTILE if one.isprintable()]).replace("&", "").replace("<", "")
    swaps = [
        ("<v>", f"<v>{hostile}"),
        ('r="B2"', f'r="{cell}"'),
        ('t="s"', 't="b"'),
        ('t="s"', 't="d"'),
        ('t="n"', 't="s"'),
    ]
    swaps += [("</sheetData>", f'</sheetData><mergeCells><mergeCell ref="A1:{cell}"/></mergeCells>')]
    swaps += [("</sheetData>", f'<row r="1048576"><c r="{cell}"><v>1</v></c></row></sheetData>')]
    swaps += [
        ('ref="', f'ref="A1:{cell}" x="'),
        ("<sst", '<!DOCTYPE x [<!ENTITY a "aaaa">]><sst'),
        ("><", f">{hostile[:50]}<"),
    ]
    match pick.randrange(6):
        case 0:
            parts[name] = _damaged_bytes(parts[name], pick)
        case 1:
            del parts[name]
        case 2:
            parts["xl/media/image1.png"] = b"\x00" * pick.choice((10, 2**24, 2**27))
        case _:
            for old, new in pick.sample(swaps, 2):
                text = text.replace(old, new, pick.choice((1, 100)))
            parts[name] = text.encode("utf-8", errors="replace")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for part, content in parts.items():
            archive.writestr(part, content)


def _damage_parquet(file: Path, pick: random.Random) -> None:
    """A table with other columns, types and values."""
    columns = parquet.read_table(file).to_pydict()
    for _ in range(pick.choice((1, 1, 2, 4))):
        name = pick.choice(sorted(columns))
        count = len(columns[name])
        others: tuple[list[Any], ...] = (
            [None] * count, [float("nan")] * count, [1e308] * count, [-1.5] * count, [2**63 - 1] * count,
            [b"\xff\xfe"] * count, [[1, 2]] * count, [{"a": 1}] * count, ["x" * 100_000] * count, ["bfloat16"] * count,
            [True] * count, [0.0] * count, ["NVIDIA H200.yaml"] * count,
        )  # fmt: skip
        if pick.random() < 0.15:
            del columns[name]
            columns["other"] = [1] * count
        else:
            columns[name] = pick.choice(others)
    parquet.write_table(pa.table(columns), file, compression=pick.choice(("none", "gzip", "snappy")))


def _damage_database(file: Path, pick: random.Random) -> None:
    """A report with other values, tables, views and triggers."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(pick.choice((1, 1, 2, 4))):
            table = pick.choice(tables)
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            if not columns:
                continue
            column = pick.choice(columns)
            value: Any = pick.choice(
                (None, -1, 0, 2**62, 2**63 - 1, 1.5, 1e308, "", "x" * 100_000, b"\xff", *HOSTILE[:30])
            )
            statements: tuple[tuple[str, tuple[Any, ...]], ...] = (
                (f"UPDATE {table} SET {column} = ?", (value,)),  # noqa: S608 - names of a sample
                (f"UPDATE {table} SET {column} = ? WHERE rowid % 2", (value,)),  # noqa: S608 - the same
                (f"UPDATE {table} SET {column} = CAST(x'ff61' AS TEXT)", ()),  # noqa: S608 - the same
                (f"ALTER TABLE {table} RENAME COLUMN {column} TO other", ()),
                (f"DELETE FROM {table}", ()),  # noqa: S608 - the same
                (f"DROP TABLE {table}", ()),
                (f"ALTER TABLE {table} RENAME TO old", ()),
            )
            with contextlib.suppress(sqlite3.Error):
                database.execute(*pick.choice(statements))
        if pick.random() < 0.2:
            with contextlib.suppress(sqlite3.Error):
                database.execute("DROP TABLE IF EXISTS StringIds")
                database.execute(
                    "CREATE VIEW StringIds AS WITH RECURSIVE n(id) AS (VALUES (1) UNION ALL SELECT id + 1 FROM n)"
                    " SELECT id, 'sgemm' AS value FROM n"
                )
        database.commit()


# The command line --------------------------------------------------------------------------------


def samples(folder: Path) -> None:
    """A folder of valid files for every kind, and a process that has fed one of each."""
    for kind in KINDS:
        (folder / kind).mkdir()
    for kind, (path, _) in importer_samples.sources(folder).items():
        shutil.copy(path, folder / kind)
    shutil.copy(importer_samples.SAMPLES / "gemm_perf.txt", folder / "aiconfigurator")
    trace = (importer_samples.SAMPLES / "trace.json").read_bytes()
    (folder / "kineto" / "trace.json.gz").write_bytes(gzip.compress(trace))
    (folder / "nsys" / "plain").mkdir()
    plain = importer_samples.report(folder / "nsys" / "plain", ranges=False)
    plain.replace(folder / "nsys" / "plain.sqlite")
    (folder / "nsys" / "plain").rmdir()
    # What every child would else do for itself: pack, read the specs, and load the libraries of the importers.
    for filler in FILLERS:
        _packed(*filler)
    for kind in KINDS:
        feed(folder, (kind, 0))
    known = folder / "known.csv"
    known.write_text(MEASURED + MEASURED.splitlines()[1].replace("t4", "t5", 1) + "\n", encoding="utf-8")
    for command in COMMANDS:
        harness.command([word.format(file=known) for word in command])


def main(arguments: Sequence[str] | None = None) -> int:
    """Feed inputs and count how they end, or write one of them out."""
    parser = harness.command_line("Feed the program damaged tables and files to import.")
    parser.add_argument("--reproduce", metavar="KIND:SEED", help="write one input into the current folder")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if asked.reproduce:
            samples(folder)
            kind, _, seed = asked.reproduce.partition(":")
            print("gpusim", *prepared(folder, Path.cwd(), (kind, int(seed))))
            return 0
        samples(folder)
        with contextlib.chdir(folder):
            count = harness.fed(inputs(asked.count, asked.seed), partial(feed, folder))
    count.show()
    for (kind, seed), _ in count.first.values():
        print(f"\nreproduce: python tests/fuzz/tables.py --reproduce {kind}:{seed}")
    return 1 if count.defects else 0


if __name__ == "__main__":
    sys.exit(main())

"""Random command lines: python tests/fuzz/commands.py --count 10000 --seed 1."""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import harness

COMMANDS = (
    "archs list",
    "archs show t4",
    "archs check {spec}",
    "archs schema",
    "gemm --arch t4 -m 64 -n 96 -k 128 --dtype fp16 --batch 2 --layout tn --order row --l2 cold --load burst",
    "gemm --arch a100-sxm4-80gb -m 64 -n 96 -k 128 --dtype bf16 --sparsity 2:4 --detail bound --format json --explain",
    "gemm --arch v100-sxm2-16gb -m 16 -n 64 -k 64 --dtype fp32 --unit cuda --set l2.capacity_mib=4 --cuda 10",
    "gemm --arch h100-sxm -m 64 -n 96 -k 128 --dtype fp8 --accumulate fp32 --output-dtype fp16 --load 25",
    "trace --arch t4 -m 64 -n 64 -k 64 -o {folder}/trace.json --limit 1000",
    "mathmode --framework pytorch --version 1.13 --op matmul --dtype fp32 --arch t4 --format json",
    "mathmode --framework tensorflow --version 2.4 --arch a100-sxm4-80gb --env NVIDIA_TF32_OVERRIDE=0",
    "numerics --dtype tf32 -m 32 -n 32 -k 64 --sparsity 2:4 --seed 1 --format json",
    "numerics --dtype fp16 -m 16 -n 16 -k 64 --distribution normal:0,1 --scaling amax --sample-rows 8",
    "run {experiment} detail=bound -o {folder}/out --jobs 1",
    "run worked_example -o {folder}/worked --jobs 1",
    "validate {table} --detail bound --strata --more --jobs 1 --format json",
    "validate {table} --pair t4 v100-sxm2-16gb -o {folder}/validated --jobs 1",
    "calibrate --arch t4 --measured {table} -o {folder}/fitted.yaml --rows 2 --jobs 1",
    "import cutlass {table} -o {folder}/imported.csv --gpu t4 --dtype fp16",
    "measure quick --plan --format json",
    "explain gemm:64x64x64:fp16 --arch t4 --detail bound --parts-only --format json",
    "compare gemm:64x64x64:fp16 --archs t4,v100-sxm2-16gb --detail bound --jobs 1 --format json",
    "counters {table} --arch t4 --detail bound --format json",
)
HOSTILE = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "-0",
        "1.5",
        "7.0",
        "1e3",
        "1e400",
        "nan",
        "inf",
        "-inf",
        "NaN",
        "true",
        "null",
        "0x10",
        "1_000",
    ),
    *(
        "9" * 19,
        "9" * 400,
        "1" + "0" * 5000,
        "१२",
        "²",
        "\uff11",
        " 7 ",
        "1,2,3",
        "1:8:2",
        "8:1:2",
        "1:9:0",
        "1:" + "9" * 30 + ":1",
    ),
    *(
        "A" * 300,
        "A" * 5000,
        "é",
        "\udcff",
        "\x00",
        "\n",
        "\t",
        "$$",
        "%s",
        "{}",
        "{x}",
        "[]",
        '["a"]',
        '{"a": 1}',
        "'",
        '"',
    ),
    *(
        "/",
        ".",
        "..",
        "~",
        "/dev/null",
        "/dev/zero",
        "/nonexistent/x",
        "x.yaml",
        "x.csv",
        "-",
        "--",
        "-o",
        "--help",
        "=",
        "a=b",
        "=b",
    ),
    *(
        "sm.count=0",
        "sm.count=-1",
        "sm=1",
        "sm.count=true",
        "clock.boost_mhz=1e308",
        "dram.latency_ns=.inf",
        "l2.capacity_mib=nan",
    ),
    *(
        "instructions={}",
        "name=x",
        "aliases=[1]",
        "library.kernel_catalogues=[]",
        "host.method_overhead_us.event=-1",
        "sm.count.x=1",
    ),
    *(
        "fp16",
        "fp64",
        "int4",
        "bfloat16",
        "sustained",
        "burst",
        "warm",
        "2:4",
        "tt",
        "column",
        "cuda",
        "full",
        "json",
        "t4",
        "h200",
        "teaching",
    ),
    *(
        "normal:1e308,1",
        "lognormal:800,1",
        "uniform:nan,1",
        "constant:1e400",
        "normal:",
        "normal:1,2,3",
        "pytorch",
        "99999999999.1",
        "1.13+x",
    ),
)


def inputs(folder: Path, count: int, seed: int) -> list[list[str]]:
    """Argument lists: a valid command with one to three of its words replaced, dropped, doubled or extended."""
    pick = random.Random(seed)
    files = {
        "folder": str(folder),
        "spec": str(folder / "spec.yaml"),
        "experiment": str(folder / "experiment.yaml"),
        "table": str(folder / "table.csv"),
    }
    return [_mutated(pick.choice(COMMANDS).format(**files).split(), pick) for _ in range(count)]


def _mutated(words: list[str], pick: random.Random) -> list[str]:
    """One to three changes, of a value most of the time."""
    for _ in range(pick.choice((1, 1, 1, 2, 3))):
        values = [place for place, word in enumerate(words) if place and not word.startswith("-")]
        anywhere = pick.randrange(1, len(words) + 1)
        match pick.randrange(10):
            case 0:
                del words[anywhere : anywhere + pick.choice((1, 2))]
            case 1:
                words[anywhere:anywhere] = words[anywhere : anywhere + 2]
            case 2:
                option = pick.choice(("--set", "--arch-path", "--batch", "--jobs", "--kernel", "--arch", "-m"))
                words[anywhere:anywhere] = [option, pick.choice(HOSTILE)]
            case _ if values:
                words[pick.choice(values)] = pick.choice(HOSTILE)
            case _:
                words.append(pick.choice(HOSTILE))
    return words


def prepare(folder: Path) -> None:
    """Write the files that commands name."""
    (folder / "spec.yaml").write_text("extends: t4\nname: mine\naliases: []\n", encoding="utf-8")
    (folder / "experiment.yaml").write_text(
        "title: A few sizes\nquestion: How long?\ngpus: [t4, v100-sxm2-16gb]\ndtypes: [fp16]\n"
        "gemms:\n  - {square: [64, 128]}\nplots:\n  - {kind: time, file: time}\n",
        encoding="utf-8",
    )
    (folder / "table.csv").write_text(
        "gpu,op,batch,m,n,k,dtype,acc_dtype,layout,sparsity,time_us,method,l2\n"
        "t4,gemm,1,512,512,512,fp16,fp32,tn,dense,25.5,graph,warm\n"
        "v100-sxm2-16gb,gemm,1,512,512,512,fp16,fp32,tn,dense,15.5,event,cold\n",
        encoding="utf-8",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Feed command lines in a folder of their own."""
    asked = harness.command_line("Feed the program command lines that nobody means.").parse_args(arguments)
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        folder = Path(name)
        prepare(folder)
        return harness.reported(harness.fed(inputs(folder, asked.count, asked.seed), harness.command))


if __name__ == "__main__":
    sys.exit(main())

"""Long input: numbers of hundreds of digits, long names and paths. Each error is one short line."""

import json
from pathlib import Path

import pytest

from gpusim.cli import run_cli
from gpusim.errors import MOST_REPEATED, one_line

DIGITS, WORDS, APOSTROPHES = "9" * 400, "ab " * 200, "it's " * 120
MORE_DIGITS = "9" * 5000
"""More than Python converts to a number (sys.int_info.default_max_str_digits)."""
SHAPE = ("-m", "64", "-n", "64", "-k", "64")
GEMM = ("gemm", "--arch", "t4", *SHAPE, "--detail", "bound")
NUMERICS = ("numerics", "--dtype", "fp16", "-m", "8", "-n", "8", "-k", "8")
MATHMODE = ("mathmode", "--framework", "pytorch", "--version", "2.1", "--arch", "t4")
TRAINING = ("run", "mixed_precision_numerics", "-o", "out")
EXPERIMENT = ("run", "worked_example", "-o", "out")

NUMBERS = [
    (*GEMM, "-m", "LONG"),
    (*GEMM, "--batch", "LONG"),
    (*GEMM, "--load", "LONG"),
    (*GEMM, "--cuda", "LONG.5"),
    (*NUMERICS, "-k", "LONG"),
    (*NUMERICS, "-k", str(2**63 - 1)),
    (*NUMERICS, "--distribution", "normal:0,LONG"),
    (*MATHMODE, "--version", "LONG!x"),
    (*MATHMODE, "--set", "cublas=1.LONGx"),
    (*EXPERIMENT, "gemms.0.m=LONG"),
    (*EXPERIMENT, "gemms.0.m=10000000000000000000"),
    (*EXPERIMENT, "gemms.0.m=[64,LONG]"),
    (*EXPERIMENT, "gemms.0.m=1:LONG:5"),
    (*EXPERIMENT, "gemms.0.m=1:LONG:LONG"),
    (*EXPERIMENT, "load=LONG"),
    (*EXPERIMENT, "cuda=-LONG"),
    (*EXPERIMENT, "--jobs", "LONG"),
    *((*TRAINING, f"training.{key}=LONG") for key in ("samples", "workers", "steps", "log_every", "gradients_at")),
    *((*TRAINING, f"training.{key}=LONG") for key in ("seed", "learning_rate", "layers.0")),
    (*TRAINING, "training.learning_rate=.inf"),
    (*TRAINING, "training.layers=[16777216,16777216]"),
    *((*TRAINING, f"runs.2.loss_scale={{{key}: LONG}}") for key in ("initial", "growth_factor", "growth_interval")),
]
LONG_NAMES = [
    ("archs", "show", "LONG"),
    ("archs", "check", "LONG"),
    ("archs", "check", "LONG.yaml"),
    ("archs", "list", "--arch-path", "LONG"),
    ("gemm", "--arch", "LONG", *SHAPE),
    *((*GEMM, option, "LONG") for option in ("--dtype", "--kernel", "--accumulate", "--output-dtype", "--load")),
    *((*GEMM, "--set", text) for text in ("LONG", "LONG=1", "sm.count=[LONG]")),
    ("trace", "--arch", "t4", *SHAPE, "-o", "LONG"),
    ("trace", "--arch", "t4", *SHAPE, "-o", "LONG/x.json"),
    *((*NUMERICS, option, "LONG") for option in ("--distribution", "--a", "--b")),
    *((*MATHMODE, option, "LONG") for option in ("--framework", "--version", "--op", "--dtype", "--arch")),
    *((*MATHMODE, option, text) for option in ("--set", "--env") for text in ("LONG", "LONG=1")),
    (*MATHMODE, "--env", "NVIDIA_TF32_OVERRIDE=LONG"),
    ("run", "LONG"),
    ("run", "LONG.yaml"),
    ("run", "worked_example", "-o", "LONG"),
    ("run", "worked_example", "-o", "x/LONG"),
    *((*EXPERIMENT, text) for text in ("LONG=1", "gemms.LONG.m=1", "gemms.0.m=LONG", "x=LONG", "plots=LONG")),
    ("validate", "LONG"),
    ("validate", "LONG/runs.csv"),
    ("measure", "LONG", "--plan"),
    ("measure", "LONG.yaml", "--plan"),
    ("calibrate", "--arch", "LONG", "--measured", "runs.csv", "-o", "mine.yaml"),
    ("calibrate", "--arch", "t4", "--measured", "LONG", "-o", "mine.yaml"),
    ("calibrate", "--arch", "t4", "--measured", "runs.csv", "-o", "LONG.yaml"),
    ("compare", "gemm:8x8x8", "--archs", "LONG"),
    ("compare", "gemm:8x8x8", "--archs", "t4", "--prices", "LONG"),
    ("counters", "LONG"),
    ("explain", "LONG", "--arch", "t4"),
    ("explain", "gemm:8x8x8:LONG", "--arch", "t4"),
    ("explain", "gemm:LONG=1", "--arch", "t4"),
    ("import", "LONG", "runs", "-o", "mine.csv"),
    ("import", "ncu", "LONG", "-o", "mine.csv"),
    ("import", "ncu", "runs", "-o", "LONG/mine.csv"),
    ("import", "ncu", "runs", "-o", "mine.csv", "--dtype", "LONG"),
]


def refused_in_process(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line with which a command refused wrong input, run in this process."""
    assert run_cli(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def repeats(line: str, text: str) -> bool:
    """Whether a line holds more than ``MOST_REPEATED`` characters of a text in one piece."""
    given = " ".join(text.split())
    return any(given[start : start + MOST_REPEATED + 1] in line for start in range(len(given) - MOST_REPEATED))


@pytest.mark.parametrize("digits", [DIGITS, MORE_DIGITS], ids=["400 digits", "5000 digits"])
@pytest.mark.parametrize("arguments", NUMBERS, ids=" ".join)
def test_a_number_of_hundreds_of_digits_is_refused_in_one_line(
    arguments: tuple[str, ...],
    digits: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused_in_process(tuple(text.replace("LONG", digits) for text in arguments), capsys)
    assert not repeats(line, digits)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [DIGITS, WORDS, APOSTROPHES], ids=["digits", "words", "apostrophes"])
@pytest.mark.parametrize("arguments", LONG_NAMES, ids=" ".join)
def test_a_message_repeats_little_of_a_long_name_or_path(
    arguments: tuple[str, ...],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused_in_process(tuple(argument.replace("LONG", text) for argument in arguments), capsys)
    assert not repeats(line, text)
    assert list(tmp_path.iterdir()) == []


PATHS_IN_FILES = [
    {"gpus": ["LONG.yaml"]},
    {"gpus": ["LONG"]},
    {"gpus": ["t4"], "measured": ["LONG.csv"]},
]


@pytest.mark.parametrize("text", [DIGITS, WORDS])
@pytest.mark.parametrize("named", PATHS_IN_FILES)
def test_a_long_path_in_a_file_is_one_line(
    named: dict[str, object],
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    content = {"title": "t", "gemms": [{"square": 64}], "dtypes": "fp16", **named}
    Path("mine.yaml").write_text(json.dumps(content).replace("LONG", text), encoding="utf-8")
    line = refused_in_process(("run", "mine.yaml", "-o", "out"), capsys)
    assert not repeats(line, text)


def test_a_base_whose_name_no_file_can_have_is_refused_at_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"name: Mine\nextends: {DIGITS}x\n", encoding="utf-8")
    line = refused_in_process(("archs", "check", str(path)), capsys)
    assert line.startswith(f"gpusim: {path}:2: extends: ")
    assert not repeats(line, DIGITS)


@pytest.mark.parametrize("pad", ["[0, LONG]", "[0, -1]", "[9223372036854775807, 18446744073709551616]"])
def test_the_padding_of_a_suite_is_bounded(pad: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    entry = "{dtypes: fp16, n_img: 1, in_channels: 1, height: 9, width: 9, out_channels: 1, filter: [3, 3]"
    path.write_text(f"title: t\nconvolutions:\n- {entry}, pad: {pad.replace('LONG', DIGITS)}}}\n", encoding="utf-8")
    line = refused_in_process(("measure", str(path), "--plan"), capsys)
    assert line.startswith(f"gpusim: {path}:3: convolutions.0.pad.")
    assert not repeats(line, DIGITS)


EXTREMES = [
    ("lognormal:800,1", "hold their products"),
    ("normal:1e300,1e300", "hold their products"),
    ("normal:1e160,0", "hold their products"),
    ("uniform:-1e308,1e308", "lie further apart than float64 holds"),
    ("normal:1e400,1", "expected finite numbers"),
    ("uniform:0,nan", "expected finite numbers"),
]


@pytest.mark.parametrize("dtype", ["fp16", "fp64", "int8"])
@pytest.mark.parametrize(("distribution", "problem"), EXTREMES)
def test_operands_whose_products_float64_does_not_hold_are_refused(
    distribution: str, problem: str, dtype: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (*NUMERICS, "--dtype", dtype, "--distribution", distribution, "--format", "json")
    assert problem in refused_in_process(asked, capsys)


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "tf32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("distribution", ["normal:1e152,1e151", "lognormal:-700,20", "normal:0,0", "normal:5e-324,0"])
def test_extreme_operands_leave_no_number_that_is_not_finite(
    distribution: str, dtype: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli((*NUMERICS, "--dtype", dtype, "--distribution", distribution, "--format", "json")) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    json.loads(printed.out, parse_constant=pytest.fail)


def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    for named in ('gpus: ["a\\0"]', 'gpus: ["a\\0.yaml"]', 'gpus: [t4]\nmeasured: ["a\\0.csv"]'):
        path.write_text(f"title: t\ngemms: [{{square: 64}}]\ndtypes: fp16\n{named}\n", encoding="utf-8")
        line = refused_in_process(("run", str(path), "-o", str(tmp_path / "out")), capsys)
        assert line.rstrip("\n").isprintable()


def test_our_own_words_are_not_cut() -> None:
    message = "runs.csv:3: dtype: unknown 'fp23'; expected one of " + ", ".join(f"type{index}" for index in range(200))
    assert one_line(message) == message
    assert one_line("two\nlines   of it") == "two lines of it"
    assert one_line("\x1b[31mred\x00") == r"\x1b[31mred\x00"
    assert one_line(f"{'d' * 300}/runs.csv:12: m: empty").endswith("ddd/runs.csv:12: m: empty")

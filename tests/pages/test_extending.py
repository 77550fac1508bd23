"""docs/extending.md says where new things go: its blocks are executed, in order."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import REPOSITORY, RunGpusim, environment

PAGE = REPOSITORY / "docs" / "extending.md"

LIBRARY = "A library, or another version of one"
FUNCTION_AND_LAYER = "An elementwise function, and a layer of models"


class Block(NamedTuple):
    """A fenced block: its language, the file that it stands for, its text, and the heading it stands under."""

    language: str
    file: str
    text: str
    section: str


def blocks() -> Iterator[Block]:
    section = ""
    for heading, language, file, text in re.findall(
        r"^## ([^\n]+)$|^```(\w+) ?(\S*)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        section = heading or section
        if not heading:
            yield Block(language, file, text, section)


def of_section(name: str) -> list[Block]:
    found = [block for block in blocks() if block.section == name]
    assert found, f"no section '{name}' in {PAGE.name}"
    return found


def write_files(section: str, folder: Path) -> None:
    """Write what a section's YAML and Python blocks hold into their files, and apply its diffs."""
    for block in of_section(section):
        path = folder / block.file
        if block.language == "diff":
            apply(block.text, path)
        elif block.file:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")


def apply(diff: str, path: Path) -> None:
    """Replace a diff's old lines, which must stand in the file once, by its new ones."""
    marked = [(line[0], line[1:]) for line in diff.splitlines(keepends=True)]
    old = "".join(line for mark, line in marked if mark in " -")
    new = "".join(line for mark, line in marked if mark in " +")
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{path.name} does not have once:\n{old}"
    path.write_text(text.replace(old, new), encoding="utf-8")


def commands(section: str) -> list[list[str]]:
    """The command lines of a section, without the program's name."""
    lines = [line for block in of_section(section) if block.language == "sh" for line in block.text.splitlines()]
    assert lines
    return [shlex.split(line)[1:] for line in lines]


def test_every_block_of_the_page_belongs_to_a_section_that_is_tested() -> None:
    tested = {"A GPU", "A kernel", LIBRARY, "A host", "A node", "An operator of your own", "All of it from Python"}
    tested |= {"A GPU from a datasheet", FUNCTION_AND_LAYER, "A main-loop kind"}
    assert {block.section for block in blocks()} == tested
    assert {block.language for block in blocks()} <= {"yaml", "sh", "python", "diff"}


def test_a_gpu_is_a_file(command: RunGpusim, tmp_path: Path) -> None:
    write_files("A GPU", tmp_path)
    check, gemm = (command(*line) for line in commands("A GPU"))
    assert (check.returncode, gemm.returncode) == (0, 0), check.stderr + gemm.stderr
    assert "on T4-GDDR6X" in gemm.stdout


def test_a_gpu_is_made_from_its_datasheet(command: RunGpusim, tmp_path: Path) -> None:
    (tmp_path / "my-specs").mkdir()
    made, gemm = (command(*line) for line in commands("A GPU from a datasheet"))
    assert (made.returncode, gemm.returncode) == (0, 0), made.stderr + gemm.stderr
    assert "derived from RTX-3060" in made.stderr
    assert "on RTX 3060 8GB" in gemm.stdout


def test_a_kernel_is_an_entry_of_a_catalogue(command: RunGpusim, tmp_path: Path) -> None:
    write_files("A kernel", tmp_path)
    (done,) = (command(*line) for line in commands("A kernel"))
    assert done.returncode == 0, done.stderr
    assert "my_h1688gemm_96x96_tn" in done.stdout


def test_another_version_of_a_library_is_a_file(command: RunGpusim, tmp_path: Path) -> None:
    write_files(LIBRARY, tmp_path)
    newest, older = (command(*line, "--format", "json") for line in commands(LIBRARY))
    assert (newest.returncode, older.returncode) == (0, 0), newest.stderr + older.stderr
    assert json.loads(newest.stdout)["kernel"] != json.loads(older.stdout)["kernel"]


def test_a_host_is_a_file(command: RunGpusim, tmp_path: Path) -> None:
    write_files("A host", tmp_path)
    (line,) = commands("A host")
    done = command(*line, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["launch_overhead_us"] == 0.2


def test_a_node_is_a_file(command: RunGpusim, tmp_path: Path) -> None:
    write_files("A node", tmp_path)
    times, model = (command(*line, "--format", "json") for line in commands("A node"))
    assert (times.returncode, model.returncode) == (0, 0), times.stderr + model.stderr
    assert json.loads(times.stdout)["node"] == "A40-pair"
    assert json.loads(model.stdout)["gpus"] == 2


def test_a_gpu_a_library_and_an_operator_need_no_file_and_twenty_lines(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = of_section("All of it from Python")
    assert len([line for line in block.text.splitlines() if line]) <= 20
    exec(block.text, {})  # noqa: S102 -- the page's own code
    gpu, kernel, sms_used, cycles = capsys.readouterr().out.split()
    assert (gpu, kernel, sms_used) == ("T4-80", "mine_96x96", "80")
    # half a gibibyte through 320 GB/s at 1.59 GHz, at least
    assert int(cycles) > 2**28 * 2 / 320e9 * 1.59e9


def test_an_operator_is_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = of_section("An operator of your own")
    exec(block.text, {})  # noqa: S102 -- the page's own code
    cycles, reached, peak = (float(word) for word in re.findall(r"[\d.]+", capsys.readouterr().out))
    assert cycles > 0
    assert 0.6 * peak < reached < peak


def extended(section: str, folder: Path) -> list[str]:
    """What the commands of a section print with a copy of the program that its blocks have changed."""
    ignored = shutil.ignore_patterns("__pycache__")
    for part in ("gpusim", "arch_specs"):
        shutil.copytree(REPOSITORY / part, folder / part, ignore=ignored)
    write_files(section, folder)
    printed = []
    for line in commands(section):
        command = [sys.executable, "-m", "gpusim", *line]
        mine = {**environment(), "PYTHONPATH": str(folder)}
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=mine, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        printed.append(done.stdout)
    return printed


def test_an_elementwise_function_is_a_record_and_a_layer_a_class(tmp_path: Path) -> None:
    operator, model = extended(FUNCTION_AND_LAYER, tmp_path)
    assert "softsign" in operator
    assert all(f"{kernel}>" in model for kernel in ("sigmoid_backward+mul", "softsign_backward"))


def test_a_main_loop_kind_is_a_record_and_a_module(tmp_path: Path) -> None:
    (printed,) = extended("A main-loop kind", tmp_path)
    assert "fragments_32x32_tn" in printed

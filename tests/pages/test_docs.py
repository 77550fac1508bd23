"""The documentation: links lead to files, keys and modules that it names exist, Python examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY, environment

from gpusim.hardware.gpu import Gpu
from gpusim.host.host import Host
from gpusim.library.library import Library

PAGES = (
    *sorted(REPOSITORY.glob("*.md")),
    *sorted((REPOSITORY / "docs").rglob("*.md")),
    *(REPOSITORY / "experiments").rglob("*.md"),
)
LINK = re.compile(r"\]\(([^)\s]*)\)")
INLINE_CODE = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
TOP_FOLDERS = ("arch_specs/", "experiments/", "gpusim/", "tests/", "docs/", "benchmarks/")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as a Markdown viewer makes them."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text_of(page)))
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in LINK.findall(text_of(page)):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_code_style_exist(page: Path) -> None:
    named = [code.strip("/") for code in INLINE_CODE.findall(text_of(page)) if code.startswith(TOP_FOLDERS)]
    assert [path for path in named if not any(mark in path for mark in "*<") and not (REPOSITORY / path).exists()] == []


def test_spec_keys_that_the_pages_on_the_model_name_exist() -> None:
    sections = {name: field.annotation for name, field in Gpu.model_fields.items()} | {"host": Host, "library": Library}
    pages = ("docs/model.md", "experiments/calibration/deviations.md")
    text = "".join(text_of(REPOSITORY / page) for page in pages)
    named = [code.split(".") for code in INLINE_CODE.findall(text) if "." in code]
    keys = [parts for parts in named if parts[0] in sections and len(parts) == 2]
    assert len(keys) >= 15
    for section, key in keys:
        kind = sections[section]
        fields = getattr(kind, "model_fields", None) or getattr(kind, "__dataclass_fields__", None)
        assert fields is None or key in fields or key == "*", f"{section}.{key}"


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in text_of(page)], ids=lambda page: page.name)
def test_python_examples_run(
    page: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for example in re.findall(r"```python\n(.*?)```", text_of(page), re.DOTALL):
        exec(compile(example, page.name, "exec"), names)  # noqa: S102 -- our own documentation
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", [page for page in PAGES if "```py\n" in text_of(page)], ids=lambda page: page.name)
def test_examples_for_other_systems_are_python(page: Path) -> None:
    for example in re.findall(r"```py\n(.*?)```", text_of(page), re.DOTALL):
        assert compile(example, page.name, "exec")


def test_the_block_that_adds_a_gpu_works_when_pasted(tmp_path: Path) -> None:
    section = text_of(REPOSITORY / "README.md").split("## Add a GPU\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    program = tmp_path / "bin" / "gpusim"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gpusim "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    command = ["/bin/sh", "-e", "-c", block]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment() | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "my-gpu.yaml: fine: my-gpu" in done.stdout
    assert "on my-gpu" in done.stdout

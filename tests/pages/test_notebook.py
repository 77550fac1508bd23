"""The notebook of docs/: its cells run, and show what is stored in it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from conftest import REPOSITORY, environment


def test_the_notebook_shows_what_its_cells_give() -> None:
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "notebook.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("source", ["1 / 0", "import gpusim\ngpusim.predict('t5', m=1, n=1, k=1)"])
def test_a_cell_that_fails_fails_the_notebook(source: str) -> None:
    code = f"import sys; sys.path.insert(0, 'benchmarks'); from notebook import execute; execute({source!r}, {{}}, 1)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, env=environment(), check=False)
    assert done.returncode == 1
    assert "Error" in done.stderr


def test_the_notebook_is_small_and_its_pictures_are_stored() -> None:
    path = REPOSITORY / "docs" / "tour.ipynb"
    assert path.stat().st_size < 200_000
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2

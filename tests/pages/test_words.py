"""The field's words: none of the retired ones appears in code, YAML, help, tests or documentation."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from conftest import REPOSITORY

RETIRED = {
    r"likings?\b": "heuristic bias of a library",
    r"rearrang\w+": "epilogue shared-memory pass",
    r"turned[_ ]fill\w*": "bank conflicts of transposed stores",
    r"raster[_ ]width": "threadblock swizzle width",
    r"exchange_(times|bytes)\w*|Exchange\(": "split-K fix-up",
    r"MultiplyAsync|multiplying[_ ]warps": "Mma, WarpgroupMma; math warps",
    r"\bcrews?\b|\bseats?\b": "instances of a warp role; sub-partition slots",
    r"crowd\w*": "contention share",
    r"stopwatch\w*": "timing method, timer resolution",
    r"hand(s|ed|ing)? (over|on)\b": "passes, produces",
    r"\btold\b": "reported, given",
    r"what (became|becomes|came) of|becomes? of\b": "status, outcome",
    r"what is asked for|is asked of what": "requested",
    r"begin nothing": "stop starting cases after",
    r"of the draw\b": "sampled",
    r"\b_?twins?\b": "counterpart, duplicate",
    r"kernel_choice\.(older|results|split|reduce|vector)": "library.heuristic_bias",
    r"GpuArch|specfile": "Gpu; gpusim.specs",
}
"""A pattern of a retired word, and what the field says."""
SUFFIXES = {".py", ".yaml", ".md", ".toml", ".cff", ".ipynb"}
NOT_READ = {".git", ".venv", "results", "dist", "CHANGELOG.md", Path(__file__).name}


@cache
def sources() -> dict[Path, list[str]]:
    """Lines of the project's own text, but for the changelog, which names what was."""
    found = [REPOSITORY / "Makefile"]
    for path in sorted(REPOSITORY.rglob("*")):
        parts = path.relative_to(REPOSITORY).parts
        if path.suffix in SUFFIXES and path.is_file() and not any(part in NOT_READ or part[0] == "." for part in parts):
            found.append(path)
    return {path: path.read_text(encoding="utf-8").splitlines() for path in found}


@pytest.mark.parametrize("pattern", RETIRED)
def test_retired_words_do_not_come_back(pattern: str) -> None:
    word = re.compile(pattern, re.IGNORECASE)
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()[:100]}"
        for path, lines in sources().items()
        for number, line in enumerate(lines, 1)
        if word.search(line)
    ]
    assert found == [], f"the field says: {RETIRED[pattern]}"

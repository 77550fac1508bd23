"""Install a wheel and an sdist into empty environments, run the demo and one of each command there.

    python tests/release/installed.py dist/ --python python3.11 --python python3.12

The wheel is installed for each Python that is there, the sdist for the first of them; pip takes the dependencies from
the index it is configured for. A Python that is not there is named and skipped. Exit status 1: something failed, or
there was no Python.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from examples import COMMANDS, write_files

DEMO = ("run", "a100_vs_v100_gemm")
REFUSED = {"capture": "pip install 'gpusim[torch]'", "serve": "install gpusim[serve]"}
"""Commands that need an extra, and what the line that refuses them names."""
OLDEST = (3, 11)


def main() -> int:
    """Check what the command line names; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path, help="folder with one wheel and one sdist")
    parser.add_argument("--python", action="append", metavar="PROGRAM", help="may be repeated; default: this one")
    options = parser.parse_args()
    (wheel,), (sdist,) = options.dist.glob("gpusim-*.whl"), options.dist.glob("gpusim-*.tar.gz")
    problems, found = [], 0
    for program in options.python or [sys.executable]:
        version = version_of(program)
        if version is None:
            say(f"{program}: not on this machine, skipped")
            continue
        if version < OLDEST:
            problems.append(f"{program}: {'.'.join(map(str, version))} is older than gpusim needs")
            continue
        for package in (wheel, sdist)[: 1 if found else 2]:
            problems += [f"{package.name}, {program}: {one}" for one in problems_of(program, package.resolve())]
        found += 1
    for problem in problems:
        say(problem)
    return 1 if problems or not found else 0


def version_of(program: str) -> tuple[int, int] | None:
    """Version of a Python; None where it is not there, or is a stand-in for one that is not."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([program, "-c", code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    major, minor = map(int, done.stdout.split())
    return major, minor


def problems_of(program: str, package: Path) -> Iterator[str]:
    """Install a package into an empty environment, with an empty home, and run it; what went wrong."""
    with tempfile.TemporaryDirectory(prefix="gpusim-installed-") as name:
        folder = Path(name)
        work, home = folder / "work", folder / "home"
        work.mkdir()
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GPUSIM"))}
        began = time.monotonic()
        subprocess.run([program, "-m", "venv", folder / "environment"], check=True, env=variables)
        binaries = folder / "environment" / "bin"
        subprocess.run([binaries / "python", "-m", "pip", "install", "--quiet", package], check=True, env=variables)
        installed_s = time.monotonic() - began
        variables |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "GPUSIM_PROGRESS": "off"}
        write_files(work)
        failed = list(failures(binaries, work, variables))
        subprocess.run([binaries / "python", "-m", "pip", "uninstall", "--quiet", "--yes", "gpusim"], check=True)
        left = [*(folder / "environment").rglob("gpusim*"), *home.rglob("gpusim*")]
        failed += [f"{path.relative_to(folder)}: left after 'gpusim cache clear' and 'pip uninstall'" for path in left]
        say(
            f"{package.name}, {program}: installed in {installed_s:.0f} s, ran {len(COMMANDS) + 2} commands in "
            f"{time.monotonic() - began - installed_s:.0f} s, {len(failed)} failed"
        )
        yield from failed


def failures(binaries: Path, work: Path, variables: Mapping[str, str]) -> Iterator[str]:
    """Run the demo and the examples; the commands that failed, each with the last line that it printed."""
    listed = run(binaries, ["--help"], work, variables).stdout.partition("Commands:")[2].split("\n")
    groups = {name.split()[0] for name in COMMANDS}
    if missing := {line.split()[0] for line in listed if line.startswith("  ") and line[2:3].strip()} ^ groups:
        yield f"gpusim --help and the examples differ in: {', '.join(sorted(missing))}"
    for name, arguments in {"demo": shlex.join(DEMO), **COMMANDS}.items():
        done = run(binaries, shlex.split(arguments), work, variables)
        last = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        if name in REFUSED:
            if done.returncode != 2 or REFUSED[name] not in done.stderr:
                yield f"gpusim {arguments}: status {done.returncode}, not refused with the extra that it needs: {last}"
        elif done.returncode:
            yield f"gpusim {arguments}: status {done.returncode}: {last}"


def run(
    binaries: Path, arguments: list[str], work: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the installed program."""
    return subprocess.run(
        [binaries / "gpusim", *arguments], capture_output=True, text=True, check=False, cwd=work, env=dict(variables)
    )


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())

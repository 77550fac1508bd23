"""The wheel and the sdist: what they hold, their metadata, and one version everywhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from conftest import REPOSITORY
from packaging.metadata import Metadata

from gpusim.version import __version__

SHIPPED = ("gpusim", "arch_specs", "experiments", "schemas")
"""Folders of a wheel; all but the package itself lie inside of it there."""
DIST_INFO = f"gpusim-{__version__}.dist-info"
NOT_RELEASED = {".ci", ".git"}


def built(source: Path, folder: Path, *targets: str) -> tuple[Path, Path]:
    """The wheel and the sdist of a source tree, or one of them."""
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    command += [word for target in targets for word in ("--target", target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    return folder / f"gpusim-{__version__}-py3-none-any.whl", folder / f"gpusim-{__version__}.tar.gz"


def contents_of(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def files_below(folder: str) -> set[str]:
    """The files of a folder of the repository, without what Python and tests leave there."""
    found = (path.relative_to(REPOSITORY) for path in (REPOSITORY / folder).rglob("*") if path.is_file())
    return {path.as_posix() for path in found if not any(part == "__pycache__" for part in path.parts)}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return built(REPOSITORY, tmp_path_factory.mktemp("dist"))


def test_the_wheel_holds_the_package_its_specs_and_experiments_and_nothing_else(
    distributions: tuple[Path, Path],
) -> None:
    expected = {
        name if name.startswith("gpusim/") else f"gpusim/{name}" for one in SHIPPED for name in files_below(one)
    }
    info = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert set(contents_of(distributions[0])) == expected | {f"{DIST_INFO}/{name}" for name in info}


def test_the_sdist_holds_the_source_and_makes_the_same_wheel(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, sdist = distributions
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        archive.extractall(tmp_path)  # noqa: S202
    source = tmp_path / f"gpusim-{__version__}"
    listing = ["git", "ls-files"]
    tracked = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if tracked.returncode == 0:  # a checkout
        expected = {name for name in tracked.stdout.splitlines() if name.partition("/")[0] not in NOT_RELEASED}
        held = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
        assert held == expected | {"PKG-INFO"}
    assert contents_of(built(source, tmp_path / "dist")[0]) == contents_of(wheel)


def test_the_metadata_are_valid_and_name_what_is_tested(distributions: tuple[Path, Path]) -> None:
    metadata = Metadata.from_email(contents_of(distributions[0])[f"{DIST_INFO}/METADATA"], validate=True)
    assert (metadata.name, str(metadata.version)) == ("gpusim", __version__)
    assert metadata.license_expression == "Apache-2.0"
    minors = [f"3.{minor}" for minor in range(11, 15)]
    named = [one.rpartition(" ")[2] for one in metadata.classifiers or () if "Python :: 3." in one]
    assert named == minors
    assert all(metadata.requires_python is not None and f"{one}.0" in metadata.requires_python for one in minors)
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"^PYTHONS \?= (.*)$", makefile, re.MULTILINE) == [" ".join(f"python{one}" for one in minors)]


def test_changelog_and_citation_name_the_version_and_its_date() -> None:
    changelog = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", changelog, re.MULTILINE)
    assert sections[0] == ("Unreleased", "")
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert sections[1] == (__version__, str(citation["date-released"]))
    assert citation["version"] == __version__


def test_the_image_is_built_from_what_the_docker_client_sends(distributions: tuple[Path, Path], tmp_path: Path) -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    steps = (REPOSITORY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [line.split()[1:-1] for line in steps if line.startswith("COPY ") and "--from" not in line]
    assert {name for names in copied for name in names} == sent
    for name in sent:
        path = REPOSITORY / name
        if path.is_dir():
            shutil.copytree(path, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, tmp_path / name)
    assert contents_of(built(tmp_path, tmp_path / "dist", "wheel")[0]) == contents_of(distributions[0])
    assert steps[-3:] == ["USER gpusim", "WORKDIR /data", 'ENTRYPOINT ["gpusim"]']

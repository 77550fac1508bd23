"""What docs/stability.md promises: public names, their attributes and docstrings, keys of JSON, columns of results."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stable_names
from conftest import RunGpusim, golden_rows
from examples import COMMANDS, write_files
from typer.main import get_command

import gpusim
from gpusim.cli import app

PROGRAM: Any = get_command(app)
SLOW = ("calibrate",)
KINDS = {"number": (int, float, type(None)), "text": (str, type(None)), "other": (dict, list, bool, type(None))}


def commands(group: Any = PROGRAM, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each command of the program by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def values_at(value: Any, path: str) -> list[Any]:
    """The values at a path such as ``tables[].mape``: of a list, which is not empty, those of each element."""
    first, _, rest = path.partition(".")
    key, is_list = first.removesuffix("[]"), first.endswith("[]")
    if key:
        assert key in value, f"no key '{key}'"
        value = value[key]
    elements = value if is_list else [value]
    assert elements, f"{first} is empty"
    return [found for element in elements for found in (values_at(element, rest) if rest else [element])]


# Python -----------------------------------------------------------------------------------------


def test_the_public_names_are_those_of_the_page_and_no_others() -> None:
    assert sorted(gpusim.__all__) == sorted(stable_names.attributes())
    assert sorted(dir(gpusim)) == sorted(gpusim.__all__)


def test_a_star_import_gives_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from gpusim import *", names)  # noqa: S102 -- our own package
    assert set(gpusim.__all__) <= names.keys()
    assert {name for name in names if not name.startswith("__")} == set(gpusim.__all__) - {"__version__"}


@pytest.mark.parametrize("name", [name for name, found in stable_names.attributes().items() if found])
def test_the_attributes_that_the_page_names_exist(name: str) -> None:
    public = getattr(gpusim, name)
    known = {*dir(public), *getattr(public, "model_fields", ()), *getattr(public, "__dataclass_fields__", ())}
    known |= vars(public("x")).keys() if name == "SpecError" else set()
    assert [one for one in stable_names.attributes()[name] if one not in known] == []


@pytest.mark.parametrize("name", sorted(set(gpusim.__all__) - {"__version__"}))
def test_a_public_name_has_a_docstring_of_its_own(name: str) -> None:
    public = getattr(gpusim, name)
    text = public.__doc__ or ""
    assert len(text) > 30
    assert not text.startswith(f"{name}(")  # what a dataclass without a docstring gets
    if inspect.isfunction(public):
        arguments, errors, _ = text.partition("Args:")[2].partition("Raises:")
        assert errors
        parameters = inspect.signature(public).parameters.values()
        named = [one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD]
        assert [one for one in named if not re.search(rf"\b{one}\b", arguments)] == []


# Command line -----------------------------------------------------------------------------------


@pytest.mark.parametrize("row", golden_rows("options.csv"), ids=lambda row: row["command"])
def test_a_command_keeps_its_arguments_and_options(row: dict[str, str]) -> None:
    parameters = dict(commands())[row["command"]].params
    options = {word for one in parameters for word in (*one.opts, *one.secondary_opts)}
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    kept = row["options"].split()
    assert [one for one in kept if one.startswith("-") and one not in options] == []
    assert len([one for one in kept if not one.startswith("-")]) == len(arguments)


def test_every_stable_command_is_recorded_with_all_of_its_options() -> None:
    recorded = {row["command"]: row["options"].split() for row in golden_rows("options.csv")}
    known = {name: one.params for name, one in commands() if name not in stable_names.provisional()}
    assert recorded.keys() == known.keys()
    options = [
        (name, word)
        for name, parameters in known.items()
        for one in parameters
        if one.param_type_name == "option"
        for word in (*one.opts, *one.secondary_opts)
    ]
    assert [(name, word) for name, word in options if word not in recorded[name]] == []


# JSON -------------------------------------------------------------------------------------------


def test_every_command_has_an_example_and_keys_where_it_prints_json() -> None:
    known = dict(commands())
    assert sorted(known) == sorted(COMMANDS)
    printing = {name for name, one in known.items() if any("--format" in option.opts for option in one.params)}
    assert printing == stable_names.json_keys().keys()


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.slow] if one in SLOW else []) for one in stable_names.json_keys()],
)
def test_json_has_the_keys_of_the_page(name: str, command: RunGpusim, tmp_path: Path) -> None:
    write_files(tmp_path)
    done = command(*shlex.split(COMMANDS[name]), "--format", "json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    for path, kind in stable_names.json_keys()[name].items():
        found = values_at(value, path)
        assert all(isinstance(one, KINDS[kind]) for one in found), path
        assert kind != "number" or not any(isinstance(one, bool) for one in found), path


def test_columns_of_a_sweep_are_keys_of_a_prediction() -> None:
    found = gpusim.sweep({"m": [64]}, arch="t4", n=64, k=64, detail="bound")
    keys = stable_names.json_keys()["gemm"]
    assert {key for key, kind in keys.items() if kind != "other"} <= found.keys()

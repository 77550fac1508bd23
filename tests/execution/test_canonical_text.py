"""Equal content has one canonical text, in every process; any other content has another."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from ast import literal_eval
from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from conftest import TESTS, environment
from hypothesis import given
from hypothesis import strategies as st

from gpusim import program
from gpusim.canonical_text import canonical, content_hash
from gpusim.hardware.machine import Machine, MmaTiming, Pipe, SmLimits
from gpusim.launch import Grid, Launch, Resources, Runs, Tensor, Work
from gpusim.library.catalogue import Kernel
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.sim.key import outcome_key
from gpusim.specs import load_spec
from gpusim.workloads.gemm import Gemm

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
NESTED = st.recursive(PLAIN, lambda parts: st.lists(parts).map(tuple))
OPS = (
    program.Compute(9.0),
    program.Alu((("fma", 2.0), ("sfu", 1.0)), 30.0),
    program.Load((program.Read("x", 64.0, 32.0),), 64.0, 1.0, 2),
    program.StoreShared(128.0, 1.0),
    program.LoadShared(128.0, 1.0),
    program.Mma("ffma", 4.0, 2, 0.0, 1.0, pipelined=True, fill_instructions=0.5),
    program.WarpgroupMma("ffma", 4.0, 2.0, 1.0),
    program.AcquireStage(4),
    program.LoadBulk((program.Read("x", 64.0, 32.0),), 64.0, 1.0),
    program.ReleaseStage(1),
    program.SplitKFixup(512.0, 3),
    program.Store("x", 64.0, 96.0, 2.0),
    program.Repeat((program.Compute(1.0), program.Barrier()), 7),
    program.Role(2, (program.Drain(),), 1),
    Grid(3, 2, 4, 5, 6),
    Resources(64, 32, 1024),
    Tensor("x", 128.0, ("x", "split"), 0.5, 0.25, 2.0, runs=Runs(64.0, 256.0, "x")),
    Pipe("fma", 0.5),
    MmaTiming("ffma", "fma", 0.5, 4.0),
)
EMPTY = (program.WaitLoad(), program.Drain(), program.Barrier(), program.WaitStage())
PROGRAM = """
import sys
from gpusim.sim.key import outcome_key
from gpusim.specs import load_spec
from test_canonical_text import LAUNCH
from gpusim.hardware.machine import Machine
t4 = load_spec("t4").system
print(t4.content_hash, outcome_key(Machine.of(t4.gpu, 1590.0), LAUNCH))
"""

WORK = Work(
    (program.Role(2, (OPS[2], program.WaitLoad(), OPS[5])),),
    (Tensor("x", 128.0, ("x",), 0.5, runs=Runs(64.0, 256.0, "x")),),
)
LAUNCH = Launch("test", Grid(3), WORK.roles, Resources(64, 32, 0), WORK.tensors, edges=(WORK, WORK, WORK))


def names(record: Any) -> tuple[str, ...]:
    return getattr(record, "_fields", None) or tuple(field.name for field in dataclasses.fields(record))


def changed(record: Any, name: str, value: object) -> Any:
    """The record with another value of one field."""
    replace = type(record)._replace if isinstance(record, tuple) else dataclasses.replace  # type: ignore[attr-defined]
    return replace(record, **{name: value})


def others(value: Any) -> Iterator[Any]:
    """Values that differ in one place."""
    match value:
        case bool():
            yield not value
        case int() | float():
            yield value + 1
        case str():
            yield value + "x"
        case tuple() if not hasattr(value, "_fields"):
            yield value[1:]
            for at, part in enumerate(value):
                for other in others(part):
                    yield (*value[:at], other, *value[at + 1 :])
        case _:
            for name in names(value):
                for other in others(getattr(value, name)):
                    yield changed(value, name, other)


def test_the_records_below_are_all_of_a_program() -> None:
    shown = {type(one).__name__ for one in (*OPS, *EMPTY, OPS[2].reads[0])}
    assert {name for name, value in vars(program).items() if dataclasses.is_dataclass(value)} <= shown


@pytest.mark.parametrize("record", OPS, ids=lambda record: type(record).__name__)
def test_every_field_is_content(record: Any) -> None:
    variants = [record, *others(record)]
    assert len(variants) > len(names(record))
    assert len({canonical(one) for one in variants}) == len(variants)


def test_records_without_fields_differ_by_their_class() -> None:
    assert len({canonical(one) for one in EMPTY}) == len(EMPTY)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Launch)])
def test_every_field_of_a_launch_but_its_name_is_in_the_key_of_its_outcome(name: str) -> None:
    machine = Machine.of(load_spec("t4").gpu, 1590.0)
    more = {
        "roles": (*LAUNCH.roles, *LAUNCH.roles),
        "tensors": (*LAUNCH.tensors, Tensor("y", 1.0)),
        "edges": None,
    }
    other = changed(LAUNCH, name, more[name] if name in more else next(others(getattr(LAUNCH, name))))
    assert (outcome_key(machine, other) == outcome_key(machine, LAUNCH)) == (name == "name")


@pytest.mark.parametrize("name", SmLimits._fields)
def test_every_limit_but_the_name_of_its_gpu_is_in_the_key_of_an_outcome(name: str) -> None:
    machine = Machine.of(load_spec("t4").gpu, 1590.0)
    limits = changed(machine.limits, name, next(others(getattr(machine.limits, name))))
    other = dataclasses.replace(machine, limits=limits)
    assert (outcome_key(other, LAUNCH) == outcome_key(machine, LAUNCH)) == (name == "gpu")


def test_another_model_has_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine.of(load_spec("t4").gpu, 1590.0)
    before = outcome_key(machine, LAUNCH)
    monkeypatch.setattr("gpusim.sim.key.MODEL_VERSION", 0)
    assert outcome_key(machine, LAUNCH) != before


@given(NESTED)
def test_a_text_says_all_of_a_plain_value(value: object) -> None:
    def listed(part: object) -> object:
        return [*map(listed, part)] if isinstance(part, tuple) else part

    text = canonical(value)
    assert text.isascii()
    assert repr(literal_eval(text)) == repr(listed(value))  # with types and the sign of zero


def test_numbers_that_are_equal_and_of_other_types_are_other_content() -> None:
    numbers: tuple[object, ...] = (1, 1.0, True, "1", None, 0.0, -0.0, 0, math.nextafter(1.0, 2.0), math.inf, math.nan)
    assert len({canonical(one) for one in numbers}) == len(numbers)
    assert canonical(np.float64(0.1)) == canonical(0.1)


def test_the_order_of_a_mapping_is_not_content() -> None:
    assert canonical({"a": 1, "b": (2,), 3: {}}) == canonical({3: {}, "b": (2,), "a": 1})
    assert canonical({"a": 1, "b": 2}) != canonical({"a": 2, "b": 1})
    assert canonical({"1": 1}) != canonical({1: 1})


class Pair(NamedTuple):
    first: int
    second: int


@dataclass(frozen=True)
class Couple:
    first: int
    second: int


class Colour(Enum):
    RED = 1
    GREEN = 1.0


def test_classes_and_names_of_fields_are_content() -> None:
    values = (Pair(1, 2), Couple(1, 2), (1, 2), {"first": 1, "second": 2}, (("first", 1), ("second", 2)), Colour.RED)
    assert len({canonical(one) for one in values}) == len(values)
    renamed = make_dataclass("Couple", ["first", "last"], frozen=True)(1, 2)
    longer = make_dataclass("Couple", ["first", "second", ("third", int, 3)], frozen=True)(1, 2)
    again = make_dataclass("Couple", ["first", "second"], frozen=True)(1, 2)
    assert len({canonical(one) for one in (Couple(1, 2), renamed, longer)}) == 3
    assert canonical(again) == canonical(Couple(1, 2))


@pytest.mark.parametrize(
    "value", [{1, 2}, object(), b"1", Path(), (1, [len])], ids=["set", "object", "bytes", "path", "function"]
)
def test_what_is_not_a_record_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="it has no canonical content"):
        canonical(value)


def test_specs_kernels_operators_and_options_have_content() -> None:
    t4 = load_spec("t4").system
    kernel = t4.library.kernels[0]
    assert isinstance(kernel, Kernel)
    values = (t4, t4.gpu, t4.host, t4.library, kernel, Gemm(1, 2, 3, Dtype("fp16")), Options(), Options("full"))
    assert len({content_hash(one) for one in values}) == len(values)
    assert load_spec("t4").system.content_hash == t4.content_hash


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_with_another_hash_seed_finds_the_same_keys(seed: str) -> None:
    variables = environment(TESTS, Path(__file__).parent) | {"PYTHONHASHSEED": seed}
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=variables, check=True)
    t4 = load_spec("t4").system
    assert run.stdout.split() == [t4.content_hash, outcome_key(Machine.of(t4.gpu, 1590.0), LAUNCH)]

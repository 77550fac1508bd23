"""Both drivers simulate alike, to the bit, and machine code is checked before it is believed."""

from __future__ import annotations

import platform
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from subprocess import PIPE
from types import FrameType
from typing import Any

import numpy as np
import pytest
from conftest import environment
from gemm_kernels import BOARDS_OF_LIBRARIES
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sim_random_programs import operations_of_sm, random_launches
from textbook import machine

from gpusim.errors import InputError
from gpusim.hardware.machine import Machine, Pipe
from gpusim.hardware.occupancy import DoesNotFitError
from gpusim.launch import Axis, Grid, Launch, Resources, Tensor
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.prediction.selection import UnsupportedError
from gpusim.program import (
    AcquireStage,
    Alu,
    Barrier,
    Compute,
    Drain,
    Load,
    LoadBulk,
    LoadShared,
    Mma,
    Op,
    Program,
    Read,
    ReleaseStage,
    Repeat,
    Role,
    SplitKFixup,
    Store,
    StoreShared,
    WaitLoad,
    WaitStage,
    WarpgroupMma,
    operations,
)
from gpusim.sim import simulate as simulation_module
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.drive import drive
from gpusim.sim.drivers import choice, code_folder
from gpusim.sim.drivers.code_folder import FOLDER_VARIABLE, SEAL, is_kept
from gpusim.sim.drivers.compiled import CompiledDriver
from gpusim.sim.drivers.machine_code import machine_code
from gpusim.sim.drivers.reference import ReferenceDriver
from gpusim.sim.initial import Simulation
from gpusim.sim.simulate import simulate
from gpusim.specs import load_spec
from gpusim.workloads.gemm import LAYOUTS
from gpusim.workloads.operators import parse_operator

MOST_OPERATIONS = 20_000  # of all SMs, in `full`
"""By the reference driver, some tenths of a second."""


def same(on: Machine, one: Launch, *, whole: bool = True) -> None:
    """Both drivers agree in every detail of a launch."""
    decoded = DecodedLaunch(on, one)
    for extrapolate in (True, False) if whole else (True,):
        simulation = Simulation(decoded, extrapolate=extrapolate)
        assert drive(simulation, CompiledDriver()) == drive(simulation, ReferenceDriver())
    if operations_of_sm(on, one) * on.sm_count <= MOST_OPERATIONS:
        simulation = Simulation(decoded, full=True)
        assert drive(simulation, CompiledDriver()) == drive(simulation, ReferenceDriver())


@settings(max_examples=60)
@given(random_launches())
def test_random_programs_are_simulated_alike(both: tuple[Machine, Launch]) -> None:
    same(*both)


# Rings and persistent CTAs

AXES: tuple[tuple[Axis, ...] | None, ...] = (None, ("x",), ("batch", "split", "y"), ())


def consumers() -> st.SearchStrategy[Op]:
    """What a consumer does with a stage."""
    count = st.sampled_from([1.0, 7.0, 16.0])
    return st.one_of(
        st.builds(lambda mma: WarpgroupMma("hmma", mma, 512.0, 4.0), count),
        st.builds(lambda mma: Mma("hmma", mma, 2, 256.0, 2.0, pipelined=True), count),
        st.just(Barrier()),
        st.builds(Compute, st.sampled_from([0.0, 3.3, 400.0])),
    )


@st.composite
def rings(draw: st.DrawFn) -> tuple[Machine, Launch]:
    """A producer and consumers of its stages, in CTAs that stay for several tiles or do not."""
    stages, iterations = draw(st.sampled_from([2, 3, 4, 7])), draw(st.sampled_from([1, 3, 40, 200]))
    pending = draw(st.integers(min_value=0, max_value=min(1, stages - 1)))
    reads = (Read("a", draw(st.sampled_from([512.0, 4096.0])), 4096.0),)
    body = (WaitStage(), *draw(st.lists(consumers(), max_size=3)), ReleaseStage(pending))
    fix_up: Program = draw(st.sampled_from([(), (SplitKFixup(512.0, 2),)]))
    ending = (Drain(), ReleaseStage(0), *fix_up, StoreShared(512.0, 4.0), Barrier(), Store("c", 512.0, 640.0, 4.0))
    persistent = draw(st.booleans())
    roles = (
        Role(1, (Repeat((AcquireStage(stages), LoadBulk(reads, 4096.0, 1.0)), iterations),)),
        Role(draw(st.sampled_from([1, 4])), (Repeat(body, iterations), *ending), draw(st.sampled_from([1, 2]))),
    )
    if not persistent:
        roles = (roles[0], replace(roles[1], instances=1))
    on = machine(
        sms=draw(st.sampled_from([1, 3])),
        shared_bytes_per_cycle=128.0,
        l2_port_bytes_per_cycle=64.0,
        l2_port_write_bytes_per_cycle=32.0,
        l2_bytes_per_cycle=150.0,
        l2_write_cost=1.65,
        dram_bytes_per_cycle=70.0,
        l2_copy_bytes=draw(st.sampled_from([2e4, 1e6])),
        l2_far_cycles=draw(st.sampled_from([0.0, 90.5])),
        bulk_copy_cycles=30.0,
        cta_interval_cycles=draw(st.sampled_from([0.0, 1.25, 40.0])),
        cta_launch_cycles=draw(st.sampled_from([0.0, 150.5])),
        pipes=(Pipe("tensor", 1.0), Pipe("fma", 0.5)),
    )
    shared = on.limits.shared_bytes // draw(st.sampled_from([1, 2]))
    tensors = (
        Tensor("a", 4096.0, draw(st.sampled_from(AXES)), 0.4, 0.6, far_hits_fraction=0.3),
        Tensor("c", 2048.0),
    )
    extents = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    grid = Grid(*extents, batch=2, swizzle_width=2, stripes_across_y=draw(st.booleans()))
    cost = draw(st.sampled_from([0.0, 0.7]))
    resources = Resources(32, 1, shared)
    return on, Launch("ring", grid, roles, resources, tensors, cost, persistent, cold=draw(st.booleans()))


@settings(max_examples=150)
@given(rings())
def test_rings_and_persistent_ctas_are_simulated_alike(both: tuple[Machine, Launch]) -> None:
    same(*both)


# Kernels


def launches(seed: int, number: int) -> Iterator[tuple[Machine, Launch]]:
    """What predictions of random GEMMs on random boards simulate."""
    pick = random.Random(seed)
    boards = cycle(BOARDS_OF_LIBRARIES)
    found: list[tuple[Machine, Launch]] = []

    def noted(simulation: Simulation, *args: Any, **options: Any) -> Any:
        found.append((simulation.decoded.machine, simulation.decoded.launch))
        return drive(simulation, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(choice.VARIABLE, "1")
        patch.setattr(simulation_module, "drive", noted)
        while len(found) < number:
            board = load_spec(next(boards))
            dtypes = sorted({name for one in board.gpu.instructions.values() for name in one.inputs})
            unit = pick.choice([1, 64, 64])  # most kernels need aligned rows
            case: dict[str, Any] = {name: unit * int(2 ** pick.uniform(0, 12.5) / unit + 1) for name in "mnk"}
            case |= {"dtype": pick.choice(dtypes), "layout": pick.choice(LAYOUTS), "batch": pick.choice([1, 1, 3])}
            case |= {"beta": pick.choice([0.0, 0.0, 1.0])}
            try:
                _ = predict(board.system, parse_operator(case), Options(l2=pick.choice(["cold", "warm"])))
            except UnsupportedError:
                continue
    yield from found[:number]


def test_kernels_of_every_main_loop_are_simulated_alike() -> None:
    kinds: set[type[Op]] = set()
    for on, one in launches(seed=15, number=150):
        same(on, one, whole=False)
        kinds |= {type(op) for role in one.roles for op in operations(role.program)}
    assert kinds >= {Load, WaitLoad, Mma, WarpgroupMma, LoadBulk, AcquireStage, StoreShared, Drain, Barrier, Store}


@pytest.mark.slow
def test_two_thousand_random_launches_are_simulated_alike() -> None:
    for on, one in launches(seed=2000, number=2000):
        same(on, one, whole=False)


# Errors


@pytest.mark.parametrize("detail", ["sampled", "full"])
def test_warps_that_wait_for_ever_are_the_same_error(detail: str, monkeypatch: pytest.MonkeyPatch) -> None:
    role = Role(3, (Compute(5.0), WaitStage(), ReleaseStage(0)))
    one = Launch("stuck", Grid(3), (Role(2, (Compute(1.0),)), role), Resources(32, 1, 0))
    texts = []
    for forced in ("0", "1"):
        monkeypatch.setenv(choice.VARIABLE, forced)
        with pytest.raises(ValueError, match="3 of 5 warps of CTA 0 wait for ever") as error:
            _ = simulate(machine(sms=2), one, detail)
        texts.append(str(error.value))
    assert texts[0] == texts[1]


def test_what_a_machine_lacks_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(choice.VARIABLE, "1")
    one = Launch("lost", Grid(1), (Role(1, (Alu((("dpx", 1.0),), 1.0),)),), Resources(32, 1, 0))
    with pytest.raises(ValueError, match="the machine has no pipe 'dpx'"):
        _ = simulate(machine(), one)
    with pytest.raises(DoesNotFitError):
        _ = simulate(machine(), replace(one, roles=(Role(1, (Compute(1.0),)),), resources=Resources(32, 1, 2**40)))


def test_a_stage_that_two_producers_fill_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = Role(2, (LoadBulk((Read("x", 1.0, 1.0),), 1.0, 0.0),))
    one = Launch("unusual", Grid(1), (twice,), Resources(32, 1, 0), (Tensor("x", 1.0),))
    for forced in ("0", "1"):
        monkeypatch.setenv(choice.VARIABLE, forced)
        with pytest.raises(ValueError, match="unusual: stages are filled or released in another order"):
            _ = simulate(machine(), one)


def test_a_link_without_a_rate_is_the_same_error(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Launch("idle", Grid(1), (Role(1, (Compute(1.0),)),), Resources(32, 1, 0))
    for forced in ("0", "1"):
        monkeypatch.setenv(choice.VARIABLE, forced)
        with pytest.raises(ValueError, match=r"idle: L2 port: rate must be > 0, got 0\.0"):
            _ = simulate(machine(l2_port_bytes_per_cycle=0.0), one)


def test_a_ring_of_more_stages_than_there_is_room_for_at_first() -> None:
    stages, reads = 40, (Read("x", 64.0, 64.0),)
    producer = Role(1, (Repeat((AcquireStage(stages), LoadBulk(reads, 64.0, 1.0)), 300),))
    consumer = Role(4, (Repeat((WaitStage(), Compute(90.0), ReleaseStage(0)), 300),))
    same(machine(), Launch("deep", Grid(3), (producer, consumer), Resources(160, 1, 0), (Tensor("x", 64.0),)))


# The choice of a driver


def test_the_variable_forces_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice._Preference, "compiled", False)  # an earlier test may have preferred compiled code
    for value, compiled in (("0", False), ("1", True), ("", False)):
        monkeypatch.setenv(choice.VARIABLE, value)
        assert isinstance(choice.chosen_driver(), CompiledDriver) == compiled
        assert isinstance(choice.chosen_driver(1e3), CompiledDriver) == (value != "0")
    monkeypatch.setenv(choice.VARIABLE, "yes")
    with pytest.raises(InputError, match="expected 0 or 1, got 'yes'"):
        _ = choice.chosen_driver()


def test_compiling_has_to_pay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert [choice.compiling_pays(seconds) for seconds in (0.1, 5.0, 50.0)] == [False, False, True]
    assert not is_kept()
    _ = machine_code([doubled], [(VALUES,)])
    assert is_kept()
    assert [choice.compiling_pays(seconds) for seconds in (0.1, 5.0, 50.0)] == [False, True, True]


def test_what_the_reference_driver_has_taken_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(choice._Preference, "compiled", False)
    one = (machine(), Launch("one", Grid(3), (Role(1, (Compute(9.0),)),), Resources(32, 1, 0)))
    assert isinstance(choice.chosen_driver(), ReferenceDriver)
    first = simulate(*one)
    assert choice._Preference.reference_s > 0.0
    monkeypatch.setattr(choice._Preference, "reference_s", 1.0)
    assert isinstance(choice.chosen_driver(), ReferenceDriver)  # nothing is kept
    _ = machine_code([doubled], [(VALUES,)])
    assert isinstance(choice.chosen_driver(), CompiledDriver)
    monkeypatch.setattr(choice._Preference, "reference_s", 0.0)
    assert isinstance(choice.chosen_driver(), CompiledDriver)  # and stays
    monkeypatch.setenv(choice.VARIABLE, "0")
    assert simulate(*one) == first


def test_without_numba_only_force_is_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    choice._say_that_numba_is_missing.cache_clear()
    monkeypatch.setattr(choice, "has_numba", lambda: False)
    monkeypatch.setattr(choice._Preference, "compiled", True)
    assert isinstance(choice.chosen_driver(), ReferenceDriver)
    assert isinstance(choice.chosen_driver(100.0), ReferenceDriver)
    assert [record.message for record in caplog.records] == [
        "numba is not installed: simulations take several times as long; pip install numba"
    ]
    monkeypatch.setenv(choice.VARIABLE, "1")
    with pytest.raises(InputError, match=r"needs numba: pip install numba"):
        _ = choice.chosen_driver()


# Long launches


def long_launch(iterations: int) -> Launch:
    """Every SM has a CTA that makes so many iterations."""
    body = Load((Read("x", 64.0, 64.0),), 64.0, 1.0, 1), WaitLoad(), LoadShared(64.0, 1.0), Barrier()
    return Launch("long", Grid(8), (Role(8, (Repeat(body, iterations),)),), Resources(256, 1, 0), (Tensor("x", 512.0),))


def test_progress_is_reported_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(choice.VARIABLE, "1")
    reports: list[tuple[int, int]] = []
    on, one = machine(sms=4, shared_bytes_per_cycle=128.0), long_launch(5000)
    _ = simulate(on, one, "full", progress=lambda *report: reports.append(report))
    assert len(reports) > 3
    assert [done for done, _ in reports] == sorted({done for done, _ in reports})
    assert reports[-1] == (40_000, 40_000)


def test_an_interrupt_ends_a_long_launch_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setenv(choice.VARIABLE, "1")
    on = machine(sms=4, shared_bytes_per_cycle=128.0)
    _ = simulate(on, long_launch(1), "full")  # compiled
    before = signal.signal(signal.SIGPROF, interrupt)
    try:
        _ = signal.setitimer(signal.ITIMER_PROF, 0.3)
        began = time.process_time()  # other programs take none of it
        with pytest.raises(KeyboardInterrupt):
            _ = simulate(on, long_launch(2_000_000), "full")
        assert time.process_time() - began < 0.3 + 0.5
    finally:
        _ = signal.setitimer(signal.ITIMER_PROF, 0.0)
        _ = signal.signal(signal.SIGPROF, before)


# Machine code


def doubled(values: Any) -> float:
    """Something to compile."""
    return 2 * float(values[0])


VALUES = np.array([21.0])


def test_machine_code_is_kept_and_damaged_files_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert machine_code([doubled], [(VALUES,)])[0](VALUES) == 42.0
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert is_kept()
    whole_files = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert machine_code([doubled], [(VALUES,)])[0](VALUES) == 42.0
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == whole_files
    for file, whole in whole_files.items():
        _ = file.write_bytes(whole[: len(whole) // 2] + bytes(len(whole) - len(whole) // 2))
        assert machine_code([doubled], [(VALUES,)])[0](VALUES) == 42.0
        assert (folder / SEAL).read_bytes() != b"", file
        assert [other for other in folder.rglob("*") if other.is_file() and not other.read_bytes().strip(b"\0")] == []


def test_folders_of_sources_that_changed_or_are_gone_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(digest: str, **replaced: str) -> Path:
        """A folder as another process leaves it."""
        with monkeypatch.context() as elsewhere:
            for name, value in {"_digest": digest, **replaced}.items():
                elsewhere.setattr(code_folder, name, lambda value=value: value)
            folder = Path(code_folder.folder())
            folder.mkdir()
            code_folder.seal(str(folder))
        return folder

    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    older, gone = made("older"), made("gone", _place=str(tmp_path / "gone"))
    staying = [made("other_place", _place=str(tmp_path)), made("other_compiler", _compiler="numba 0.1")]
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(platform, "node", lambda: "another computer")
        staying += [made("far_away"), made("gone_far_away", _place=str(tmp_path / "gone"))]
    unfinished = tmp_path / "machine-code-unfinished"
    unfinished.mkdir()
    (tmp_path / "store.sqlite").touch()
    assert machine_code([doubled], [(VALUES,)])[0](VALUES) == 42.0
    left = {path for path in tmp_path.iterdir() if path.is_dir()}
    assert left == {Path(code_folder.folder()), unfinished, *staying}
    assert not older.exists()
    assert not gone.exists()
    assert is_kept()


def test_code_of_a_text_and_of_the_simulator_lie_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    for text in ("", "formulas", "changed formulas"):
        assert machine_code([doubled], [(VALUES,)], text)[0](VALUES) == 42.0
        assert is_kept(text)
    assert is_kept()
    assert not is_kept("formulas")


def test_one_process_compiles_and_the_others_load(tmp_path: Path) -> None:
    script = (
        "import numpy, numba; from gpusim.sim.drivers import machine_code as code\n"
        "def doubled(values): return 2 * values[0]\n"
        "print('ready', flush=True); input()\n"
        "import contextlib; code.while_compiling = lambda: (print('compiles'), contextlib.nullcontext())[1]\n"
        "print(code.machine_code([doubled], [(numpy.array([21.0]),)])[0](numpy.array([21.0])))"
    )
    (tmp_path / "several.py").write_text(script)
    several = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "several.py")], stdin=PIPE, stdout=PIPE, text=True,
            env=environment() | {FOLDER_VARIABLE: str(tmp_path)},
        )
        for _ in range(3)
    ]  # fmt: skip
    for process in several:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    printed = [process.communicate("\n")[0] for process in several]
    assert sorted(printed) == ["42.0\n", "42.0\n", "compiles\n42.0\n"]


def test_machine_code_needs_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, "/dev/null/nowhere")
    assert machine_code([doubled], [(VALUES,)])[0](VALUES) == 42.0

"""Lets a driver carry out a simulation from its first event to its last, and adds up what happened."""

from __future__ import annotations

from gpusim.launch import Launch
from gpusim.progress import Progress
from gpusim.sim.causes import CAUSES
from gpusim.sim.drivers.driver import Driver
from gpusim.sim.initial import Simulation
from gpusim.sim.memory.random_words import RandomWords
from gpusim.sim.memory.residency import touched_before
from gpusim.sim.outcome import Simulated
from gpusim.sim.state import FINISHED, OUT_OF_ROOM, RUNNING, STAGE_MISUSED, TOO_LONG, Link, Run, Sm, State
from gpusim.sim.trace import Recorder
from gpusim.units import whole_cycles

SCALES = 1, 8, 64, 512
"""Factors of the least room for what grows, tried one after the other."""
EVENTS_AT_ONCE, LINES_AT_ONCE = 10_000, 4_000
"""Until progress is reported, and used random words are replaced."""
FAULTS = {
    OUT_OF_ROOM: "more stages, tiles or iterations are on their way at once than a simulation holds",
    STAGE_MISUSED: "stages are filled or released in another order than they are waited for",
    TOO_LONG: "a warp waits for more than 2^53 cycles",
}


def drive(
    simulation: Simulation,
    driver: Driver,
    recorder: Recorder | None = None,
    *,
    progress: Progress | None = None,
    iterations: int = 0,
) -> Simulated:
    """Simulate a launch.

    Args:
        recorder: listens to the first SM; the driver has to be the reference driver.
        progress: called now and then with the iterations of watched loops done, and with ``iterations``.

    Raises:
        ValueError: warps wait for each other for ever, or a program misuses the stages of its ring.
    """
    for scale in SCALES:
        state = simulation.state(driver, scale, traced=recorder is not None)
        trace = recorder.attach(simulation, state) if recorder is not None else None
        words = RandomWords() if simulation.full else None
        driver.begin(state)
        if words is not None:
            warm_up(simulation, driver, state, words)
        run = driver.run(state)
        while run.status == RUNNING:
            if words is not None:
                _refill(driver, state, words)
            driver.go_on(state, EVENTS_AT_ONCE)
            run = driver.run(state)
            if progress is not None and iterations and run.status in {RUNNING, FINISHED}:
                progress(run.iterations, iterations)
        if run.status != OUT_OF_ROOM:
            break
    if run.status != FINISHED:
        if run.status not in FAULTS:
            raise AssertionError(f"{simulation.decoded.launch.name}: cycles without a cause")
        raise ValueError(f"{simulation.decoded.launch.name}: {FAULTS[run.status]}")
    sms, links = driver.read(Sm, state.sms), driver.read(Link, state.links)
    _check_finished(simulation.decoded.launch, state, sms)
    simulated = _totals(simulation, state, run, sms, links)
    if recorder is not None and trace is not None:
        trace.finish(simulated.cycles - run.skipped_cycles)
        recorder.launches.append(trace)
    return simulated


def warm_up(simulation: Simulation, driver: Driver, state: State, words: RandomWords) -> None:
    """Leave in L2 what earlier runs did."""
    driver.replace_words(state, words.draw(len(state.random_words)))
    touched, runs = touched_before(simulation.decoded, simulation.tables)
    lines, count = [driver.column(column) for column in touched], len(touched.line)
    for _ in range(runs):
        for first in range(0, count, LINES_AT_ONCE):
            driver.touch_lines(state, lines, first, min(first + LINES_AT_ONCE, count))
            _refill(driver, state, words)
    driver.begin_with_lines(state)


def _refill(driver: Driver, state: State, words: RandomWords) -> None:
    """Replace used random words by new ones, where half of them are."""
    used = driver.run(state).random_words
    if used > len(state.random_words) // 2:
        driver.replace_words(state, words.refill(state.random_words, used))


def _check_finished(launch: Launch, state: State, sms: list[Sm]) -> None:
    for resident, sm in zip(state.resident, sms, strict=True):
        if sm.resident:
            cta = state.ctas[resident[0]]
            warps = [state.warps[w] for w in state.cta_warps[resident[0]][: cta.warps]]
            waiting = sum(not warp.exited for warp in warps)
            raise ValueError(
                f"{launch.name}: {waiting} of {len(warps)} warps of CTA {cta.number} wait for ever: "
                "barriers, stages filled and stages released do not match"
            )


def _totals(simulation: Simulation, state: State, run: Run, sms: list[Sm], links: list[Link]) -> Simulated:
    """What the busiest SM did: the one whose warps lived longest, the first of equals."""
    decoded = simulation.decoded
    skipped = run.skipped_cycles
    ended = max(run.now, whole_cycles(max(sm.drained_at for sm in sms)) - skipped)
    if simulation.full:
        # What is left to be written back passes DRAM in the next run, as what the one before left did in this one.
        ended = max(ended, whole_cycles(links[-1].busy))
    busiest = max(range(len(sms)), key=lambda sm: sum(sms[sm].booked))
    stalls = {cause: sms[busiest].booked[cause.index] + run.skipped[cause.index] for cause in CAUSES}
    names = (*decoded.pipes, "issue")
    first = busiest * simulation.links_per_sm
    port = first + len(names) * decoded.machine.sub_partitions
    indices = {name: range(first + at, port, len(names)) for at, name in enumerate(names)}
    indices |= {"shared_memory": range(port, port + 1), "l2_port": range(port + 1, port + 2)}
    common = len(links) - 2
    indices |= {"l2": range(common, common + 1), "dram": range(common + 1, common + 2)}
    # Cycles of service up to the end, without what is booked beyond it.
    busy = {
        name: [links[at].busy - max(0.0, links[at].free_at - ended) + float(state.skipped_busy[at]) for at in of_name]
        for name, of_name in indices.items()
    }
    return Simulated(ended + skipped, stalls, busy, run.read_bytes, run.missed_bytes)

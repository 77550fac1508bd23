"""Plays a launch in arrays: the same outcome as the processes', to the bit."""

from __future__ import annotations

import numpy as np

from gpusim.progress import Progress
from gpusim.sim.compiled import layout
from gpusim.sim.compiled.encode import NotCoveredError
from gpusim.sim.compiled.engine import fill_cache, play
from gpusim.sim.compiled.layout import State
from gpusim.sim.compiled.state import Arrays
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.ledger import CAUSES
from gpusim.sim.outcome import Played
from gpusim.sim.residency import touched_before
from gpusim.sim.sampled_memory import Earlier
from gpusim.sim.sm import never_finished
from gpusim.units import whole_cycles

SCALES = 1, 8, 64, 512
"""Of the room for what grows; a launch that needs more is left to the processes."""
EVENTS_AT_ONCE = 20_000
"""Until Python has the word again: some milliseconds."""


def played(
    decoded: DecodedLaunch,
    *,
    full: bool = False,
    extrapolate: bool = False,
    earlier: Earlier | None = None,
    progress: Progress | None = None,
    turns: int = 0,
) -> Played | None:
    """Play a launch; None where only the processes can.

    Args:
        progress: called now and then with the turns of watched loops done, and how many there are.

    Raises:
        ValueError: warps wait for each other for ever.
    """
    try:
        arrays = Arrays(decoded, full=full, extrapolate=extrapolate, earlier=earlier)
        for scale in SCALES:
            state = arrays.state(scale)
            if full:
                fill_cache(state, *touched_before(decoded, arrays.tables))
            status = layout.RUNNING
            while status == layout.RUNNING:
                status = play(state, EVENTS_AT_ONCE)
                if progress is not None and turns and status in {layout.RUNNING, layout.FINISHED}:
                    progress(int(state.run["turns"][0]), turns)
            if status == layout.FINISHED:
                _check_finished(decoded, state)
                return _totals(decoded, state)
            if status == layout.UNCOVERED:
                return None
    except (NotCoveredError, MemoryError, ZeroDivisionError):
        return None
    return None


def _check_finished(decoded: DecodedLaunch, state: State) -> None:
    left = state.sms["resident"] > 0
    if left.any():
        row = state.resident[left.argmax(), 0]
        cta = state.ctas[row]
        warps = state.cta_warps[row, : cta["warps"]]
        waiting = int((state.warps["exited"][warps] == 0).sum())
        raise never_finished(decoded.launch, waiting, len(warps), int(cta["number"]))


def _totals(decoded: DecodedLaunch, state: State) -> Played:
    run, finished, links = state.run[0], state.sms["finished"], state.links
    skipped = int(run["skipped_cycles"])
    ended = max(int(run["now"]), whole_cycles(float(state.sms["drained_at"].max())) - skipped)
    if state.launch["full"][0]:
        ended = max(ended, whole_cycles(float(links["busy"][-1])))
    # The SM whose warps lived longest, the first of equals.
    busiest = int(finished.sum(axis=1).argmax())
    stalls = dict(zip(CAUSES, (finished[busiest] + run["skipped"]).tolist(), strict=True))
    # As Link.busy_until says, in the same order.
    cycles = (links["busy"] - np.maximum(0.0, links["free_at"] - ended) + state.skipped_busy).tolist()
    names = *decoded.pipes, "issue"
    first = busiest * int(state.launch["links_per_sm"][0])
    after = first + len(names) * decoded.machine.sub_partitions
    busy = {name: cycles[first + at : after : len(names)] for at, name in enumerate(names)}
    busy |= {"shared_memory": [cycles[after]], "l2_port": [cycles[after + 1]]}
    busy |= {"l2": [cycles[-2]], "dram": [cycles[-1]]}
    asked = float(run["read_bytes"]), float(run["missed_bytes"])
    return Played(ended + skipped, stalls, busy, *asked, float(state.sms["stored_from"][0]))

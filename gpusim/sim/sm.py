"""A streaming multiprocessor: CTA slots over sub-partitions that share one load/store port and one path to L2."""

from __future__ import annotations

from collections.abc import Callable

from gpusim.launch import Launch
from gpusim.program import Role
from gpusim.sim.causes import Cause
from gpusim.sim.clock import Clock, Process, ProcessGroup, Sleep, Together, Waits
from gpusim.sim.cta import Cta, RoleWarps
from gpusim.sim.decoded import DecodedLaunch
from gpusim.sim.dispatcher import Dispatcher
from gpusim.sim.ledger import CAUSES
from gpusim.sim.link import Link
from gpusim.sim.memory import Memory, Stream
from gpusim.sim.resources import SharedUnits, SubPartition
from gpusim.sim.ring import Ring
from gpusim.sim.warp import Warp
from gpusim.units import whole_cycles


class RoleInstance:
    """The warps of one role that stay with a persistent CTA, and what they work on."""

    __slots__ = ("first_warp", "number", "parts", "role", "work")

    def __init__(self, role: Role, number: int, first_warp: int, parts: list[SubPartition]) -> None:
        self.role = role
        self.number = number
        """Of the role in the launch."""
        self.first_warp = first_warp
        """Number of the first warp in the CTA."""
        self.parts = parts
        """Sub-partition of each warp."""
        self.work: list[Process] = []
        """On the last tile that they were given."""


class StreamingMultiprocessor:
    """Takes CTAs from a dispatcher and runs their warps."""

    def __init__(
        self,
        env: Clock,
        decoded: DecodedLaunch,
        memory: Memory,
        next_cta: Callable[[], int | None],
        dispatcher: Dispatcher,
    ) -> None:
        self.env = env
        self.decoded = decoded
        self.launch = decoded.launch
        self.memory = memory
        self.next_cta = next_cta
        self.dispatcher = dispatcher
        self.units = SharedUnits(env, decoded, memory)
        machine = decoded.machine
        self.parts = [
            SubPartition(machine, decoded.pipes, f"sub-partition {index}") for index in range(machine.sub_partitions)
        ]
        self.placed_warps = 0
        """On its sub-partitions so far."""
        self.cta_launch_cycles = machine.cta_launch_cycles
        self.resident: list[Cta] = []
        self.ledger = [0] * len(CAUSES)
        """Cycles of all warps by cause, up to when each was settled."""
        self.on_finish: Callable[[Cta], None] | None = None
        """Called when a CTA has ended."""
        self.on_residency: Callable[[], None] | None = None
        """Called when a CTA has started or ended."""
        self.on_warp: Callable[[Warp], None] | None = None

    @property
    def links(self) -> dict[str, list[Link]]:
        """The links of each resource, one per sub-partition or one in all."""
        port, l2, dram = self.memory.links
        pipes = {name: [part.pipes[name] for part in self.parts] for name in self.parts[0].pipes}
        return {
            **pipes,
            "issue": [part.issue for part in self.parts],
            "shared_memory": [self.units.port],
            "l2_port": [port],
            "l2": [l2],
            "dram": [dram],
        }

    def open_slot(self, slot: int) -> None:
        """Let one CTA slot take CTAs until there are none left."""
        _ = Process(self.env, self._slot(slot))

    def finish(self) -> None:
        """End a play: nobody is called any more.

        Raises:
            ValueError: warps are left that wait for each other; the text names the CTA.
        """
        if self.resident:
            cta = self.resident[0]
            waiting = sum(not warp.exited for warp in cta.warps)
            raise never_finished(self.launch, waiting, len(cta.warps), cta.index)
        # Those who listen hold the SM.
        self.on_finish = self.on_residency = self.on_warp = self.units.on_turn = None

    def _slot(self, slot: int) -> Waits:
        if self.launch.persistent:
            yield from self._run_persistent(slot)
            return
        asleep = Sleep(self.env)
        while (index := self.next_cta()) is not None:
            yield from self._run_cta(index, slot, asleep)

    def _run_cta(self, index: int, slot: int, asleep: Sleep) -> Waits:
        """All warps start together, and the slot is free when the last has left."""
        env = self.env
        cta = Cta(index, slot, Ring(env, self.decoded.stage_consumers))
        for number, role in enumerate(self.decoded.roles_of(index)):
            group = RoleWarps(env, role, Stream(index, number))
            for part in self._sub_partitions(role.warps):
                _ = self._join(cta, group, part, f"warp {len(cta.warps)}")
        self.resident.append(cta)
        self._residency_changed()
        launched = whole_cycles(self.dispatcher.start(env.now) + self.cta_launch_cycles)
        if launched > env.now:
            for warp in cta.warps:
                warp.ledger.expect(Cause.LAUNCH, launched)
            yield env.sleep_until(asleep, launched)
            for warp in cta.warps:
                warp.ledger.settle(env.now)
        yield ProcessGroup(env, [warp.run() for warp in cta.warps])
        self._retire(cta)

    def _run_persistent(self, slot: int) -> Waits:
        """Tiles one after the other: the first role asks for the next, and each warp takes it when it is done."""
        env = self.env
        ring = Ring(env, self.decoded.stage_consumers)
        instances = self._instances()
        tiles = 0
        while (index := self.next_cta()) is not None:
            cta = Cta(index, slot, ring)
            self.resident.append(cta)
            self._residency_changed()
            taking = [of_role[tiles % len(of_role)] for of_role in instances]
            launch_cycles = 0.0 if tiles else self.dispatcher.start(env.now) - env.now + self.cta_launch_cycles
            for instance in taking:
                self._set_to_work(instance, cta, launch_cycles)
            _ = Process(env, self._retire_after(cta, [process for instance in taking for process in instance.work]))
            yield Together(env, taking[0].work)
            tiles += 1
        yield Together(env, [process for of_role in instances for instance in of_role for process in instance.work])

    def _instances(self) -> list[list[RoleInstance]]:
        """The warps of a persistent CTA, by role."""
        found: list[list[RoleInstance]] = []
        warps = 0
        for number, role in enumerate(self.launch.roles):
            found.append(
                [
                    RoleInstance(role, number, warps + turn * role.warps, self._sub_partitions(role.warps))
                    for turn in range(role.instances)
                ]
            )
            warps += role.warps * role.instances
        return found

    def _set_to_work(self, instance: RoleInstance, cta: Cta, launch_cycles: float) -> None:
        """Give warps their next tile; each begins when it is done with the one before."""
        role = self.decoded.roles_of(cta.index)[instance.number]
        group = RoleWarps(self.env, role, Stream(cta.index, instance.number))
        before: list[Process | None] = [*instance.work] if instance.work else [None] * role.warps
        instance.work = [
            Process(self.env, self._work(cta, group, part, number, earlier, launch_cycles))
            for number, (part, earlier) in enumerate(zip(instance.parts, before, strict=True), instance.first_warp)
        ]

    def _work(
        self,
        cta: Cta,
        group: RoleWarps,
        part: SubPartition,
        number: int,
        earlier: Process | None,
        launch_cycles: float,
    ) -> Waits:
        """A persistent warp's life with one tile."""
        if earlier is not None:
            yield earlier
        warp = self._join(cta, group, part, f"warp {number}")
        yield from warp.launch(launch_cycles)
        yield from warp.run()

    def _retire_after(self, cta: Cta, warps: list[Process]) -> Waits:
        yield Together(self.env, warps)
        self._retire(cta)

    def _sub_partitions(self, warps: int) -> list[SubPartition]:
        """Sub-partitions for so many more warps, in turn.

        GPUs assign warps so (Barnes et al., HPCA 2023; recalled, unverified).
        """
        first = self.placed_warps
        self.placed_warps += warps
        return [self.parts[number % len(self.parts)] for number in range(first, self.placed_warps)]

    def _join(self, cta: Cta, group: RoleWarps, part: SubPartition, name: str) -> Warp:
        """A warp begins to work on a CTA's tile."""
        warp = Warp(self.units, cta, group, part, f"CTA slot {cta.slot} {name}", self.ledger)
        group.warps.append(warp)
        cta.warps.append(warp)
        if self.on_warp is not None:
            self.on_warp(warp)
        return warp

    def _retire(self, cta: Cta) -> None:
        """A CTA has ended."""
        self.resident.remove(cta)
        self._residency_changed()
        if self.on_finish is not None:
            self.on_finish(cta)
        # Warps, CTA and role hold each other: without this they would stay until garbage is searched for.
        for warp in cta.warps:
            warp.group.warps.clear()
        cta.warps.clear()

    def _residency_changed(self) -> None:
        if self.on_residency is not None:
            self.on_residency()


def never_finished(launch: Launch, waiting: int, warps: int, cta: int) -> ValueError:
    """The error of a CTA whose warps wait for each other."""
    return ValueError(
        f"{launch.name}: {waiting} of {warps} warps of CTA {cta} wait for ever: "
        "barriers, stages filled and stages released do not match"
    )

"""The GPUs that work on one step: a part of a node or several nodes, and how they share the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpusim.collectives.nccl import Nccl
from gpusim.collectives.node import Node
from gpusim.collectives.timing import time_collective
from gpusim.errors import InputError
from gpusim.hardware.gpu import Gpu
from gpusim.models.aten.program import Program
from gpusim.models.graph import Graph
from gpusim.models.passes.step import tasks_of
from gpusim.models.policy import Mode, Policy, PolicyError
from gpusim.models.task import Task
from gpusim.parallel.data import data_parallel, fullest_pass
from gpusim.parallel.expert import expert_parallel
from gpusim.parallel.tensor import tensor_parallel, with_collectives
from gpusim.step.kernels import Peers
from gpusim.step.options import StepOptions

Parallel = Literal["data", "tensor", "pipeline", "expert"]
"""``data``: each GPU has items of its own; ``tensor``: all work on the same items, each with a part of the matrices;
``pipeline``: each has some of the layers, and passes follow one another through them, in inference as many batches at
once as there are GPUs; ``expert``: each has items of its own and some of the experts, and tokens are sent to those of
others."""


@dataclass(frozen=True, slots=True)
class GpuGroup:
    """GPUs of a node, or of several like it that a network joins.

    Raises:
        InputError: the node has fewer and no network, or layers would be split between nodes.
    """

    node: Node
    gpu: Gpu
    nccl: Nccl
    gpus: int
    parallel: Parallel = "data"

    def __post_init__(self) -> None:
        if self.node.gpus_each(self.gpus) < self.gpus and self.parallel != "data":
            raise InputError(f"{self.parallel}: within one node; {self.node.name} has {self.node.gpus} GPUs")

    def replicas(self, mode: Mode) -> int:
        """Passes with items of their own that run at once; of a pipeline in inference, one in each stage."""
        apart = self.parallel in ("data", "expert") or (self.parallel == "pipeline" and mode == "inference")
        return self.gpus if apart else 1

    def peers(self, mode: Mode, uneven: float = 0.0) -> Peers:
        """What a step has to know of the group. Replicas that only infer do not wait for each other.

        Args:
            uneven: of the passes of the model (``Graph.uneven``); replicas have items of their own.
        """
        waits = self.parallel != "data" or mode == "train"
        return Peers(
            lambda collective: time_collective(collective, self.node, self.gpu, self.nccl),
            self.node.slowest(self.gpus) if waits else 1.0,
            fullest_pass(uneven, self.replicas(mode)) if waits else 1.0,
        )

    def part(self, graph: Graph | Program) -> Graph | Program:
        """The layers of one of the GPUs, tensor or expert parallel; else the whole model.

        Raises:
            InputError: the model cannot be shared in this way.
        """
        if isinstance(graph, Program) or self.gpus == 1:
            return graph
        match self.parallel:
            case "tensor":
                return tensor_parallel(graph, self.gpus).graph
            case "expert":
                return expert_parallel(graph, self.gpus)
        return graph

    def tasks(self, graph: Graph | Program, policy: Policy, options: StepOptions = StepOptions()) -> Sequence[Task]:
        """What one of the GPUs launches in a step, data or tensor parallel.

        Args:
            options: how data parallel GPUs sum gradients.

        Raises:
            InputError: the model cannot be shared in this way.
        """
        if self.gpus == 1:
            return tasks_of(graph, policy, self.gpu)
        if self.parallel == "tensor":
            if isinstance(graph, Program):
                raise PolicyError(f"tensor: {graph.name} is a captured model, which runs data parallel alone")
            if policy.checkpointing:
                raise PolicyError("tensor: not with checkpointing, whose second forward pass is not split")
            split = tensor_parallel(graph, self.gpus)
            return with_collectives(split, tasks_of(split.graph, policy, self.gpu))
        if self.parallel == "expert":
            if isinstance(graph, Program):
                raise PolicyError(f"expert: {graph.name} is a captured model, which runs data parallel alone")
            return tasks_of(expert_parallel(graph, self.gpus), policy, self.gpu)
        return data_parallel(
            tasks_of(graph, policy, self.gpu),
            self.gpus,
            graph.counted_loss,
            delayed=options.delay_allreduce,
            divided=options.postdivide_gradients,
        )

"""Data parallel: every GPU computes the gradients of its own items, and all-reduces sum them while others still follow.

As PyTorch's DistributedDataParallel does it (torch/csrc/distributed/c10d/reducer.cpp, PyTorch 2.1): gradients are
copied into buckets in the order in which the backward pass yields them; a full bucket is all-reduced in a stream of its
own, and copied back before the update. The copies of a bucket are one kernel here, and many small ones there. apex's
may wait for the end of the backward pass, and then sum all at once (apex/parallel/distributed.py: delay_allreduce); it
divides the sums after they are exchanged (allreduce_bucket), not as it fills a bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import erfc, sqrt

from gpusim.models.task import Task, Tensor
from gpusim.numbers.formats import Dtype
from gpusim.units import MIB
from gpusim.workloads.collective import Collective
from gpusim.workloads.memory_bound import Access, Pointwise

FIRST_BUCKET_BYTES = MIB
BUCKET_BYTES = 25 * MIB
"""A bucket is full once it holds as much (``kDefaultFirstBucketBytes``, ``bucket_cap_mb``)."""
COUNTED_BYTES = 16384
READS_OF_A_GPU = 3
"""Values that the host reads from each GPU, from a buffer of ``COUNTED_BYTES`` (fairseq/distributed_utils.py:
all_gather_list)."""
LAYER = "data_parallel"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are summed together."""

    place: int
    """Index of the task that yields the last of the gradients."""
    gradients: tuple[Tensor, ...]

    @property
    def size_bytes(self) -> float:
        return sum(tensor.size_bytes for tensor in self.gradients)


def data_parallel(
    tasks: Sequence[Task], ranks: int, counted_loss: bool = False, *, delayed: bool = False, divided: bool = False
) -> tuple[Task, ...]:
    """A training step of one of ``ranks`` GPUs: the tasks, with the all-reduces of their gradients.

    Without an update there is nothing to sum, and one GPU exchanges nothing: the tasks as they are.

    Args:
        counted_loss: of the model (``Graph.counted_loss``); the host reads what all GPUs counted before the update.
        delayed: all gradients are summed at once, after the backward pass.
        divided: sums are divided by the number of GPUs in a kernel of its own.
    """
    found = buckets(tasks, delayed) if ranks > 1 else ()
    if not found:
        return tuple(tasks)
    result: list[Task] = []
    first_update = next(place for place, task in enumerate(tasks) if task.phase == "update")
    for place, task in enumerate(tasks):
        if place == first_update:
            for number, bucket in enumerate(found):
                result += [_divided(bucket, number)] if divided else []
                result.append(_copied_out(bucket, number))
            result += _counted(_held(found[-1], len(found) - 1), ranks) if counted_loss else []
        result.append(task)
        for number, bucket in enumerate(found):
            if bucket.place == place:
                result += [_copied_in(bucket, number, divided=not divided), _summed(bucket, number, ranks)]
    return tuple(result)


def fullest_pass(uneven: float, ranks: int) -> float:
    """Time of the longest of some passes relative to their mean: all wait for it when they sum gradients.

    A pass computes ``1 - uneven |z|`` of what the fullest one does, where z is a normal deviate. The smallest of
    ``ranks`` |z| has the mean that the integral of its survival gives.

    >>> round(fullest_pass(0.116, 1), 3), round(fullest_pass(0.116, 8), 3)
    (1.0, 1.084)
    """
    return (1 - uneven * _smallest_deviate(ranks)) / (1 - uneven * _smallest_deviate(1))


def _smallest_deviate(count: int) -> float:
    """Mean of the smallest of some absolute values of normal deviates."""
    steps, largest = 1000, 6.0
    survivals = [erfc(largest * (at + 0.5) / steps / sqrt(2)) ** count for at in range(steps)]
    return sum(survivals) * largest / steps


def buckets(tasks: Sequence[Task], delayed: bool = False) -> tuple[Bucket, ...]:
    """The buckets of the gradients that the update reads, in the order in which they are full.

    Args:
        delayed: one that holds all of them.
    """
    read = {tensor.name for task in tasks if task.phase == "update" for tensor in task.reads}
    yielded: dict[str, tuple[int, Tensor]] = {}
    for place, task in enumerate(tasks):
        if task.phase == "backward":
            yielded |= {tensor.name: (place, tensor) for tensor in task.writes if tensor.name in read}
    found: list[Bucket] = []
    waiting: list[Tensor] = []
    for place, gradient in sorted(yielded.values(), key=lambda one: one[0]):
        waiting.append(gradient)
        bucket = Bucket(place, tuple(waiting))
        if not delayed and bucket.size_bytes >= (BUCKET_BYTES if found else FIRST_BUCKET_BYTES):
            found.append(bucket)
            waiting = []
    if waiting:
        found.append(Bucket(max(place for place, _ in yielded.values()), tuple(waiting)))
    return tuple(found)


def _summed(bucket: Bucket, number: int, ranks: int) -> Task:
    held = _held(bucket, number)
    operator = Collective("all_reduce", bucket.size_bytes, ranks)
    return Task(LAYER, "communication", operator, (held,), (held,), "")


def _divided(bucket: Bucket, number: int) -> Task:
    """The sums of a bucket over the number of GPUs, which no copy into it has divided before."""
    held, touched = _held(bucket, number), _touched(bucket)
    return Task(LAYER, "update", Pointwise(("scale",), touched[0].elements, touched, touched), (held,), (held,), "")


def _touched(bucket: Bucket) -> tuple[Access]:
    """Access to all of a bucket once; its bytes count."""
    return (Access(max(1, round(bucket.size_bytes * 8 / Dtype.FP32.bits)), Dtype.FP32),)


def _copied_in(bucket: Bucket, number: int, *, divided: bool) -> Task:
    """Gradients into their bucket, divided by the number of GPUs or as they are."""
    held, touched = _held(bucket, number), _touched(bucket)
    operator = Pointwise(("scale" if divided else "copy",), touched[0].elements, touched, touched)
    return Task(LAYER, "backward", operator, bucket.gradients, (held,), "")


def _copied_out(bucket: Bucket, number: int) -> Task:
    """The sums back out of their bucket."""
    held, touched = _held(bucket, number), _touched(bucket)
    operator = Pointwise(("copy",), touched[0].elements, touched, touched)
    return Task(LAYER, "update", operator, (held,), bucket.gradients, "")


def _counted(last: Tensor, ranks: int) -> list[Task]:
    """What the GPUs counted, gathered once the last gradients are summed, and read by the host.

    It reads two digits, the length, and then the text, of each.
    """
    gathered = Tensor(f"{LAYER}.counted", COUNTED_BYTES * ranks)
    gather = Collective("all_gather", gathered.size_bytes, ranks)
    value = (Access(1, Dtype.INT8),)
    read = Task(LAYER, "update", Pointwise(("copy",), 1, value, value), (gathered,), (), "item")
    return [Task(LAYER, "communication", gather, (last,), (gathered,), ""), *[read] * (READS_OF_A_GPU * ranks)]


def _held(bucket: Bucket, number: int) -> Tensor:
    return Tensor(f"{LAYER}.{number}", bucket.size_bytes)

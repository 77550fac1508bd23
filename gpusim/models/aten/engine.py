"""Recorded calls of inference as an engine such as TensorRT runs them, which computes calls in the kernels before them.

Batch norm of a product that nothing else reads becomes part of its weights; its bias and one function of its elements
become part of its epilogue. Tensors that nothing but a concatenation reads are written to their places in it. A sum of
two tensors stays a kernel. Source: NVIDIA TensorRT Developer Guide, "Types of Fusions"; of concatenations, NVIDIA's
"Deploying Deep Neural Networks with TensorRT" (2017).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpusim.models.aten.call import Call, Operand, TensorView, Trace
from gpusim.models.aten.pointwise import is_function

_CONVOLUTIONS = frozenset({"convolution", "_convolution", "cudnn_convolution"})
_PRODUCTS = _CONVOLUTIONS | {"mm", "addmm"}
_NORMS = frozenset(
    {"cudnn_batch_norm", "native_batch_norm", "_native_batch_norm_legit_no_training", "_batch_norm_no_update"}
)

_Value = tuple[int, int]
"""A storage, and how often it had been written."""


def as_engine(trace: Trace) -> Trace:
    """A trace of inference without the calls that an engine has no kernels for."""
    reads, writes = _values(trace.calls)
    uses = Counter(one for ones in reads for one in ones)
    folding = _Folding(uses)
    kept = [
        call
        for call, read, written in zip(trace.calls, reads, writes, strict=True)
        if not folding.folds(call, read, written)
    ]
    freed: list[tuple[int, ...]] = [()] * len(kept)  # footprints are those of the calls as recorded
    return replace(trace, calls=[folding.renamed(call) for call in kept], freed=freed)


def _values(calls: Sequence[Call]) -> tuple[list[tuple[_Value, ...]], list[tuple[_Value, ...]]]:
    """What each call reads and writes; a storage that is written again has another value."""
    written: Counter[int] = Counter()
    reads: list[tuple[_Value, ...]] = []
    writes: list[tuple[_Value, ...]] = []
    for call in calls:
        reads.append(tuple((one, written[one]) for one in dict.fromkeys(view.storage for view in call.tensors)))
        results = tuple(dict.fromkeys(view.storage for view in call.returned))
        written.update(results)
        writes.append(tuple((one, written[one]) for one in results))
    return reads, writes


@dataclass(slots=True)
class _Folding:
    """What has been left out so far."""

    uses: Counter[_Value]
    open: set[_Value] = field(default_factory=set)
    """Results of products that no function of the epilogue was applied to."""
    made: set[_Value] = field(default_factory=set)
    placed: dict[int, int] = field(default_factory=dict)
    """Storages by those whose place they take."""

    def folds(self, call: Call, reads: Sequence[_Value], writes: Sequence[_Value]) -> bool:
        """Whether the kernels before a call compute it."""
        self.made.update(writes)
        if call.base in _PRODUCTS:
            self.open.update(writes)
        elif call.base in _NORMS or is_function(call):
            return self._joins(call, reads, writes)
        elif call.base == "cat":
            return self._places(call, reads, writes)
        return False

    def _joins(self, call: Call, reads: Sequence[_Value], writes: Sequence[_Value]) -> bool:
        """Whether the product that computes its first operand computes the call, too."""
        given = next((one for one in reads if one[0] == call.operand(0).storage), None)
        if given is None or given not in self.open or self.uses[given] > 1:
            return False
        if call.operand(0).elements != call.returned[0].elements:
            return False
        result = next(one for one in writes if one[0] == call.returned[0].storage)
        if call.base in _NORMS:
            self.open.add(result)
        self._place(given[0], result[0])
        return True

    def _places(self, call: Call, reads: Sequence[_Value], writes: Sequence[_Value]) -> bool:
        """Whether all operands are computed into their places in the result."""
        known = dict(reads)
        views = [one for one in call.tensors if one.elements]
        values = [(one.storage, known[one.storage]) for one in views]
        alone = len(set(values)) == len(values) and all(one in self.made and self.uses[one] == 1 for one in values)
        if not alone or any(one.distinct < one.elements for one in views):
            return False
        for one, _ in values:
            self._place(one, writes[0][0])
        return True

    def _place(self, storage: int, within: int) -> None:
        if storage != within:
            self.placed[storage] = within

    def renamed(self, call: Call) -> Call:
        """A call with tensors where they are, and biases added in epilogues."""
        operands: tuple[Operand, ...] = tuple(map(self._of_operand, call.operands))
        if call.base == "addmm" and call.operand(0).distinct <= call.returned[0].shape[-1]:
            call, operands = replace(call, name="mm.default"), operands[1:]
        elif call.base in _CONVOLUTIONS:
            operands = operands[:2]
        results = tuple(None if one is None else self._of_tensor(one) for one in call.results)
        return replace(call, operands=operands, results=results)

    def _of_operand(self, one: Operand) -> Operand:
        if isinstance(one, tuple):
            return tuple(None if inner is None else self._of_tensor(inner) for inner in one)
        return None if one is None else self._of_tensor(one)

    def _of_tensor(self, one: TensorView) -> TensorView:
        storage = one.storage
        while storage in self.placed:
            storage = self.placed[storage]
        return one if storage == one.storage else replace(one, storage=storage)

"""LSTM cells."""

from __future__ import annotations

from typing import Literal

from gpusim.models.layers.layer import Layer, Size
from gpusim.models.layers.products import gemm
from gpusim.models.layers.rows import column_sum
from gpusim.models.shape import Shape, elements, shown
from gpusim.models.tape import Tape
from gpusim.models.value import Value
from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Access, Pointwise


class Lstm(Layer):
    """One layer of LSTM cells over ``length x batch x features`` (``aten::lstm``)."""

    op: Literal["lstm"] = "lstm"
    hidden: Size
    """Features of the state of a cell, in each direction; each of its four gates has as many."""
    bidirectional: bool = False
    """Runs a second time, from the last place to the first, with weights of its own; the result has twice as many
    features."""

    @property
    def directions(self) -> int:
        """1, or 2 of a bidirectional layer."""
        return 2 if self.bidirectional else 1

    def result(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.needs(len(shape) == 3, f"takes length x batch x features, got {shown(shape)}")
        return *shape[:2], self.hidden * self.directions

    def weights(self, *shapes: Shape) -> dict[str, Shape]:
        (shape,) = shapes
        gates = 4 * self.hidden
        each = {
            "weight_ih": (gates, shape[2]),
            "weight_hh": (gates, self.hidden),
            "bias_ih": (gates,),
            "bias_hh": (gates,),
        }
        back = {f"{name}_reverse": size for name, size in each.items()} if self.bidirectional else {}
        return {**each, **back}

    def multiply_adds(self, *shapes: Shape) -> int:
        (shape,) = shapes
        matrices = (size for name, size in self.weights(*shapes).items() if name.startswith("weight"))
        return shape[0] * shape[1] * sum(map(elements, matrices))

    def call(self, tape: Tape, x: Value, **weights: Value) -> Value:
        """One product for all inputs, then a product and the gates for each place.

        cuDNN launches all of it in one call of the framework.
        """
        names = list(weights)
        x, *cast = tape.eligible("lstm", [x, *weights.values()])
        length, batch, features = x.shape
        result = tape.new((length, batch, self.hidden * self.directions), x.dtype, x, *cast)
        cells = _Cells(tape, length, batch, features, self.hidden, self.directions, x.dtype)
        gates = tape.new((length, batch, 4 * self.hidden * self.directions), x.dtype, name=f"{tape.layer}.gates")
        cells.forward([x, *cast], gates, result)

        def backward(gradient: Value) -> list[Value | None]:
            of_x = tape.new(x.shape, x.dtype) if x.differentiable else None
            of_gates = tape.new(gates.shape, gates.dtype)
            of_weights = [tape.new(one.shape, one.dtype, name=f"d.{one.name}") for one in cast]
            cells.backward([gradient, gates, *cast], of_gates, of_x)
            matrices = [one for name, one in zip(names, of_weights, strict=True) if name.startswith("weight")]
            biases = [one for name, one in zip(names, of_weights, strict=True) if name.startswith("bias")]
            cells.of_weights([x, result], of_gates, matrices)
            for bias in biases:
                tape.launch("", column_sum(of_gates, bias), [of_gates], [bias])
            return [of_x, *of_weights]

        return tape.record(result, [x, *cast], backward)


class _Cells:
    """Products and gates of LSTM cells."""

    def __init__(
        self, tape: Tape, length: int, batch: int, features: int, hidden: int, directions: int, dtype: Dtype
    ) -> None:
        self._tape, self._length, self._batch = tape, length, batch
        self._features, self._hidden, self._directions, self._dtype = features, hidden, directions, dtype

    def _product(self, m: int, n: int, k: int, layout: str) -> Gemm:
        return gemm(self._tape, "lstm", (1, m, n, k), layout)

    def _gates(self, functions: tuple[str, ...], read: int, written: int) -> Pointwise:
        """Gates of one place: tensors of batch x hidden."""
        elements = self._batch * self._hidden
        tensors = [Access(elements * count, self._dtype) for count in (read, written)]
        return Pointwise(functions, elements, (tensors[0],), (tensors[1],))

    def forward(self, reads: list[Value], gates: Value, result: Value) -> None:
        tape, hidden = self._tape, self._hidden
        call = "lstm"
        for _ in range(self._directions):
            of_inputs = self._product(self._length * self._batch, 4 * hidden, self._features, "tn")
            tape.launch(call, of_inputs, reads, [gates])
            call = ""
            for _ in range(self._length):
                tape.launch("", self._product(self._batch, 4 * hidden, hidden, "tn"), [result, *reads[1:]], [gates])
                cell = self._gates(("sigmoid",) * 3 + ("tanh",) * 2 + ("mul",) * 3 + ("add",) * 9, 9, 6)
                tape.launch("", cell, [gates], [gates, result])

    def backward(self, reads: list[Value], of_gates: Value, of_x: Value | None) -> None:
        tape, hidden = self._tape, self._hidden
        call = "lstm_backward"
        for _ in range(self._directions):
            for _ in range(self._length):
                cell = self._gates(("sigmoid_backward",) * 3 + ("tanh_backward",) * 2 + ("mul",) * 6 + ("add",), 9, 5)
                tape.launch(call, cell, reads[:2], [of_gates])
                call = ""
                before = self._product(self._batch, hidden, 4 * hidden, "nn")
                tape.launch("", before, [of_gates, *reads[2:]], [of_gates])
            if of_x is not None:
                of_inputs = self._product(self._length * self._batch, self._features, 4 * hidden, "nn")
                tape.launch("", of_inputs, [of_gates, *reads[2:]], [of_x])

    def of_weights(self, reads: list[Value], of_gates: Value, matrices: list[Value]) -> None:
        """Gradients of the weights: one product of all places each."""
        for matrix in matrices:
            m, n = matrix.shape
            product = self._product(m, n, self._length * self._batch, "nt")
            self._tape.launch("", product, [of_gates, *reads], [matrix])

"""Recurrent layers: LSTM and GRU cells, and whole layers as cuDNN computes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpusim.models.aten.access import reduction, spread, whole
from gpusim.models.aten.call import Call, TensorView
from gpusim.models.aten.lowering import Launches, NoModelError, lowers
from gpusim.workloads.functions import Chain
from gpusim.workloads.gemm import Gemm
from gpusim.workloads.memory_bound import Access, Pointwise

_LSTM: Chain = (*("sigmoid",) * 3, *("tanh",) * 2, *("mul",) * 3, *("add",) * 9)
_LSTM_BACKWARD: Chain = (*("sigmoid_backward",) * 3, *("tanh_backward",) * 2, *("mul",) * 6, "add")
_GRU: Chain = (*("sigmoid",) * 2, "tanh", *("mul",) * 3, *("add",) * 8)
_GRU_BACKWARD: Chain = (*("sigmoid_backward",) * 2, "tanh_backward", *("mul",) * 6, *("add",) * 2)
_CELLS: dict[int, tuple[Chain, Chain]] = {
    4: (_LSTM, _LSTM_BACKWARD),
    3: (_GRU, _GRU_BACKWARD),
    1: (("add", "add", "tanh"), ("tanh_backward", "add")),
}
"""Functions of a cell and of its gradient, by the number of its gates."""
_MATRIX = 2


@lowers("_thnn_fused_lstm_cell", kind="lstm")
def _lstm_cell(launches: Launches, call: Call) -> None:
    """Gates of products that are there (aten/src/ATen/native/cuda/RNN.cu)."""
    _cell(launches, call, _LSTM)


@lowers("_thnn_fused_lstm_cell_backward_impl", kind="lstm_backward")
def _lstm_cell_backward(launches: Launches, call: Call) -> None:
    _cell(launches, call, _LSTM_BACKWARD)


@lowers("_thnn_fused_gru_cell", kind="lstm")
def _gru_cell(launches: Launches, call: Call) -> None:
    _cell(launches, call, _GRU)


@lowers("_thnn_fused_gru_cell_backward", kind="lstm_backward")
def _gru_cell_backward(launches: Launches, call: Call) -> None:
    _cell(launches, call, _GRU_BACKWARD)


def _cell(launches: Launches, call: Call, functions: Chain) -> None:
    elements = min(one.elements for one in call.returned)
    reads = tuple(whole(one) if one.elements >= elements else spread(one, elements) for one in call.tensors)
    operator = Pointwise(functions, elements, reads, tuple(map(whole, call.returned)))
    launches.launch(operator, call.tensors, call.returned)


@lowers("_cudnn_rnn", "lstm", "gru", "rnn_tanh", "rnn_relu", kind="lstm")
def _rnn(launches: Launches, call: Call) -> None:
    """For each layer and direction one product for all inputs, then a product and the gates for each place."""
    layers, result = _Layers(launches, call), call.returned[0]
    for features in layers.inputs():
        layers.product(layers.places, layers.columns, features, "tn", result)
        for _ in range(layers.length):
            layers.product(layers.batch, layers.columns, layers.hidden, "tn", result)
            layers.gates(0, 2 * layers.count + 1, layers.count + 2, result)


@lowers("_cudnn_rnn_backward", "lstm_backward", "gru_backward", "rnn_backward", kind="lstm_backward")
def _rnn_backward(launches: Launches, call: Call) -> None:
    """Steps from the last place to the first; then the gradients of weights, of all places at once."""
    layers, result = _Layers(launches, call), call.returned[0]
    for features in layers.inputs():
        for _ in range(layers.length):
            layers.gates(1, 2 * layers.count + 1, layers.count + 1, result)
            layers.product(layers.batch, layers.hidden, layers.columns, "nn", result)
        layers.product(layers.places, features, layers.columns, "nn", result)
        for size in (features, layers.hidden):
            layers.product(layers.columns, size, layers.places, "nt", result)
    gates = launches.temporary((layers.places, layers.columns), result.dtype_name)
    for bias in layers.biases:
        launches.launch(reduction("sum", gates, [bias], (0,)), [gates], [bias])


class _Layers:
    """Sizes of the layers of a call, and their kernels.

    The input comes first; weights are the first list of matrices, two for each layer and direction: of what enters it,
    and of its own state, whose columns are its hidden elements.
    """

    def __init__(self, launches: Launches, call: Call) -> None:
        lists = [[one for one in part if one is not None] for part in call.operands if isinstance(part, tuple)]
        flat = [part for part in lists if part and all(len(one.shape) <= _MATRIX for one in part)]
        if not flat:
            raise NoModelError
        x, weights = call.operand(0), flat[0]
        self._launches, self._x, self._weights = launches, x, weights
        self.biases = [one for one in weights if len(one.shape) < _MATRIX]
        self._matrices = [one for one in weights if len(one.shape) == _MATRIX]
        self.hidden = self._matrices[1].shape[-1]
        self.count = max(1, self._matrices[0].shape[0] // self.hidden)
        if self.count not in _CELLS or len(x.shape) <= _MATRIX:
            raise NoModelError
        first = bool(call.arguments.get("batch_first"))
        self.length, self.batch = (x.shape[1], x.shape[0]) if first else (x.shape[0], x.shape[1])
        self._path = launches.arithmetic.path_of("lstm", x.dtype)

    @property
    def places(self) -> int:
        return self.length * self.batch

    @property
    def columns(self) -> int:
        """Values of all gates."""
        return self.count * self.hidden

    def inputs(self) -> Iterator[int]:
        """Features that enter each layer and direction."""
        yield from (one.shape[-1] for one in self._matrices[::2])

    def product(self, m: int, n: int, k: int, layout: str, written: TensorView) -> None:
        operator = Gemm(m, n, k, self._path, layout=layout, op="linear")
        self._launches.launch(operator, [self._x, *self._weights], [written])

    def gates(self, backward: int, read: int, written: int, result: TensorView) -> None:
        elements = self.batch * self.hidden
        accesses = [(Access(elements * count, result.dtype),) for count in (read, written)]
        functions: Sequence[str] = _CELLS[self.count][backward]
        self._launches.launch(Pointwise(tuple(functions), elements, *accesses), [result], [result])

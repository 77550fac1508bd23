"""Kernels that TorchInductor makes of a module, asked of Inductor itself: its scheduler runs without a GPU.

The module is traced to one graph of ATen calls, as ``torch.compile`` does where no graph breaks, and goes through
Inductor's passes, its lowering and its scheduler. No code is generated. Kernels of the scheduler are calls
``inductor_kernel``; those that it leaves to libraries are calls of ATen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import config, scheduler
from torch._inductor.compile_fx import (
    _recursive_joint_graph_passes,
    _recursive_post_grad_passes,
    view_to_reshape,
)
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.dependencies import MemoryDep
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx import traceback
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import stateless
from torch.utils._pytree import tree_flatten, tree_unflatten

from gpusim.capture.backward import run_backward
from gpusim.capture.fake_cuda import FakeCuda, autocast
from gpusim.capture.recorder import Layers
from gpusim.models.aten.call import Call, CallPhase, Operand, TensorView, Trace

DEVICE = SimpleNamespace(
    name="a GPU",
    type="cuda",
    index=0,
    major=8,
    minor=0,
    multi_processor_count=108,
    total_memory=40 << 30,
    warp_size=32,
    max_threads_per_block=1024,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=166912,
    shared_memory_per_multiprocessor=167936,
    L2_cache_size=40 << 20,
    gcnArchName="",
)
"""Properties that Inductor asks for: of an A100. What it fuses does not depend on them."""
KERNEL = "inductor_kernel.default"
_STACK = "nn_module_stack"
"""What nodes of a graph say of the modules that make them."""
_MOVES = frozenset({"load", "store", "to_dtype", "constant", "index_expr", "store_reduction", "reduction", "masked"})
"""Operations of a kernel's body that compute nothing."""
_ARITHMETIC: Mapping[str, str] = {
    **dict.fromkeys(("add", "sub"), "add"),
    "mul": "mul",
    **dict.fromkeys(("truediv", "div", "reciprocal"), "div"),
    **dict.fromkeys(("exp", "exp2", "expm1"), "exp"),
    **dict.fromkeys(("sqrt", "rsqrt"), "sqrt"),
    **dict.fromkeys(("log", "log2", "log1p"), "log"),
    **dict.fromkeys(("erf", "erfc", "erfinv"), "erf"),
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    **dict.fromkeys(("rand", "randn", "load_seed", "randint64"), "random"),
}
"""Pointwise functions by Inductor's operations; those that are not listed compare or select."""


@dataclass(frozen=True, slots=True)
class Compiling:
    """What is compiled, on fake CUDA tensors."""

    call: Callable[[Any, Any], Any]
    """Runs a module on its arguments."""
    module: Any
    arguments: Any
    cuda: FakeCuda
    """The mode of the fake tensors."""
    dtype: Any
    """That of autocast; None without."""
    replaced: Any
    """The context in which functions are calls of their own."""
    layers: Layers
    """Follows the modules that are called."""

    @property
    def tensors(self) -> list[Any]:
        """Tensors among the arguments."""
        return [one for one in tree_flatten(self.arguments)[0] if isinstance(one, torch.Tensor)]

    def run(self, tensors: Sequence[Any], state: Mapping[str, Any]) -> Any:
        """What the module returns for other tensors among its arguments, and others as its parameters and buffers."""
        flat, spec = tree_flatten(self.arguments)
        others = iter(tensors)
        given = [next(others) if isinstance(one, torch.Tensor) else one for one in flat]
        with autocast(self.dtype), stateless._reparametrize_module(self.module, state, tie_weights=True):  # noqa: SLF001 -- functional_call's own
            return self.call(self.module, tree_unflatten(given, spec))

    def graph_of(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls of a function as a graph, without those whose results nothing uses."""
        # Tensors of few elements would be computed with their values, on a GPU.
        no_constants = mock.patch.object(proxy_tensor, "CONSTANT_NUMEL_LIMIT", -1)
        with self.replaced, _noted(self.layers), no_constants:
            graph = make_fx(dispatch_functionalize(function), select_decomp_table(), tracing_mode="fake")(*arguments)
        graph.graph.eliminate_dead_code()
        graph.recompile()
        return graph

    def lowered(self, graph: Any, inputs: Sequence[Any], **kind: bool) -> Any:
        """A graph as Inductor's scheduler has fused it."""
        with V.set_fake_mode(self.cuda.mode):
            _recursive_post_grad_passes(graph, is_inference=kind.get("is_inference", False))
            view_to_reshape(graph)
        lowering = GraphLowering(graph, example_inputs=inputs, **kind)
        with (
            _pretended(),
            V.set_fake_mode(self.cuda.mode),
            V.set_graph_handler(lowering),
            V.set_debug_handler(DebugContext()),
        ):
            lowering.run(*inputs)
            lowering.finalize()
            lowering._update_scheduler()  # noqa: SLF001 -- what codegen begins with
        return lowering


def compiled_inference(compiling: Compiling) -> Trace:
    """Kernels of an inference pass that Inductor compiled."""
    module, cuda = compiling.module, compiling.cuda
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for one in held.values():
        one.requires_grad_(requires_grad=False)
    count = len(compiling.tensors)

    def run(*tensors: Any) -> Any:
        result = compiling.run(tensors[:count], dict(zip(held, tensors[count:], strict=True)))
        return [one for one in tree_flatten(result)[0] if isinstance(one, torch.Tensor)]  # not a cache of keys

    inputs = [*compiling.tensors, *held.values()]
    with cuda.mode, torch.no_grad(), config.patch(joint_graph_constant_folding=False):
        graph = compiling.graph_of(run, *inputs)
        with V.set_fake_mode(cuda.mode):
            _recursive_joint_graph_passes(graph)
        kernels = _Kernels()
        kernels.add(compiling.lowered(graph, inputs, is_inference=True), "forward")
        return kernels.trace()


def compiled_training(compiling: Compiling, results_of: Callable[[Any], list[Any]]) -> tuple[Trace, int]:
    """Kernels of a forward and a backward pass that Inductor compiled, and how many calls the first one has.

    The passes are one graph, which Inductor cuts where the fewest bytes are kept, as ``torch.compile`` does.

    Args:
        results_of: the results of the module whose gradient is asked for.
    """
    module, cuda, layers = compiling.module, compiling.cuda, compiling.layers
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    trained = [name for name, one in parameters.items() if one.requires_grad]
    count = len(compiling.tensors)
    held = {**parameters, **buffers}
    names: list[str] = []

    def run(primals: list[Any], tangents: list[Any]) -> Any:
        state = dict(zip(held, primals[count:], strict=True))
        for name in trained:
            state[name] = state[name].detach().requires_grad_()
        with torch.enable_grad():
            results = results_of(compiling.run(primals[:count], state))
        given = [one.detach() for one in results]
        with torch.no_grad():
            leaves = run_backward(list(results), layers, lambda: None, tangents)
        found = {name: leaves[state[name]] for name in trained if state[name] in leaves}
        names[:] = found
        return given, [state[name] for name in buffers], list(found.values())

    primals = [*compiling.tensors, *held.values()]
    with cuda.mode, compiling.replaced, torch.enable_grad():
        starts = [torch.ones_like(one) for one in results_of(compiling.run(compiling.tensors, held))]
    with cuda.mode, torch.no_grad(), config.patch(joint_graph_constant_folding=False):
        joint = compiling.graph_of(run, primals, starts)
        _name_inputs(joint, len(primals))
        with V.set_fake_mode(cuda.mode):
            _recursive_joint_graph_passes(joint)
            forward, backward = min_cut_rematerialization_partition(
                joint, [primals, starts], num_fwd_outputs=len(starts) + len(buffers)
            )
        kernels = _Kernels()
        kernels.add(compiling.lowered(forward, _values(forward)), "forward")
        calls = kernels.calls
        kernels.add(compiling.lowered(backward, _values(backward), is_backward=True), "backward")
        return kernels.trace(dict(zip(names, kernels.results, strict=True))), calls


def _name_inputs(joint: Any, primals: int) -> None:
    """The names by which the partitioner tells gradients of results from other inputs."""
    given = [node for node in joint.graph.nodes if node.op == "placeholder"]
    for at, node in enumerate(given):
        node.name = node.target = f"primals_{at + 1}" if at < primals else f"tangents_{at - primals + 1}"
    joint.recompile()


def _values(graph: Any) -> list[Any]:
    """Fake tensors that a graph takes."""
    return [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]


@contextmanager
def _noted(layers: Layers) -> Iterator[None]:
    """The graph that is traced in this context notes the path of the module of each call."""

    def note(path: str) -> None:
        traceback.current_meta[_STACK] = {path: (path, object)}

    with traceback.preserve_node_meta(), layers.followed(note):
        yield


def _layer(node: Any) -> str:
    """Path of the module that what a buffer holds is computed in: that of the first of the nodes that it stands for."""
    first = next(iter(node.origins), None)
    stack = first.meta.get(_STACK) if first is not None else None
    return next(reversed(stack.values()))[0] if stack else ""


@contextmanager
def _pretended() -> Iterator[None]:
    """A GPU that Inductor can ask for its properties."""
    answers: Mapping[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_properties": lambda *_: DEVICE,
        "_get_device_properties": lambda *_: DEVICE,
        "get_device_capability": lambda *_: (DEVICE.major, DEVICE.minor),
        "_lazy_init": lambda: None,
    }
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer, create=True))
        stack.enter_context(mock.patch.object(scheduler, "has_triton", return_value=True))
        yield


class _Kernels:
    """Kernels of scheduled graphs as calls; what one graph gives, the next may take."""

    def __init__(self) -> None:
        self._lowering: Any = None
        self._phase: CallPhase = "forward"
        self._numbers: dict[str, int] = {}
        """Numbers of storages by the names of buffers of the graph."""
        self._given: dict[str, int] = {}
        """Those of what graphs took and gave, by the names of its nodes."""
        self._made: set[int] = set()
        self._trace = Trace()
        self.results: list[TensorView | None] = []
        """What the last graph gave."""

    @property
    def calls(self) -> int:
        return len(self._trace.calls)

    def add(self, lowering: Any, phase: CallPhase) -> None:
        """The kernels of a graph."""
        self._lowering, self._phase = lowering, phase
        with V.set_graph_handler(lowering):
            self._numbers = {name: self._given[name] for name in lowering.graph_inputs if name in self._given}
            for name in lowering.graph_inputs:
                self._given[name] = self._number(name)
            for node in lowering.scheduler.nodes:
                call = self._call(node)
                if call is not None:
                    self._trace.calls.append(call)
                    self._made |= {one.storage for one in call.returned}
            nodes = lowering.module.graph.output_node().args[0]
            self.results = [self._view(one) if hasattr(one, "get_layout") else None for one in lowering.graph_outputs]
            for node, view in zip(nodes, self.results, strict=True):
                if view is not None:
                    self._given[node.name] = view.storage

    def trace(self, gradients: Mapping[str, TensorView | None] | None = None) -> Trace:
        """All calls, with the buffers that each is the last to use."""
        last = {one.storage: at for at, call in enumerate(self._trace.calls) for one in (*call.tensors, *call.returned)}
        results = {one.storage for one in self.results if one is not None}
        freed: list[list[int]] = [[] for _ in self._trace.calls]
        for storage in self._made - results:
            freed[last[storage]].append(storage)
        self._trace.freed = [tuple(sorted(one)) for one in freed]
        self._trace.gradients = {name: one for name, one in (gradients or {}).items() if one is not None}
        return self._trace

    def _call(self, node: Any) -> Call | None:
        if isinstance(node, scheduler.NopKernelSchedulerNode):
            return None
        if isinstance(node, scheduler.ExternKernelSchedulerNode):
            return self._of_library(node.node)
        return self._fused(node)

    def _number(self, name: str) -> int:
        """Number of the storage of a buffer: buffers that are views of one, or written in place, share it."""
        name = self._lowering.scheduler.mutation_real_name.get(name, name)
        if name not in self._numbers:
            self._numbers[name] = len(self._trace.storage_bytes) + 1
            layout = self._lowering.get_buffer(name).get_layout()
            count = _span(_ints(layout.size), _ints(layout.stride))
            self._trace.storage_bytes[self._numbers[name]] = count * layout.dtype.itemsize
        return self._numbers[name]

    # Kernels of libraries ---------------------------------------------------------------------------

    def _of_library(self, kernel: Any) -> Call | None:
        """A call of ATen, or of the attention that stands in it; None of what only names a part of another's result."""
        if type(kernel).__name__ == "MultiOutput":
            first = kernel.inputs[0].get_name()
            self._numbers.setdefault(kernel.get_name(), self._numbers.get(first, 0))
            return None
        function = kernel.op_overload
        name = function.overloadpacket.__name__ if function is not None else kernel.python_kernel_name.split(".")[-1]
        results = self._results(kernel)
        if hasattr(kernel, "unflatten_args") and type(kernel).__name__ == "FallbackKernel":
            args, kwargs = kernel.unflatten_args(kernel.inputs, kernel.constant_args)
        else:
            args, kwargs = [*kernel.inputs, *kernel.constant_args], dict(kernel.kwargs)
        operands: list[Operand] = []
        arguments: dict[str, Any] = {}
        schema = function._schema.arguments if function is not None else ()  # noqa: SLF001
        for at, one in enumerate(schema):
            if one.is_out:
                continue
            value = args[at] if at < len(args) else kwargs.get(one.name, one.default_value)
            if "Tensor" in str(one.type):
                operands.append(self._operand(value))
            elif value != one.default_value and one.name not in ("dtype", "layout", "device", "pin_memory"):
                arguments[one.name] = _plain(value)
        return Call(f"{name}.default", _layer(kernel), self._phase, tuple(operands), results, arguments)

    def _operand(self, value: Any) -> Operand:
        if isinstance(value, list | tuple):
            return tuple(self._view(one) if hasattr(one, "get_layout") else None for one in value)
        return self._view(value) if hasattr(value, "get_layout") else None

    def _view(self, buffer: Any) -> TensorView:
        layout = buffer.get_layout()
        sizes, strides = _ints(layout.size), _ints(layout.stride)
        return TensorView(self._number(buffer.get_name()), str(layout.dtype)[6:], sizes, strides)

    def _results(self, kernel: Any) -> tuple[TensorView, ...]:
        """What a call gives; of several results those that something uses."""
        if type(kernel.layout).__name__ != "MultiOutputLayout":
            return (self._view(kernel),)
        parts = (one for one in self._lowering.buffers if type(one).__name__ == "MultiOutput")
        return tuple(self._view(one) for one in parts if one.inputs[0] is kernel)

    # Kernels of Inductor ----------------------------------------------------------------------------

    def _fused(self, node: Any) -> Call:
        outer, inner = (_int(one) for one in node.group[1])
        reads = self._touched(node.read_writes.reads)
        writes = self._touched(node.read_writes.writes)
        operations = Counter[str]()
        for part in node.get_nodes():
            for block in (part._body.root_block, *part._body.subblocks.values()):  # noqa: SLF001
                operations.update(one.target for one in block.graph.nodes if one.op == "call_method")
        arguments: dict[str, Any] = {"rows": outer, "columns": inner}
        reductions = operations["reduction"] + operations["store_reduction"]
        arguments["reductions"] = reductions
        arguments["functions"] = [
            [_ARITHMETIC.get(name, "mask"), count] for name, count in sorted(operations.items()) if name not in _MOVES
        ]
        return Call(KERNEL, _layer(node.get_nodes()[-1].node), self._phase, tuple(reads), tuple(writes), arguments)

    def _touched(self, dependencies: Any) -> list[TensorView]:
        """Tensors as a kernel goes over them: sizes of its loops, and the steps in memory of each."""
        found: dict[int, TensorView] = {}
        for one in sorted(dependencies, key=lambda dependency: dependency.name):
            if not isinstance(one, MemoryDep):
                continue
            number = self._number(one.name)
            dtype = str(self._lowering.get_dtype(one.name))[6:]
            sizes = _ints(one.size) or (1,)
            strides = tuple(_step(one.index, name) for name in one.var_names) or (1,)
            view = TensorView(number, dtype, sizes, strides)
            if number not in found or view.elements > found[number].elements:
                found[number] = view
        return list(found.values())


def _step(index: Any, name: Any) -> int:
    """Elements from one to the next as a variable of a loop grows; 1 where it is no product of the variable."""
    coefficient = index.coeff(name)
    if coefficient.is_Integer and coefficient:
        return abs(int(coefficient))
    return 1 if index.has(name) else 0


def _span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) if all(sizes) else 0


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(_int(one) for one in values)


def _int(value: Any) -> int:
    return int(value)


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)

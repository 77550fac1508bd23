"""ONNX graphs run as PyTorch's functions: sizes as the graph states them, shapes as the standard has them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from captures import names, needs_cuda_build, trace_of
from conftest import RunGpusim, refused

from gpusim.models.aten.file import CapturedModel, load_captured
from gpusim.models.policy import Policy

needs_cuda_build()
torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
MAKE = onnx.helper
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
INFERENCE = Policy("inference", "fp32", layout="nchw")


def zeros(name: str, *shape: int, dtype: int = FLOAT) -> Any:
    count = 1
    for size in shape:
        count *= size
    return MAKE.make_tensor(name, dtype, shape, [0] * count)


def save(
    path: Path,
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    weights: Sequence[Any] = (),
    *,
    opset: int = 17,
    **more: Any,
) -> None:
    """Save a graph whose result is that of its last node."""
    result = MAKE.make_tensor_value_info(nodes[-1].output[0], FLOAT, None)
    graph = MAKE.make_graph(nodes, "graph", inputs, [result], weights)
    domains = [MAKE.make_opsetid("", opset), MAKE.make_opsetid("com.microsoft", 1)]
    onnx.save(MAKE.make_model(graph, opset_imports=domains, **more), str(path))


def given(name: str, *dims: int | str | None, dtype: int = FLOAT) -> Any:
    return MAKE.make_tensor_value_info(name, dtype, dims)


def captured(command: RunGpusim, folder: Path, *options: str) -> CapturedModel:
    done = command("capture", "graph.onnx", "-o", "graph.yaml", "--precision", "fp32", *options)
    assert done.returncode == 0, done.stderr
    return load_captured(folder / "graph.yaml")


# Sizes --------------------------------------------------------------------------------------------


def images(path: Path, dims: list[int | str | None], *, dtype: str = "FLOAT") -> None:
    """A graph of a convolution whose input has these dimensions: numbers, names or none."""
    kind = getattr(onnx.TensorProto, dtype)
    around = [1] * (len(dims) - 2)
    nodes = [
        MAKE.make_node("Conv", ["x", "w"], ["y"], pads=2 * around, strides=[2 * one for one in around]),
        MAKE.make_node("Relu", ["y"], ["z"]),
    ]
    save(path, nodes, [given("x", *dims, dtype=kind)], [zeros("w", 16, 3, *[3 * one for one in around], dtype=kind)])


@pytest.mark.parametrize(
    ("dims", "sizes", "result"),
    [
        (["batch", 3, "height", "width"], "height=64 width=96", (4, 16, 32, 48)),
        (["Batch_size", 3, "side", "side"], "side=64", (4, 16, 32, 32)),
        (["batch", 3, None, None], "x_2=64 x_3=96", (4, 16, 32, 48)),
        ([-1, 3, -1, -1], "x_0=batch x_2=64 x_3=96", (4, 16, 32, 48)),
        (["N", 3, "frames"], "frames=96", (4, 16, 48)),
    ],
)
def test_open_dimensions_have_the_sizes_that_are_stated(
    dims: list[int | str | None], sizes: str, result: tuple[int, ...], command: RunGpusim, tmp_path: Path
) -> None:
    images(tmp_path / "graph.onnx", dims)
    options = [word for size in sizes.split() for word in ("--size", size)]
    model = captured(command, tmp_path, "--batch", "4", *options)
    calls = trace_of(model, INFERENCE).calls
    assert calls[-1].returned[0].shape == result
    other = {name: 128 for name in model.content.sizes if name != "batch"}
    assert trace_of(model, INFERENCE, batch=7, **other).calls[-1].returned[0].shape[::3] == (7, *[64] * (len(dims) > 3))


@pytest.mark.parametrize(
    ("dims", "options", "problem"),
    [
        (["batch", 3, "height", "width"], "", "leaves height, width open; add --size height=N --size width=N (N: a nu"),
        (["batch", 3, None, None], "--size x_2=64", "leaves x_3 open; add --size x_3=N"),
        ([-1, 3, 64, 64], "", "leaves x_0 open; add --size x_0=N (N: a number, or batch)"),
        (["batch", 3, 64, 64], "--size height=64", "--size height: the graph has no such dimension; it leaves batch"),
        ([1, 3, 64, 64], "--size height=64", "--size height: the graph has no such dimension; it leaves none open"),
        ([1, 3, 64, 64], "--batch 4", "the graph states its batch, 1; export it with an open one"),
    ],
)
def test_an_open_dimension_without_a_size_is_refused(
    dims: list[int | str | None], options: str, problem: str, command: RunGpusim, tmp_path: Path
) -> None:
    images(tmp_path / "graph.onnx", dims)
    line = refused(command("capture", "graph.onnx", "-o", "graph.yaml", *options.split()))
    assert line.startswith("gpusim: graph.onnx: ")
    assert problem in line
    assert not (tmp_path / "graph.yaml").exists()


@pytest.mark.parametrize(("dtype", "precision"), [("FLOAT", "fp32"), ("FLOAT16", "fp16"), ("BFLOAT16", "bf16")])
def test_the_type_of_the_weights_is_the_precision_of_the_model(
    dtype: str, precision: str, command: RunGpusim, tmp_path: Path
) -> None:
    images(tmp_path / "graph.onnx", ["N", 3, 8, 8], dtype=dtype)
    assert command("capture", "graph.onnx", "-o", "graph.yaml", "--mode", "inference").returncode == 0
    assert load_captured(tmp_path / "graph.yaml").content.precision == precision


def test_a_graph_may_be_run_in_another_precision(command: RunGpusim, tmp_path: Path) -> None:
    """Weights, inputs, constants and casts to the type of the weights follow."""
    nodes = [
        MAKE.make_node("MatMul", ["x", "w"], ["y"]),
        MAKE.make_node("Cast", ["mask"], ["m"], to=FLOAT),
        MAKE.make_node("Mul", ["y", "m"], ["z"]),
    ]
    inputs = [given("x", "N", 8), given("mask", "N", 16, dtype=INT64)]
    save(tmp_path / "graph.onnx", nodes, inputs, [zeros("w", 8, 16)])
    assert command("capture", "graph.onnx", "-o", "graph.yaml", "--precision", "fp16").returncode == 0
    calls = trace_of(load_captured(tmp_path / "graph.yaml"), Policy("inference", "fp16")).calls
    assert {call.returned[0].dtype_name for call in calls} == {"float16"}


# Graphs -------------------------------------------------------------------------------------------


def test_sizes_are_computed_on_the_host_and_biases_join_their_products(command: RunGpusim, tmp_path: Path) -> None:
    """``Reshape`` to a shape that the graph computes from its input, and a product with a bias."""
    nodes = [
        MAKE.make_node("Shape", ["x"], ["shape"]),
        MAKE.make_node("Gather", ["shape", "zero"], ["count"]),
        MAKE.make_node("Unsqueeze", ["count", "axes"], ["rows"]),
        MAKE.make_node("Concat", ["rows", "left"], ["target"], axis=0),
        MAKE.make_node("Reshape", ["x", "target"], ["flat"]),
        MAKE.make_node("MatMul", ["flat", "weight"], ["product"], name="/scores/MatMul"),
        MAKE.make_node("Add", ["bias", "product"], ["biased"]),
        MAKE.make_node("Relu", ["biased"], ["y"]),
    ]
    weights = [
        zeros("zero", dtype=INT64),
        zeros("axes", 1, dtype=INT64),
        MAKE.make_tensor("left", INT64, [1], [-1]),
        zeros("weight", 12, 5),
        zeros("bias", 5),
    ]
    save(tmp_path / "graph.onnx", nodes, [given("x", "N", 3, 4)], weights)
    model = captured(command, tmp_path, "--batch", "6")
    calls = trace_of(model, INFERENCE).calls
    assert [(call.base, call.layer, call.returned[0].shape) for call in calls] == [
        ("addmm", "scores.MatMul", (6, 5)),
        ("relu", calls[1].layer, (6, 5)),
    ]
    assert model.graph().parameters == 65
    assert set(trace_of(model).gradients) == {"weight", "bias"}


def test_cells_are_one_call_and_weights_stored_once_are_apart(command: RunGpusim, tmp_path: Path) -> None:
    """Two layers of cells with equal weights, of which an exporter stores one."""
    nodes = [
        MAKE.make_node("Identity", ["w"], ["w2"]),
        MAKE.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], name="first", hidden_size=8),
        MAKE.make_node("Squeeze", ["y", "one"], ["seen"]),
        MAKE.make_node("LSTM", ["seen", "w2", "r", "b"], ["y2", "h2", "c2"], name="second", hidden_size=8),
        MAKE.make_node("Squeeze", ["h2", "zero"], ["state"]),
        MAKE.make_node("HardSwish", ["state"], ["active"]),
        MAKE.make_node("Gemm", ["active", "v"], ["z"], name="scores"),
    ]
    weights = [
        MAKE.make_tensor("zero", INT64, [1], [0]),
        MAKE.make_tensor("one", INT64, [1], [1]),
        zeros("w", 1, 32, 8),
        zeros("r", 1, 32, 8),
        zeros("b", 1, 64),
        zeros("v", 8, 5),
    ]
    save(tmp_path / "graph.onnx", nodes, [given("x", 7, "N", 8)], weights)
    model = captured(command, tmp_path)
    assert model.graph().parameters == 2 * 32 * 8 + 32 * 8 + 64 + 40
    assert model.graph({"batch": 3}).flops == 2 * (2 * 7 * 3 * 2 * 32 * 8 + 3 * 40)
    assert names(trace_of(model, INFERENCE))["_cudnn_rnn"] == 2


def test_attention_of_the_standard_and_of_the_runtime_is_one_call(command: RunGpusim, tmp_path: Path) -> None:
    nodes = [
        MAKE.make_node("Attention", ["x", "w", "b"], ["y"], domain="com.microsoft", num_heads=4),
        MAKE.make_node("SkipLayerNormalization", ["y", "x", "g", "g"], ["n"], domain="com.microsoft"),
        MAKE.make_node("FusedMatMul", ["n", "n"], ["s"], domain="com.microsoft", transB=1, alpha=0.5),
        MAKE.make_node("MatMul", ["s", "n"], ["a"]),
        MAKE.make_node("Attention", ["a", "a", "a"], ["z"], q_num_heads=4, kv_num_heads=4, is_causal=1),
        MAKE.make_node("BiasGelu", ["z", "g"], ["o"], domain="com.microsoft"),
    ]
    weights = [zeros("w", 32, 96), zeros("b", 96), zeros("g", 32)]
    save(tmp_path / "graph.onnx", nodes, [given("x", "N", "length", 32)], weights, opset=23)
    model = captured(command, tmp_path, "--size", "length=16")
    calls = trace_of(model, INFERENCE, length=64).calls
    attended = [call for call in calls if call.base == "attention"]
    assert [call.operand(0).shape for call in attended] == [(8, 4, 64, 8)] * 2
    assert [call.arguments["causal"] for call in attended] == [False, True]


def test_a_quantised_graph_quantises_in_kernels_of_its_own(command: RunGpusim, tmp_path: Path) -> None:
    nodes = [
        MAKE.make_node("QuantizeLinear", ["x", "s", "p"], ["q"]),
        MAKE.make_node("DequantizeLinear", ["q", "s", "p"], ["d"]),
        MAKE.make_node("DequantizeLinear", ["w", "t", "z"], ["e"], axis=0),
        MAKE.make_node("Conv", ["d", "e"], ["y"]),
    ]
    int8 = onnx.TensorProto.INT8
    weights = [
        MAKE.make_tensor("s", FLOAT, [], [0.1]),
        zeros("p", dtype=int8),
        zeros("w", 64, 64, 3, 3, dtype=int8),
        MAKE.make_tensor("t", FLOAT, [64], [0.1] * 64),
        zeros("z", 64, dtype=int8),
    ]
    save(tmp_path / "graph.onnx", nodes, [given("x", "N", 64, 8, 8)], weights)
    model = captured(command, tmp_path, "--mode", "inference")
    assert names(trace_of(model, INFERENCE)) == Counter(quantize=1, dequantize=2, convolution=1)


def test_weights_in_another_file_need_not_be_there(command: RunGpusim, tmp_path: Path) -> None:
    node = MAKE.make_node("Gemm", ["x", "w"], ["y"])
    weight = MAKE.make_tensor("w", FLOAT, [64, 128], bytes(4 * 64 * 128), raw=True)
    save(tmp_path / "graph.onnx", [node], [given("x", "N", 64)], [weight])
    model = onnx.load(str(tmp_path / "graph.onnx"))
    onnx.save(model, str(tmp_path / "graph.onnx"), save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "weights").unlink()
    assert captured(command, tmp_path).graph().parameters == 64 * 128


def test_branches_and_loops_of_known_length_are_followed(command: RunGpusim, tmp_path: Path) -> None:
    """A loop of as many iterations as the input has channels, and a branch by that number."""
    body = MAKE.make_graph(
        [MAKE.make_node("Tanh", ["inner"], ["next"]), MAKE.make_node("Identity", ["goes"], ["on"])],
        "body",
        [given("at", dtype=INT64), given("goes", dtype=onnx.TensorProto.BOOL), given("inner", "N", 3)],
        [given("on", dtype=onnx.TensorProto.BOOL), given("next", "N", 3)],
    )
    branches = [
        MAKE.make_graph([MAKE.make_node(kind, ["looped"], [f"{kind}_"])], kind, [], [given(f"{kind}_", "N", 3)])
        for kind in ("Exp", "Abs")
    ]
    nodes = [
        MAKE.make_node("Shape", ["x"], ["count"], start=1, end=2),
        MAKE.make_node("Squeeze", ["count"], ["times"]),
        MAKE.make_node("Loop", ["times", "", "x"], ["looped"], body=body),
        MAKE.make_node("Greater", ["times", "two"], ["more"]),
        MAKE.make_node("If", ["more"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    save(tmp_path / "graph.onnx", nodes, [given("x", "N", 3)], [MAKE.make_tensor("two", INT64, [], [2])])
    model = captured(command, tmp_path, "--mode", "inference")
    assert [call.base for call in trace_of(model, INFERENCE).calls] == ["tanh", "tanh", "tanh", "exp"]


def test_functions_of_a_model_are_taken_apart(command: RunGpusim, tmp_path: Path) -> None:
    twice = MAKE.make_function(
        "own", "Twice", ["a"], ["c"],
        [MAKE.make_node("Relu", ["a"], ["b"]), MAKE.make_node("Exp", ["b"], ["c"])],
        [MAKE.make_opsetid("", 17)],
    )  # fmt: skip
    node = MAKE.make_node("Twice", ["x"], ["y"], domain="own")
    graph = MAKE.make_graph([node], "graph", [given("x", "N", 4)], [given("y", "N", 4)])
    domains = [MAKE.make_opsetid("", 17), MAKE.make_opsetid("own", 1)]
    onnx.save(MAKE.make_model(graph, opset_imports=domains, functions=[twice]), str(tmp_path / "graph.onnx"))
    model = captured(command, tmp_path, "--mode", "inference")
    assert [call.base for call in trace_of(model, INFERENCE).calls] == ["relu", "exp"]


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (("Unheard", "own"), "node last: operator own.Unheard (opset 1) is not supported; export it with other"),
        (("NonZero", ""), "node last: NonZero depends on values of x, which has none here; make it a constant"),
    ],
)
def test_a_node_that_cannot_be_run_is_named(
    node: tuple[str, str], problem: str, command: RunGpusim, tmp_path: Path
) -> None:
    made = MAKE.make_node(node[0], ["x"], ["y"], name="last", domain=node[1])
    save(tmp_path / "graph.onnx", [made], [given("x", "N", 4)])
    line = refused(command("capture", "graph.onnx", "-o", "graph.yaml", "--mode", "inference"))
    assert f"graph.onnx: {problem}" in line
    assert not (tmp_path / "graph.yaml").exists()


@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_a_file_that_is_no_graph_is_refused(command: RunGpusim, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "graph.onnx").write_bytes(content)
    assert "graph.onnx: " in (problem := refused(command("capture", "graph.onnx", "-o", "graph.yaml")))
    assert "export it again" in problem


def test_a_file_that_is_not_there_is_refused(command: RunGpusim) -> None:
    assert "none.onnx: cannot be read: " in refused(command("capture", "none.onnx", "-o", "graph.yaml"))


# Operators ----------------------------------------------------------------------------------------


_LEFT_OUT = [
    "string",
    "strn",
    "regex",
    "image_decoder",
    "tfidf",
    "optional",
    "sequence_map",
    "if_seq",
    "if_opt",
    "loop16",
    "unique",
    "compress",
    "nonzero",
    "nonmax",
    "linear_attention",
    "causal_conv",
    "cumprod",
    "center_crop",
    "dft",
    "stft",
    "bitcast",
    "window",
    "melweight",
    "qlinear",
    "integer",
    "maxunpool",
    "tensorscatter",
    "swiglu",
    "scan",
    "blocked",
    "dilations",
    "empty_set",
    "averagepool_3d",
    "col2im_5d",
    "range_",
    "adagrad",
    "adam",
    "momentum",
    "training_dropout",
    "label_encoder",
    "array_feature",
    "tree_ensemble",
    "binarizer",
    "flexattention",
    "float8",
    "int4",
    "uint4",
    "int2",
    "uint2",
    "e8m0",
]
"""Cases of strings, results that depend on values, and operators that exporters of networks do not write."""


def _cases() -> Iterator[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of infinities
        cases = collect_testcases(None)
    for case in cases:
        domains = {node.domain for node in case.model.graph.node}
        if case.data_sets and domains <= {"", "ai.onnx"} and not any(one in case.name for one in _LEFT_OUT):
            yield case


def test_results_of_nodes_have_the_shapes_and_types_of_the_standards_own_tests() -> None:
    np = pytest.importorskip("numpy")
    from gpusim.capture.attention import OF_ATTENTION, Replaced
    from gpusim.capture.fake_cuda import FakeCuda, silent
    from gpusim.capture.onnx_module import OnnxModule, dtype_of
    from gpusim.capture.onnx_operators import OPERATORS
    from gpusim.capture.recurrent import OF_CUDA

    type_of: Callable[[Any], Any] = onnx.helper.np_dtype_to_tensor_dtype
    count, wrong = 0, []
    for case in _cases():
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        inputs, results = case.data_sets[0]
        if not all(isinstance(one, np.ndarray | np.generic) for one in inputs):
            continue
        operators = {node.op_type for node in model.graph.node}
        taken = []
        for at, (info, one) in enumerate(zip(model.graph.input, inputs, strict=False)):
            array = np.asarray(one)
            sizes = array.dtype == np.int64 and ((array.ndim <= 1 and at > 0) or bool(operators & _OF_SIZES))
            if (
                sizes
                or (array.size <= 1 and at > 0)
                or (array.size == 1 and array.dtype == bool)
                or (at and operators & _HOST)
            ):
                model.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
            else:
                taken.append(array)
        count += 1
        try:
            module, cuda = OnnxModule(model, Path("model.onnx"), OPERATORS).eval(), FakeCuda()
            cuda.move(module)
            tensors = [
                cuda.tensor(torch.empty(one.shape, dtype=dtype_of(type_of(one.dtype)), device="meta")) for one in taken
            ]
            with silent(), cuda.mode, Replaced({**OF_CUDA, **OF_ATTENTION}), torch.no_grad():
                made = module(*tensors)
        except Exception as error:  # noqa: BLE001 -- all are counted
            wrong.append(f"{case.name}: {error}")
            continue
        for expected, found in zip(results, made if isinstance(made, tuple) else (made,), strict=False):
            if isinstance(found, torch.Tensor) and expected is not None:
                array = np.asarray(expected)
                if (tuple(found.shape), found.dtype) != (array.shape, dtype_of(type_of(array.dtype))):
                    wrong.append(f"{case.name}: {tuple(found.shape)}, {found.dtype}")
    assert count > 1000
    assert wrong == []


_OF_SIZES = frozenset({"ConstantOfShape", "Range", "Expand", "Loop"})
_HOST = frozenset({"Resize", "Upsample", "OneHot"})

"""The PyTorch device without a GPU: its calls are recorded, and its errors leave no state behind.

Skipped without PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gpusim.files.checked_document import shipped_folder
from gpusim.measure.device import NoDeviceError, ProfiledKernel, UnavailableError
from gpusim.numbers.formats import Dtype
from gpusim.workloads.gemm import Gemm

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

SMS = 132
KERNEL = ProfiledKernel("gemm", 5.0, (8, 1, 1), 128, 96, 1024)


class Launches:
    """A compiled module that keeps what its kernels are launched with."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int, list[int]]] = []

    def bind(self, name: str, grid: int, _: int, arguments: Sequence[Any], **_ignored: Any) -> Callable[[], None]:
        values = [argument if isinstance(argument, int) else int(argument.value) for argument in arguments]
        return lambda: self.made.append((name, grid, values))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Launches]:
    """The microbenchmarks on the CPU, their launches recorded."""
    from gpusim.measure import microbenchmarks

    def timed(launch: Callable[[], None], *_: Any) -> tuple[list[float], list[int]]:
        launch()
        return [1000.0] * 3, [4096] * 3

    made = Launches()
    bench = object.__new__(microbenchmarks.Microbenchmarks)
    bench._device, bench._capability, bench._multiprocessors = "cpu", (9, 0), SMS
    monkeypatch.setattr(bench, "_module", lambda _: made)
    monkeypatch.setattr(bench, "_timed", timed)
    monkeypatch.setattr(microbenchmarks, "_stream", lambda: 1)
    return bench, made


@pytest.mark.parametrize(("variant", "kib"), [("read", 4096), ("write", 24576), ("copy", 32768)])
def test_a_stream_moves_all_of_its_footprint_equally_often(launches: Any, variant: str, kib: int) -> None:
    bench, made = launches
    result = bench._stream(variant, 1024 * kib)
    ((_, blocks, (_, _, chunks, rounds, _)),) = made.made
    arrays = 2 if variant == "copy" else 1
    assert arrays * chunks * 4 * 16 * 512 == 1024 * kib
    assert blocks == min(4 * SMS, chunks)
    assert result.values[0] == pytest.approx(1024 * kib * rounds / 1000.0 / 1e3)
    visits = [0] * chunks
    turns = [0] * blocks
    for turn in range(chunks * rounds):  # of the CTA turn % blocks, which goes on by that many chunks each time
        visits[turn % chunks] += 1
        turns[turn % blocks] += 1
    assert set(visits) == {rounds}
    assert max(turns) - min(turns) <= 1


def test_all_ctas_of_a_stream_run_at_once() -> None:
    from gpusim.measure.microbenchmarks import STREAM_THREADS

    source = (shipped_folder("measure") / "kernels" / "bandwidth.cu").read_text(encoding="utf-8")
    assert f"__launch_bounds__({STREAM_THREADS}, 4)" in source


def test_a_stream_over_less_than_a_chunk_is_refused(launches: Any) -> None:
    with pytest.raises(UnavailableError, match="a footprint of 64 KiB at least"):
        launches[0]._stream("copy", 1024 * 32)


@pytest.mark.parametrize("kib", [4, 64, 224])
def test_a_chain_in_l1_is_gone_through_before_it_counts_in_each_kernel(launches: Any, kib: int) -> None:
    bench, made = launches
    result = bench._pointer_chase("l1", 1024 * kib)
    ((name, _, (_, warming, steps, _)),) = made.made
    assert name == "chase_l1"
    assert warming == 8 * kib
    assert result.values[0] == 4096 / steps


def test_a_chain_in_l2_is_gone_through_once(launches: Any) -> None:
    bench, made = launches
    bench._pointer_chase("l2", 1024 * 1024 * 4)
    (_, _, (_, warming, _, _)), (_, _, (_, none, steps, _)) = made.made
    assert (warming, none, steps) == (32768, 0, 16384)


class Graph:
    """A graph that cannot be captured."""

    def __init__(self) -> None:
        self.ended = 0

    def capture_begin(self, **_: Any) -> None: ...

    def capture_end(self) -> None:
        self.ended += 1
        raise RuntimeError("operation failed due to a previous error during capture")


def test_a_capture_that_fails_is_ended_and_reports_its_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusim.measure.torch_capture import captured

    given_up: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *one: given_up.append(one), raising=False)
    graph = Graph()
    with pytest.raises(ValueError, match="no such product"), captured(graph):
        raise ValueError("no such product")
    assert graph.ended == 1
    with pytest.raises(RuntimeError, match="a previous error"), captured(graph):
        pass
    assert given_up == [(0, (0, 7))] * 2


def test_a_profiler_that_names_nothing_is_not_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusim.measure.torch_device import PROFILE_LEADS_MS, TorchOperator
    from gpusim.measure.torch_operators import OperatorCall

    def operator(leads_ms: list[int], seen_from_ms: int) -> Any:
        def profiled(lead_ms: int) -> tuple[ProfiledKernel, ...]:
            asked.append(lead_ms)
            return (KERNEL,) if lead_ms >= seen_from_ms else ()

        one = TorchOperator(Gemm(8, 8, 8, Dtype.BF16, op="linear"), OperatorCall(tuple, tuple), [], print, leads_ms)
        monkeypatch.setattr(one, "_profiled", profiled)
        return one

    asked: list[int] = []
    leads_ms = list(PROFILE_LEADS_MS)
    assert operator(leads_ms, 16).kernels() == operator(leads_ms, 16).kernels() == (KERNEL,)
    assert asked == [1, 16, 16]
    assert operator(leads_ms, 1000).kernels() == operator(leads_ms, 1000).kernels() == ()
    assert asked[3:] == [16, 128, 128]  # each of two operators up to the longest
    assert [operator(leads_ms, 1000).kernels() for _ in range(9)] == [()] * 9
    assert asked[6:] == [128, 128]


def test_a_gpu_that_cannot_be_used_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusim.measure.torch_device import TorchDevice

    def busy(_: Any) -> None:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nCompile with ...")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", busy)
    with pytest.raises(NoDeviceError, match=r"cannot use the GPU: CUDA error: all .* unavailable; free it"):
        TorchDevice()


def test_a_2_4_product_is_searched_for_and_falls_back_to_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusim.measure.torch_operators import call_of

    choices: list[tuple[int, ...]] = []

    def product(a: Any, b: Any, _bias: Any, _alpha: Any, kind: Any, transposed: bool, *choice: int) -> Any:
        choices.append(choice)
        assert transposed
        assert not b.is_contiguous()
        return torch.zeros((b.shape[1], a.shape[0]), dtype=kind)

    monkeypatch.setattr(torch.backends.cusparselt, "is_available", lambda: True)
    monkeypatch.setattr(torch, "_cslt_compress", lambda dense: dense[:, : dense.shape[1] * 5 // 8])
    monkeypatch.setattr(torch, "_cslt_sparse_mm", product)
    gemm = Gemm(64, 32, 128, Dtype.INT8, sparsity="2:4", op="gemm")
    for found, algorithm in [((3, 1, -1, 9), "3"), ((3, 4, 1, 9), "3/4/1"), (RuntimeError("none"), "0")]:

        def search(*_: Any, found: Any = found) -> Any:
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(torch._C._cusparselt, "mm_search", search, raising=False)
        call = call_of(gemm, "cpu")
        assert call.algorithm == f"cusparselt:{algorithm}"
        assert call.run(*call.operands()).shape == (32, 64)
        assert choices[-1] == tuple(map(int, algorithm.split("/")))

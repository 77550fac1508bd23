"""Device memory of recorded calls."""

from __future__ import annotations

from gpusim.models.aten.call import Call, TensorView, Trace
from gpusim.models.aten.memory import context_bytes, used_bytes
from gpusim.units import GIB, MIB

ROOM = 1e12


def tensor(storage: int, size_bytes: int) -> TensorView:
    return TensorView(storage, "float32", (size_bytes // 4,), (1,))


def trace(*steps: tuple[tuple[int, ...], int, int, tuple[int, ...]]) -> Trace:
    """Calls that read storages, make one of a size in bytes, and after which others are freed."""
    found = Trace()
    for reads, made, size_bytes, freed in steps:
        operands = tuple(tensor(one, found.storage_bytes.get(one, 4)) for one in reads)
        found.calls.append(Call("relu.default", "", "forward", operands, (tensor(made, size_bytes),)))
        found.storage_bytes.setdefault(made, size_bytes)
        found.freed.append(freed)
    return found


def peak_bytes(of: Trace, resident_bytes: float, capacity_bytes: float) -> float:
    """Most bytes of all calls of all steps."""
    return max(size for step in used_bytes(of, resident_bytes, capacity_bytes) for size in step)


def test_small_tensors_share_segments_of_two_mebibytes() -> None:
    assert peak_bytes(trace(((), 1, 1000, ()), ((1,), 2, 1000, ())), 0, ROOM) == 2 * MIB


def test_tensors_of_less_than_ten_mebibytes_share_segments_of_twenty() -> None:
    assert peak_bytes(trace(((), 1, 8 * MIB, ()), ((1,), 2, 8 * MIB, ())), 0, ROOM) == 20 * MIB


def test_large_tensors_have_segments_of_their_own_and_freed_ones_are_taken_again() -> None:
    chain = trace(((), 1, 64 * MIB, ()), ((1,), 2, 64 * MIB, (1,)), ((2,), 3, 64 * MIB, (2,)))
    assert peak_bytes(chain, 0, ROOM) == 128 * MIB


def test_a_tensor_that_is_written_in_place_takes_nothing() -> None:
    in_place = trace(((), 1, 64 * MIB, ()), ((1,), 1, 64 * MIB, ()))
    assert peak_bytes(in_place, 0, ROOM) == 64 * MIB


def test_a_free_segment_that_is_too_small_stays_and_does_not_count_as_used() -> None:
    growing = trace(((), 1, 64 * MIB, ()), ((1,), 2, 32 * MIB, (1,)), ((2,), 3, 96 * MIB, ()))
    assert peak_bytes(growing, 0, ROOM) == 128 * MIB


def test_a_segment_with_a_small_block_in_use_counts_whole() -> None:
    split = trace(((), 1, 64 * MIB, ()), ((1,), 2, 4, (1,)), ((2,), 3, 12 * MIB, ()), ((3,), 4, 60 * MIB, ()))
    # The third tensor takes a part of the segment of the first, and the fourth does not fit beside it.
    assert peak_bytes(split, 0, ROOM) == (64 + 60 + 2) * MIB


def test_what_is_resident_and_inputs_that_no_call_makes_count_once() -> None:
    reads_weight = trace(((7,), 1, 64 * MIB, ()))
    assert peak_bytes(reads_weight, 100 * MIB, ROOM) == 164 * MIB


def test_the_context_holds_all_kernels_before_cuda_loads_them_lazily() -> None:
    assert context_bytes("1.12.1") == 1.45 * GIB > context_bytes("1.13") == context_bytes("2.4")


def test_each_call_has_the_bytes_that_are_used_while_it_runs() -> None:
    chain = trace(((), 1, 64 * MIB, ()), ((1,), 2, 64 * MIB, (1,)), ((2,), 3, 32 * MIB, ()))
    _, second = used_bytes(chain, 10 * MIB, ROOM)
    assert second == [74 * MIB, 138 * MIB, 138 * MIB]  # the third takes a part of the first one's segment

"""Collectives within a node: what each GPU sends, the library's choice, times by hand, laws, published measurements."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPOSITORY, RunGpusim, refused
from hypothesis import given
from hypothesis import strategies as st

from gpusim.collectives.choice import plans
from gpusim.collectives.route import route_of
from gpusim.collectives.timing import CollectiveTime, time_collective
from gpusim.errors import InputError
from gpusim.evidence.collective_runs import read_collectives
from gpusim.evidence.fields import MeasuredError
from gpusim.files.yamlfile import SpecError
from gpusim.report.collective_validation_tables import collective_validation_tables
from gpusim.specs.nodes import NodeSpec, list_nodes, load_node
from gpusim.studies.validation.collectives import COLLECTIVES, validate_collectives
from gpusim.studies.validation.kinds import kind_of
from gpusim.workloads.collective import COLLECTIVE_OPS, Collective

COMM = REPOSITORY.parent / "shared" / "comm"
NODES = {one.record.name: load_node(one.record.name) for one in list_nodes()}
MIB = 2**20


def timed(node: NodeSpec, op: str, size_bytes: float, gpus: int) -> CollectiveTime:
    collective = Collective(op, size_bytes, gpus)  # type: ignore[arg-type]
    return time_collective(collective, node.node.record, node.gpu, node.nccl.record)


def group_sizes(node: NodeSpec) -> list[int]:
    record = node.node.record
    return [2, record.gpus] if record.switched or not record.ring_links else [int(size) for size in record.ring_links]


# --- what is sent -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "sent"),
    [("all_reduce", 14 / 8), ("all_gather", 7 / 8), ("reduce_scatter", 7 / 8), ("all_to_all", 7 / 8), ("broadcast", 1)],
)
def test_each_of_eight_gpus_sends_the_factor_of_nccl_tests(op: str, sent: float) -> None:
    assert Collective(op, 800.0, 8).sent_bytes == pytest.approx(800 * sent)  # type: ignore[arg-type]


def test_a_collective_of_one_gpu_is_refused() -> None:
    with pytest.raises(ValueError, match="needs two GPUs"):
        Collective("all_reduce", 8.0, 1)


# --- by hand ----------------------------------------------------------------------------------------


def test_a_short_all_reduce_takes_the_base_latency_and_the_hops_of_ll() -> None:
    # 6.6 us, 14 hops of 0.6 us, and 14 KiB at 87.7 GB/s
    found = timed(NODES["DGX-H100"], "all_reduce", 8192, 8)
    assert (found.plan.algorithm, found.plan.protocol) == ("ring", "LL")
    assert found.time_us == pytest.approx(6.6 + 14 * 0.6 + 8192 * 14 / 8 / 87.7e3)


def test_a_long_all_reduce_of_two_sends_twice_and_copies_once() -> None:
    # 8.4 us and 3 hops of 3.4 us; 2**28 B at 18 x 25 x 0.824 GB/s; half of them at 24 x 23 B x 1.98 GHz
    found = timed(NODES["DGX-H100"], "all_reduce", 2**28, 2)
    assert found.plan.protocol == "Simple"
    assert found.time_us == pytest.approx(8.4 + 3 * 3.4 + 2**28 / 370.8e3 + 2**27 / (24 * 23 * 1.98e3))


def test_a_message_takes_the_base_latency_and_a_flag() -> None:
    # 16 KiB go with LL, at half the links; more with Simple
    short, long = (timed(NODES["DGX-H100"], "send_recv", size, 2) for size in (2**14, 2**20))
    assert (short.plan.protocol, long.plan.protocol) == ("LL", "Simple")
    assert short.time_us == pytest.approx(6.6 + 0.6 + 2**14 / 87.7e3)
    assert long.time_us == pytest.approx(8.4 + 0.6 + 2**20 / 370.8e3)


def test_gpus_apart_pass_data_on_through_host_memory() -> None:
    # two sends in all at 5.07 GB/s, one part of half the buffer read at 8.46: 3.9 GB/s of the buffer, as published
    found = timed(NODES["V100-PCIe-host-memory"], "all_reduce", 2**28, 2)
    assert found.bus_gb_per_s == pytest.approx(3.9, rel=0.01)


def test_pairs_of_bridged_gpus_meet_over_pcie() -> None:
    pairs = NODES["A100-PCIe-pairs"]
    assert timed(pairs, "all_reduce", MIB, 2).route.link == "nvlink"
    assert timed(pairs, "all_reduce", MIB, 4).route.link == "pcie"


def test_the_switch_sums_for_eight_gpus_where_the_library_expects_less_time() -> None:
    assert timed(NODES["DGX-H100"], "all_reduce", 2**28, 8).plan.algorithm == "multicast"
    assert (
        timed(NODES["DGX-H100"], "all_reduce", 2**28, 4).plan.algorithm == "ring"
    )  # four channels of 60 GB/s are fewer
    assert timed(NODES["DGX-A100"], "all_reduce", 2**28, 8).plan.algorithm == "ring"


def test_the_library_expects_what_its_own_source_computes() -> None:
    # A100, eight GPUs, 64 MiB, ring with Simple: 8.4 + 14 x 3.4 us, 240 GB/s x 8 / 14
    node = NODES["DGX-A100"]
    route = route_of(node.node.record, node.gpu, node.nccl.record, 8)
    found = plans(Collective("all_reduce", 64 * MIB, 8), route, node.nccl.record)
    expected = {(one.algorithm, one.protocol): one.expected_us for one in found}
    assert expected["ring", "Simple"] == pytest.approx(8.4 + 14 * 3.4 + 64 * MIB / (240e3 * 8 / 14))
    assert found[0].expected_us == min(expected.values())


def test_the_library_expects_of_two_nodes_what_its_own_source_computes() -> None:
    # A100, two nodes of eight, 64 MiB, ring with Simple: 1.4 times 8.4 + 28 x 3.4 + 2 x 14 us, 240 GB/s x 16 / 30;
    # tree with LL: 6.8 + 2 x (7 x 0.6 + 5.0) us
    node = NODES["DGX-A100"]
    route = route_of(node.node.record, node.gpu, node.nccl.record, 16)
    found = plans(Collective("all_reduce", 64 * MIB, 16), route, node.nccl.record)
    expected = {(one.algorithm, one.protocol): one.expected_us for one in found}
    latency = 1.4 * (8.4 + 28 * 3.4 + 2 * 14)
    assert expected["ring", "Simple"] == pytest.approx(latency + 64 * MIB / (240e3 * 16 / 30))
    short = plans(Collective("all_reduce", 64, 16), route, node.nccl.record)[0]
    assert (short.algorithm, short.protocol) == ("tree", "LL")
    assert short.expected_us == pytest.approx(6.8 + 2 * (7 * 0.6 + 5.0), abs=0.1)


def test_the_network_bounds_a_ring_through_several_nodes() -> None:
    node = NODES["DGX-1V"]  # six links of 25 GB/s in a node, 50 GB/s between nodes
    within, between = (timed(node, "all_reduce", 2**30, gpus) for gpus in (8, 16))
    assert between.bound_us == pytest.approx(2**30 * 30 / 16 / 50e3)
    assert between.bound_us < between.time_us < 1.1 * between.bound_us
    assert within.bus_gb_per_s > 2 * between.bus_gb_per_s
    assert timed(NODES["DGX-H100"], "all_reduce", 2**30, 16).plan.algorithm == "ring"  # switches sum within a node


# --- laws -------------------------------------------------------------------------------------------


@given(
    name=st.sampled_from(sorted(NODES)),
    op=st.sampled_from(COLLECTIVE_OPS),
    size=st.integers(min_value=1, max_value=2**32),
    largest=st.booleans(),
)
def test_no_collective_is_faster_than_the_line_rate_of_its_links(name: str, op: str, size: int, largest: bool) -> None:
    node = NODES[name]
    found = timed(node, op, size, max(group_sizes(node)) if largest else 2)
    assert found.time_us >= found.bound_us > 0


@given(name=st.sampled_from(sorted(NODES)), size=st.integers(min_value=32 * MIB, max_value=2**32))
def test_more_of_the_longest_buffers_take_longer(name: str, size: int) -> None:
    node = NODES[name]
    assert timed(node, "all_gather", 2 * size, 2).time_us > timed(node, "all_gather", size, 2).time_us


# --- wrong input ------------------------------------------------------------------------------------


def test_more_gpus_than_a_node_has_are_refused() -> None:
    with pytest.raises(InputError, match=r"DGX-A100: has 8 GPUs, 12 asked for; ask for those of whole nodes"):
        timed(NODES["DGX-A100"], "all_reduce", MIB, 12)
    with pytest.raises(InputError, match=r"V100-PCIe-host-memory: has 4 GPUs, 8 asked for; ask for fewer"):
        timed(load_node("V100-PCIE-16GB"), "all_reduce", MIB, 8)


def test_rings_that_a_mesh_does_not_state_are_refused() -> None:
    with pytest.raises(InputError, match=r"DGX-1V: states rings of 2, 3, 4, 8 GPUs, not of 5; add ring_links\.5"):
        timed(NODES["DGX-1V"], "all_reduce", MIB, 5)


def test_an_unknown_node_is_refused_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"DGX-A10: unknown node; did you mean DGX-A100\?"):
        load_node("DGX-A10")


def test_a_node_is_found_by_the_board_that_only_it_holds() -> None:
    assert load_node("H100-SXM-80GB").node.record.name == "DGX-H100"


def test_a_table_of_collectives_with_an_unknown_operation_is_refused_at_its_line(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("op,gpu,num_gpus,gpus_per_node,size_elements_or_bytes,time_us\nall_sum,a100_dgx,8,8,1024,20\n")
    with pytest.raises(MeasuredError, match=r"runs\.csv:2: op: unknown 'all_sum'"):
        read_collectives(table)


# --- tables -----------------------------------------------------------------------------------------


def test_rows_of_several_nodes_are_counted_as_skipped_with_their_reason(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    table.write_text(
        "op,gpu,num_nodes,num_gpus_per_node,dtype,size(kb),time(us)\n"
        "all_reduce,V100-PCIE-16GB,1,4,half,1024,385.0\n"
        "all_reduce,V100-PCIE-16GB,2,4,half,1024,5182.0\n"
        "sendrecv,V100-PCIE-16GB,1,2,half,0,10\n"
    )
    assert kind_of(table) is COLLECTIVES
    report = validate_collectives([table])
    metrics = report.as_dict()["overall"]
    assert len(report.reasons) == 1
    assert (metrics["rows"], metrics["predicted"], metrics["skipped"]) == (3, 2, 1)
    assert list(metrics["skip_reasons"]) == ["several nodes: the network between them is not stated"]
    assert collective_validation_tables(report.as_dict())[1].rows[0][0] == "1"
    assert read_collectives(table)[2].size_bytes == 512


@pytest.mark.parametrize("option", ["--pair t4 v100-sxm2", "--strata", "-o out"])
def test_options_that_nothing_reads_for_collectives_are_refused(
    command: RunGpusim, tmp_path: Path, option: str
) -> None:
    table = tmp_path / "runs.csv"
    table.write_text("op,gpu,num_gpus,gpus_per_node,size_elements_or_bytes,time_us\nall_reduce,a100_dgx,8,8,1024,20\n")
    assert "not for tables of collectives" in refused(command("validate", table, *option.split()))


@pytest.mark.skipif(not COMM.is_dir(), reason="measured collectives are not part of the project")
def test_measured_collectives_are_met_within_the_stated_errors() -> None:
    """Medians of all rows of one node: at most 15 % above 1 MiB, 30 % below. Nothing is fitted to these tables."""
    report = validate_collectives([COMM / "collectives.csv", COMM / "vidur.csv"]).as_dict()
    medians = {one["size"]: one["median_ape"] for one in report["sizes"]}
    assert medians["> 1 MiB"] <= 15
    assert medians["<= 1 MiB"] <= 30


def test_the_command_times_collectives_on_a_node() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "gpusim", "nodes", "time", "dgx-1v", "--size", "1048576"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "all_reduce" in run.stdout
    assert run.stderr == ""

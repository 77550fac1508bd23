"""Reading specs: accepted files, and one line with file, line and remedy for each mistake."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from gpusim.files import yamlfile
from gpusim.files.kept import _Process
from gpusim.files.yamlfile import SpecError, read_yaml
from gpusim.hardware.gpu import NO_LIMIT, Gpu
from gpusim.host.host import Host
from gpusim.library.library import HeuristicBias, LibraryRecord, SplitKSearch
from gpusim.numbers.formats import Dtype
from gpusim.prediction.options import Options
from gpusim.prediction.predict import predict
from gpusim.record import Record
from gpusim.specs import UnknownGpuError, implausibilities, list_archs, load_spec, registry, with_overrides
from gpusim.specs.document import json_schema
from gpusim.specs.sourced import KINDS, Sourced
from gpusim.specs.writing import file_text
from gpusim.workloads.gemm import Gemm

Writer = Callable[..., Path]


@pytest.fixture
def board(tmp_path: Path) -> Writer:
    """Writes a board that extends the shipped ``teaching`` machine by some lines."""

    def write(text: str = "", stem: str = "mine", head: str = "name: Mine\naliases: []\nextends: teaching\n") -> Path:
        path = tmp_path / f"{stem}.yaml"
        path.write_text(head + text)
        return path

    return write


def leaf(value: object, kind: str = "assumed", source: str = "a test") -> str:
    return f'{{value: {value}, kind: {kind}, source: "{source}"}}'


def assert_fails(path: Path, line: int, rest: str, **options: object) -> None:
    """The error is one line, ``path:line: key: problem; remedy``."""
    with pytest.raises(SpecError) as raised:
        load_spec(path, **options)  # type: ignore[arg-type]
    text = raised.value.problems[0]
    assert str(raised.value).startswith(text)
    assert "\n" not in str(raised.value)
    assert re.fullmatch(re.escape(f"{path}:{line}: ") + rest, text), text


# What is read -----------------------------------------------------------------------------------


def test_a_board_overlays_its_base_leaf_by_leaf(board: Writer) -> None:
    base, mine = load_spec("teaching"), load_spec(board(f"sm:\n  count: {leaf(3)}\n"))
    assert mine.gpu.sm.count == 3
    assert mine.gpu.sm.model_copy(update={"count": 8}) == base.gpu.sm
    assert [path.name for path in mine.files] == ["mine.yaml", "teaching.yaml"]


def test_provenance_names_the_file_and_line_a_value_came_from(board: Writer) -> None:
    path = board(f"sm:\n  count: {leaf(3, 'measured', 'counted')}\n")
    origin = load_spec(path).provenance["sm.count"]
    assert (origin.value, origin.kind, origin.source, origin.file, origin.line) == (3, "measured", "counted", path, 5)
    inherited = load_spec(path).provenance["sm.warp_size"]
    assert inherited.file is not None
    assert inherited.file.name == "teaching.yaml"


def test_hash_follows_the_content_of_the_whole_chain_and_not_its_place(tmp_path: Path, board: Writer) -> None:
    first = load_spec(board()).sha256
    other = tmp_path / "elsewhere"
    other.mkdir()
    copy = other / "mine.yaml"
    copy.write_text(board().read_text())
    assert load_spec(copy).sha256 == first
    assert load_spec(board("# a comment\n")).sha256 != first


def test_a_user_folder_wins_on_equal_names(tmp_path: Path, board: Writer) -> None:
    board(f"sm:\n  count: {leaf(7)}\n", stem="anything", head="name: T4\naliases: []\nextends: teaching\n")
    assert load_spec("t4", arch_path=[tmp_path]).gpu.sm.count == 7
    assert load_spec("t4").gpu.sm.count == 40


def test_the_environment_adds_folders_after_those_of_the_caller(
    tmp_path: Path, board: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    board()
    nearer = tmp_path / "nearer"
    nearer.mkdir()
    (nearer / "mine.yaml").write_text(f"name: Mine\naliases: []\nextends: teaching\nsm:\n  count: {leaf(2)}\n")
    monkeypatch.setenv("GPUSIM_ARCH_PATH", os.pathsep.join([str(tmp_path), str(nearer)]))
    assert load_spec("mine").gpu.sm.count == 8
    assert load_spec("mine", arch_path=[nearer]).gpu.sm.count == 2


def test_a_changed_file_is_read_again(board: Writer) -> None:
    assert load_spec(board(f"sm:\n  count: {leaf(3)}\n")).gpu.sm.count == 3
    assert load_spec(board(f"sm:\n  count: {leaf(12)}\n")).gpu.sm.count == 12


def test_listing_shows_boards_and_no_bases() -> None:
    names = {entry.name for entry in list_archs()}
    assert {"T4", "A100-SXM4-80GB", "teaching"} <= names
    assert not any(name in names for name in ("volta", "turing", "nvidia"))


def test_a_file_is_parsed_once_however_many_boards_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Process, "keeps", False)  # a command of an earlier test may have wanted it
    _Process.remembered.clear()
    yamlfile._read_at.cache_clear()
    load_spec("A100-SXM4-40GB")
    parsed = yamlfile._read_at.cache_info().misses
    load_spec("A100-PCIe-40GB")
    again = yamlfile._read_at.cache_info()
    assert parsed > 0
    # one more at most, the other board's own file; what both extend has been read
    assert again.misses <= parsed + 1


@given(st.sampled_from(["V100-SXM2-16GB", "RTX-2080-Ti", "A100-PCIe-80GB"]), st.data())
def test_case_and_separators_do_not_change_which_board_is_meant(name: str, data: st.DataObject) -> None:
    separated = "".join(data.draw(st.sampled_from([" ", "_", "-", ""])) if one == "-" else one for one in name)
    spelling = "".join(data.draw(st.sampled_from([one.lower(), one.upper()])) for one in separated)
    prefix = data.draw(st.sampled_from(["", "NVIDIA ", "nvidia tesla ", "Tesla "]))
    assert load_spec(prefix + spelling).gpu.name == name


def test_lines_of_any_yaml_file_are_known(tmp_path: Path) -> None:
    path = tmp_path / "any.yaml"
    path.write_text("rows:\n  - a: 1\n    b: [2, 3]\n  - a: 4\n")
    file = read_yaml(path)
    assert file.data == {"rows": [{"a": 1, "b": [2, 3]}, {"a": 4}]}
    assert [file.line(key) for key in ("rows", "rows.0.b", "rows.0.b.1", "rows.1.a")] == [1, 3, 3, 4]
    assert file.line("rows.1.missing") == 4
    assert str(file.error("rows.1.a", "too large; shrink it")) == f"{path}:4: rows.1.a: too large; shrink it"


# What is refused --------------------------------------------------------------------------------


def test_a_merge_key_takes_over_what_the_mapping_does_not_set_itself(tmp_path: Path) -> None:
    path = tmp_path / "merged.yaml"
    path.write_text("- &first\n  a: 1\n  b: 2\n- b: 3\n  <<: *first\n", encoding="utf-8")
    file = read_yaml(path)
    assert file.data == [{"a": 1, "b": 2}, {"a": 1, "b": 3}]
    assert file.lines["1.b"] == 4
    path.write_text("- &first [1]\n- <<: *first\n", encoding="utf-8")
    with pytest.raises(SpecError, match=r"merged\.yaml:2: 1: '<<' takes a mapping"):
        read_yaml(path)


def test_malformed_yaml_names_its_line(board: Writer) -> None:
    assert_fails(board("sm: [1, 2\nl2: 3\n"), 5, r"not YAML: .*; correct it")


def test_a_key_set_twice_names_both_lines(board: Writer) -> None:
    text = f"sm:\n  count: {leaf(3)}\n  count: {leaf(4)}\n"
    assert_fails(board(text), 6, r"sm\.count: also set in line 5; remove one")


def test_an_unknown_key_is_answered_with_the_nearest(board: Writer) -> None:
    text = f"dram:\n  peak_bandwith_gb_per_s: {leaf(3.0)}\n"
    assert_fails(board(text), 5, r"dram\.peak_bandwith_gb_per_s: unknown key; did you mean peak_bandwidth_gb_per_s\?")


def test_an_unknown_top_level_key_is_answered_with_the_nearest(board: Writer) -> None:
    assert_fails(board("shared_memry: {}\n"), 4, r"shared_memry: unknown key; did you mean shared_memory\?")


def test_a_bare_number_does_not_load(board: Writer) -> None:
    assert_fails(board("sm:\n  count: 8\n"), 5, r"sm\.count: bare value 8; write \{value: .*\}")


def test_a_bare_capability_does_not_load(board: Writer) -> None:
    assert_fails(board("load_store:\n  async_copy: true\n"), 5, r"load_store\.async_copy: bare value True; write .*")


@pytest.mark.parametrize("missing", ["value", "kind", "source"])
def test_a_value_needs_all_of_value_kind_and_source(board: Writer, missing: str) -> None:
    parts = {"value": "8", "kind": "assumed", "source": "a test"}
    text = ", ".join(f"{key}: {part}" for key, part in parts.items() if key != missing)
    assert_fails(board(f"sm:\n  count: {{{text}}}\n"), 5, rf"sm\.count: has no {missing}; write .*")


def test_an_unknown_kind_names_the_known_ones(board: Writer) -> None:
    kinds = ", ".join(KINDS)
    text = f"sm:\n  count: {leaf(8, 'guessed')}\n"
    assert_fails(board(text), 5, rf"sm\.count\.kind: 'guessed' is not a kind; use one of {kinds}")


def test_an_empty_source_is_not_a_source(board: Writer) -> None:
    text = f"sm:\n  count: {leaf(8, source=' ')}\n"
    assert_fails(board(text), 5, r"sm\.count\.source: says nothing; name where the value comes from")


def test_a_misspelt_part_of_a_value_is_answered_with_the_nearest(board: Writer) -> None:
    text = "sm:\n  count: {value: 8, kind: assumed, sorce: x}\n"
    assert_fails(board(text), 5, r"sm\.count\.sorce: unknown key; did you mean source\?")


def test_the_spread_of_a_figure_is_read_beside_its_value(board: Writer) -> None:
    path = board('sm:\n  count: {value: 3, kind: measured, spread: 0.05, source: "two boards"}\n')
    spec = load_spec(path)
    assert (spec.gpu.sm.count, spec.provenance["sm.count"].spread) == (3, 0.05)
    assert load_spec("teaching").provenance["sm.count"].spread is None


@pytest.mark.parametrize(
    ("kind", "spread", "problem"),
    [
        ("measured", 0.0, r"\.spread: should be greater than 0, got 0\.0; correct it"),
        ("measured", 1.5, r"\.spread: should be less than 1, got 1\.5; correct it"),
        ("datasheet", 0.1, r": a datasheet's value has no spread; remove the key"),
    ],
)
def test_a_spread_is_a_share_of_what_somebody_found(board: Writer, kind: str, spread: float, problem: str) -> None:
    text = f'sm:\n  count: {{value: 3, kind: {kind}, spread: {spread}, source: "a test"}}\n'
    assert_fails(board(text), 5, rf"sm\.count{problem}")


def test_a_written_spread_is_read_back(board: Writer) -> None:
    leaf = Sourced(3, "measured", "two boards", 0.05)
    path = board(file_text("gpu", Path(), (), {}, {}, {"sm": {"count": leaf}}))
    origin = load_spec(path).provenance["sm.count"]
    assert (origin.value, origin.kind, origin.source, origin.spread) == (3, "measured", "two boards", 0.05)


def test_text_where_a_number_belongs_is_refused(board: Writer) -> None:
    text = f"sm:\n  count: {leaf('1_024')}\n"
    assert_fails(board(text), 5, r"sm\.count\.value: '1_024' is not a number; write one, such as 108 or 1\.5e3")


def test_plain_text_takes_no_source(board: Writer) -> None:
    text = f"dram:\n  technology: {leaf('HBM2')}\n"
    assert_fails(board(text), 5, r"dram\.technology: carries no source, being text or a shape; write it bare")


def test_a_value_outside_its_range_is_named_with_its_line(board: Writer) -> None:
    text = f"sm:\n  count: {leaf(-1)}\n"
    assert_fails(board(text), 5, r"sm\.count: should be greater than or equal to 1, got -1; correct it")


def test_a_part_must_be_a_mapping(board: Writer) -> None:
    assert_fails(board("sm: 3\n"), 4, r"sm: expected a mapping, got 3; indent its keys below it")


def test_a_missing_key_names_the_file_it_belongs_in(tmp_path: Path) -> None:
    path = tmp_path / "lonely.yaml"
    path.write_text("name: Lonely\naliases: []\n")
    assert_fails(path, 1, r"architecture: missing; add it to lonely\.yaml")


def test_a_missing_number_says_how_to_write_it_and_where(tmp_path: Path) -> None:
    whole = Path(load_spec("teaching").files[0]).read_text()
    (tmp_path / "base.yaml").write_text(re.sub(r"(?m)^  base_mhz:.*\n", "", whole.replace("name: teaching\n", "")))
    path = tmp_path / "top.yaml"
    path.write_text("name: Top\nextends: base\n")
    with pytest.raises(SpecError, match=r"clock\.base_mhz: missing; add it to top\.yaml or its base base\.yaml as "):
        load_spec(path)


def test_a_new_instruction_must_be_complete(board: Writer) -> None:
    text = "instructions:\n  hmma:\n    unit: tensor\n"
    assert_fails(board(text), 5, r"instructions\.hmma\.inputs: missing; add it to mine\.yaml or .*")


def test_extends_in_a_circle_is_shown(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b\n")
    (tmp_path / "b.yaml").write_text("name: B\nextends: a\n")
    expected = r"extends: goes in a circle: a\.yaml -> b\.yaml -> a\.yaml; remove one 'extends'"
    with pytest.raises(SpecError, match=re.escape(f"{tmp_path / 'b.yaml'}:2: ") + expected):
        load_spec(tmp_path / "a.yaml")


def test_an_unknown_base_is_answered_with_the_nearest(board: Writer) -> None:
    path = board(head="name: Mine\nextends: voltta\n")
    assert_fails(path, 2, r"extends: no spec voltta\.yaml; did you mean volta\?")


def test_an_unknown_gpu_is_answered_with_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"^A100-SMX4-80GB: unknown GPU; did you mean A100-SXM4-80GB, .*\?$"):
        load_spec("A100-SMX4-80GB")


def test_a_short_name_may_be_the_nearest() -> None:
    with pytest.raises(SpecError, match=r"^v101: unknown GPU; did you mean V100, "):
        load_spec("v101")


def test_the_start_of_several_names_is_answered_with_the_shortest_of_them() -> None:
    with pytest.raises(SpecError, match=r"^RTX-30: unknown GPU; did you mean (?=.*RTX-3060)(?=.*RTX-3090)"):
        load_spec("RTX-30")
    with pytest.raises(SpecError, match=r"^h10: unknown GPU; did you mean H100(, [^,]+){3}\?$"):
        load_spec("h10")


def test_a_base_is_not_a_gpu() -> None:
    with pytest.raises(SpecError, match=r"volta is a base that boards extend, not a board; .*V100-SXM2-16GB"):
        load_spec("volta")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"gone\.yaml: cannot be read: No such file or directory; check the path"):
        load_spec(tmp_path / "gone.yaml")


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"gone: no such folder of architecture specs; correct the path"):
        load_spec("T4", arch_path=[tmp_path / "gone"])


def test_a_name_shared_by_two_boards_is_refused(tmp_path: Path, board: Writer) -> None:
    board(stem="one")
    board(stem="two")
    for ask in (lambda folders: load_spec("Mine", arch_path=folders), lambda folders: list_archs(arch_path=folders)):
        with pytest.raises(SpecError, match=r"two\.yaml:1: name: Mine is also the name of one\.yaml; rename one"):
            ask([tmp_path])


def test_an_alias_shared_by_two_boards_is_answered_with_both(tmp_path: Path, board: Writer) -> None:
    for stem in ("one", "two"):
        board(stem=stem, head=f"name: {stem}\naliases: [Mine]\nextends: teaching\n")
    with pytest.raises(UnknownGpuError, match=r"^Mine: names several GPUs in .*: one, two; say which$"):
        load_spec("Mine", arch_path=[tmp_path])


CONTRADICTIONS = [
    ("clock", "base_mhz", 1001.0, r"clock\.boost_mhz: min 1000 <= base 1001 <= boost 1000 and max 1000 does not hold"),
    ("sm", "register_allocation_unit", 255, r"sm\.registers: 65536 is not a multiple of the allocation unit 255"),
    ("sm", "max_warps", 31, r"sm\.max_threads_per_cta: 32 warps do not fit the 31 warps of an SM"),
    ("sm", "registers", 4096, r"sm\.registers: 4096 cannot hold a CTA of 32 warps"),
    ("shared_memory", "unified_l1_kib", 163.0, r"shared_memory\.carveouts_kib: 164 KiB exceeds the unified L1 of 163"),
    ("shared_memory", "max_kib_per_cta", 164.1, r"shared_memory\.max_kib_per_cta: 164\.1 KiB with its reserve exceeds"),
    ("l2", "far_latency_cycles", 199, r"l2\.far_latency_cycles: 199 is below the near latency 200; swap them"),
    ("power", "limit_temperature_c", 9, r"power\.limit_temperature_c: 9 is below coolant_c 25; swap them"),
]


def test_a_library_states_the_last_version_of_cuda_that_it_came_with(board: Writer, tmp_path: Path) -> None:
    path = board("library: mine\n")
    (tmp_path / "libraries").mkdir()
    mine, older = (tmp_path / "libraries" / f"{stem}.yaml" for stem in ("mine", "older"))
    mine.write_text("extends: teaching\nolder: [older]\n")
    bias = f"heuristic_bias:\n  mma:\n    split_k: {leaf(0.1)}\n"
    older.write_text(f"extends: teaching\nlast_cuda: 10\n{bias}")
    found = {cuda: load_spec(path, cuda=cuda).system.library for cuda in (None, 9, 10, 11)}
    assert {cuda: library.name for cuda, library in found.items()} == {
        None: "mine",
        9: "older",
        10: "older",
        11: "mine",
    }
    assert found[10].heuristic_bias.mma["split_k"] == 0.1
    older.write_text(f"extends: teaching\n{bias}")
    with pytest.raises(SpecError, match=rf"^{older}:1: last_cuda: missing; state the last version of CUDA"):
        load_spec(path, cuda=10)
    older.unlink()
    with pytest.raises(SpecError, match=rf"^{mine}:2: older: no library 'older' in the folder libraries"):
        load_spec(path, cuda=10)


@pytest.mark.parametrize("key", ["library", "host"])
def test_a_board_names_its_library_and_its_host(board: Writer, tmp_path: Path, key: str) -> None:
    assert_fails(board(f"{key}: voltta\n"), 4, rf"{key}: no {key} 'voltta' in the folder .*; did you mean volta\?")
    whole = Path(load_spec("teaching").files[0]).read_text()
    path = tmp_path / "whole.yaml"
    path.write_text(re.sub(rf"(?m)^{key}: .*\n", "", whole))
    assert_fails(path, 1, rf"{key}: missing; name a file of the folder .*, without \.yaml")


def test_the_records_of_a_board_have_hashes_of_their_own() -> None:
    t4 = load_spec("t4")
    slower = with_overrides(t4, {"host.graph_gap_us": 3.0}).system
    assert slower.gpu.content_hash == t4.gpu.content_hash
    assert slower.host.content_hash != t4.system.host.content_hash
    assert slower.content_hash != t4.system.content_hash
    again = load_spec("t4").system
    assert again.content_hash == t4.system.content_hash
    biased = with_overrides(t4, {"library.heuristic_bias.simt.split_k": 1.0}).system
    assert biased.library.content_hash != t4.system.library.content_hash
    assert biased.host == t4.system.host


@pytest.mark.parametrize(("part", "key", "value", "expected"), CONTRADICTIONS)
def test_values_that_contradict_each_other_are_named(
    board: Writer, part: str, key: str, value: float, expected: str
) -> None:
    path = board(f"{part}:\n  {key}: {leaf(value)}\n")
    with pytest.raises(SpecError, match=expected):
        load_spec(path)


def test_a_contradiction_names_the_line_of_the_value_in_question(board: Writer) -> None:
    assert_fails(board(f"l2:\n  far_latency_cycles: {leaf(199)}\n"), 5, r"l2\.far_latency_cycles: .*; swap them")


# 8 SMs x 8 sub-partitions x 64 multiply-adds x 2 x 1 GHz = 8.192 TFLOP/s; / 1.01 = 8.1109, / 0.99 = 8.2747
@pytest.mark.parametrize("stated", [8.111, 8.274])
def test_a_stated_peak_may_be_off_by_one_percent(board: Writer, stated: float) -> None:
    path = board(f"stated_peaks:\n  ffma: {leaf(stated)}\n")
    assert load_spec(path).gpu.stated_peaks["ffma"] == stated


@pytest.mark.parametrize("stated", [8.110, 8.275])
def test_a_stated_peak_may_not_be_off_by_more(board: Writer, stated: float) -> None:
    path = board(f"stated_peaks:\n  ffma: {leaf(stated)}\n")
    assert_fails(path, 5, r"stated_peaks\.ffma: stated .* TFLOP/s, but the spec gives 8\.192; correct .*")


def test_a_stated_peak_of_an_unknown_instruction_is_answered_with_the_nearest(board: Writer) -> None:
    text = f"stated_peaks:\n  fmma: {leaf(8.0)}\n"
    assert_fails(board(text), 5, r"stated_peaks\.fmma: no such instruction; did you mean ffma\?")


# Ranges -----------------------------------------------------------------------------------------


def numbers_of(model: type[BaseModel], key_path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Schema of every number of a model, by key path; rows of a table as ``*``."""
    schema = model.model_json_schema()

    def below(part: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for one in (part, *part.get("anyOf", ())):
            if "$ref" in one:
                yield from below(schema["$defs"][one["$ref"].rpartition("/")[2]], path)
            elif one.get("type") in ("number", "integer"):
                yield path, one
            elif one.get("type") == "array":
                for item in one.get("prefixItems", [one.get("items", {})]):
                    yield from below(item, path)
            elif isinstance(one.get("additionalProperties"), dict):
                yield from below(one["additionalProperties"], f"{path}.*")
            for key, value in one.get("properties", {}).items():
                yield from below(value, f"{path}.{key}" if path else key)

    return below(schema, key_path)


def values_at(data: Any, keys: list[str]) -> list[float]:
    """All numbers that a pattern of keys reaches."""
    if keys:
        rows = (data or {}).values() if keys[0] == "*" else [data[keys[0]]]
        return [value for row in rows for value in values_at(row, keys[1:])]
    return [] if data is None else list(data) if isinstance(data, tuple) else [data]


NATURAL_ENDS: dict[str, tuple[float, float]] = {
    "fraction": (0.01, 1),
    "shape": (1, 4096), "latency_cycles": (1, 10_000), "partitions": (1, 64), "sub_partitions": (1, 32),
    "c": (-50, 200), "conflict_cost": (1, -1), "open_pages": (1, -1), "sparsity": (0, 0), "factors": (2, -1),
    "min_steps": (1, -1),
}  # fmt: skip
"""Ends of ranges that are not a matter of taste: a fraction is one at most, nothing answers in less than a cycle, and
a split has two parts."""


def test_every_number_has_a_range_at_least_four_times_beyond_the_shipped_boards() -> None:
    boards = [load_spec(entry.path).system.values() for entry in list_archs()]
    found = dict(numbers_of(Gpu))
    found |= {f"host.{key_path}": schema for key_path, schema in numbers_of(Host)}
    found |= {f"library.heuristic_bias.{key_path}": schema for key_path, schema in numbers_of(HeuristicBias)}
    found |= {f"library.split_k_search.{key_path}": schema for key_path, schema in numbers_of(SplitKSearch)}
    assert len(found) > 80
    for key_path, schema in found.items():
        last = key_path.rpartition(".")[2]
        assert {"minimum", "maximum"} <= set(schema), key_path
        natural = NATURAL_ENDS.get(last) or NATURAL_ENDS.get(last.rpartition("_")[2], (-1, -1))
        known = [abs(value) for board in boards for value in values_at(board, key_path.split(".")) if value != NO_LIMIT]
        if schema["maximum"] != natural[1] and known:
            assert 4 * max(known) <= schema["maximum"], key_path
        if schema["minimum"] != natural[0] and schema["minimum"] > 0:
            assert min(known) / 4 >= schema["minimum"], key_path


WHAT_IFS = [
    {"l2.capacity_mib": 80.0, "l2.bandwidth_bytes_per_cycle": 8000.0},
    {"dram.peak_bandwidth_gb_per_s": 4 * 1555.0},
    {"sm.count": 4 * 108},
    {"clock.boost_mhz": 2820.0, "clock.max_mhz": 2820.0},
    {"clock.max_mhz": 1300.0},
    {"l2.bandwidth_bytes_per_cycle": NO_LIMIT, "dram.peak_bandwidth_gb_per_s": NO_LIMIT},
    {"shared_memory.carveouts_kib": [0, 656], "shared_memory.unified_l1_kib": 768},
]


@pytest.mark.parametrize("values", WHAT_IFS)
def test_a_machine_that_nobody_builds_may_be_asked_about(values: dict[str, object]) -> None:
    assert with_overrides(load_spec("A100-SXM4-40GB"), values).gpu


NO_NUMBERS = [
    (float("nan"), ""), (float("inf"), ""), (True, "valid"),
    ("108", "valid"), (10**400, ""), (-1, "greater than or equal to"), (10**15, "less than or equal to"),
    ([1], "valid"), ({"a": 1}, "valid"), (None, "valid"), ("9" * 10_000, "valid"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "problem"), NO_NUMBERS, ids=[repr(row[0])[:20] for row in NO_NUMBERS])
@pytest.mark.parametrize("key_path", ["sm.count", "dram.latency_ns", "instructions.ffma.issue_interval_cycles"])
def test_no_value_outside_its_range_or_type_enters_by_an_override(key_path: str, value: object, problem: str) -> None:
    with pytest.raises(SpecError, match=rf"^override: {re.escape(key_path)}: .*{problem}") as raised:
        with_overrides(load_spec("T4"), {key_path: value})
    assert len(str(raised.value)) < 300


def test_booleans_are_not_numbers_in_a_spec(board: Writer) -> None:
    assert_fails(
        board(f"sm:\n  count: {leaf('true')}\n"), 5, r"sm\.count: should be a valid integer, got True; correct it"
    )


def test_compute_capabilities_are_not_numbers(board: Writer) -> None:
    text = f"load_store:\n  async_copy: {leaf(1)}\n"
    assert_fails(board(text), 5, r"load_store\.async_copy: should be a valid boolean, got 1; correct it")


def test_a_data_type_that_no_gpu_has_is_refused(board: Writer) -> None:
    text = "instructions:\n  hmma_16816_f32:\n    inputs: [fp61]\n"
    assert_fails(
        board(text),
        6,
        r"instructions\.hmma_16816_f32\.inputs\.0: expected one of fp64, fp32, [^']*, got 'fp61'; correct it$",
    )


def test_all_problems_of_a_file_are_reported_each_at_its_line(board: Writer) -> None:
    path = board(
        f"sm:\n  count: {leaf(-1)}\n  cuont: {leaf(1)}\n  max_warps: 64\n"
        f"l2:\n  capacity_mib: {leaf(0.07)}\ndram: 3\nclock:\n  base_mhz: {leaf('fast')}\n"
    )
    with pytest.raises(SpecError) as raised:
        load_spec(path)
    places = sorted(line.removeprefix(f"{path}:").split(": ")[:2] for line in raised.value.problems)
    assert places == [
        ["10", "dram"], ["12", "clock.base_mhz.value"], ["5", "sm.count"], ["6", "sm.cuont"], ["7", "sm.max_warps"],
        ["9", "l2.capacity_mib"],
    ]  # fmt: skip
    assert str(raised.value).endswith(" (and 5 more problems)")


def test_all_contradictions_are_reported(board: Writer) -> None:
    path = board(f"l2:\n  far_latency_cycles: {leaf(1)}\npower:\n  coolant_c: {leaf(99.0)}\n")
    with pytest.raises(SpecError) as raised:
        load_spec(path)
    assert [line.split(": ")[:3] for line in raised.value.problems] == [
        [f"{path}:5", "l2.far_latency_cycles", "1 is below the near latency 200; swap them"],
        [f"{path}:7", "power.coolant_c", "power.limit_temperature_c"],
    ]


def test_a_contradiction_with_a_base_stands_at_the_line_of_the_spec_that_extends_it(board: Writer) -> None:
    path = board(f"clock:\n  base_mhz: {leaf(1900.0)}\n", head="name: Mine\nextends: rtx_3090\n")
    assert_fails(path, 4, r"clock\.base_mhz: clock\.boost_mhz: min 210 <= base 1900 <= boost 1695 .* does not hold; .*")


def test_peaks_that_a_base_states_of_its_board_bind_no_board_with_other_rates(board: Writer) -> None:
    head = "name: Mine\nextends: rtx_3090\n"
    assert load_spec(board(f"sm:\n  count: {leaf(84)}\n", head=head)).gpu.sm.count == 84
    path = board(f"sm:\n  count: {leaf(84)}\nstated_peaks:\n  ffma: {leaf(35.6)}\n", head=head)
    assert_fails(path, 6, r"stated_peaks\.ffma: stated 35\.6 TFLOP/s, but the spec gives 36\.45; correct this, .*")


def test_a_board_unlike_the_measured_ones_is_reported(board: Writer, caplog: pytest.LogCaptureFixture) -> None:
    head = "name: Small\nextends: rtx_3090\n"
    load_spec(board(f"sm:\n  count: {leaf(84)}\n", head=head))
    assert not caplog.messages
    system = load_spec(board(f"power:\n  board_limit_w: {leaf(100.0)}\n", head=head)).system
    (message,) = caplog.messages
    assert message.startswith(
        "Small is unlike the measured boards of its architecture (A40, RTX-3090): 1.22 W of power"
    )
    (note,) = predict(system, Gemm(4096, 4096, 4096, Dtype.FP16), Options()).notes
    assert re.match(r"the 100 W limit holds the clock at \d+ MHz, below the base clock of 1395 MHz, and no run", note)


def test_a_boost_clock_is_not_raised_above_what_the_board_runs_at() -> None:
    for name in ("A100-SXM4-40GB", "V100-SXM2-16GB"):
        spec = load_spec(name)
        with pytest.raises(SpecError, match=r"clock\.boost_mhz: 2000 exceeds max_mhz .*; set clock\.max_mhz as well"):
            with_overrides(spec, {"clock.boost_mhz": 2000.0})
        assert with_overrides(spec, {"clock.boost_mhz": 2000.0, "clock.max_mhz": 2000.0})


IMPLAUSIBLE = [
    ("  technology: GDDR6\n", 10_080, r"dram\.peak_bandwidth_gb_per_s: 10080 GB/s of GDDR6, which reaches 1536 on 512"),
    ("  technology: hbm3e\n", 10_080, r"dram\.peak_bandwidth_gb_per_s: 10080 GB/s of hbm3e, which reaches 10035\.2 on"),
    ("  technology: HBM4\n", 10_080, ""),
    ("  technology: textbook\n", 10_080, ""),
]


@pytest.mark.parametrize(("technology", "bandwidth", "expected"), IMPLAUSIBLE)
def test_a_bandwidth_that_no_memory_of_its_kind_has_is_implausible(
    board: Writer, technology: str, bandwidth: int, expected: str
) -> None:
    path = board(f"dram:\n{technology}  peak_bandwidth_gb_per_s: {leaf(bandwidth)}\n")
    found = implausibilities(load_spec(path))
    assert bool(found) == bool(expected)
    assert not found or re.match(re.escape(f"{path}:6: ") + expected, found[0])


def test_a_boost_clock_above_the_highest_of_the_board_that_is_extended_is_implausible(board: Writer) -> None:
    head = "name: Mine\nextends: a40\n"
    boost, highest = f"clock:\n  boost_mhz: {leaf(2490.0)}\n", f"  max_mhz: {leaf(2490.0)}\n"
    path = board(boost, head=head)
    (found,) = implausibilities(load_spec(path))
    assert re.match(re.escape(f"{path}:4: clock.boost_mhz: 2490 exceeds the max_mhz 1740 of the board"), found)
    assert not implausibilities(load_spec(board(boost + highest, head=head)))


def test_shipped_boards_are_plausible() -> None:
    assert not [found for entry in list_archs() for found in implausibilities(load_spec(entry.path))]


# Files beside the one that is asked for ---------------------------------------------------------


BROKEN = ["name: Broken\nsm: [1", "name: [1]", "name: Broken\na: &a [*a]\n", "name: Broken\nsm: !!timestamp x\n"]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_file_of_another_board_is_reported_and_passed_over(
    board: Writer, tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    board()
    (tmp_path / "broken.yaml").write_text(text)
    assert load_spec("Mine", [tmp_path]).gpu.name == "Mine"
    assert load_spec("T4", [tmp_path]).gpu.name == "T4"
    assert "Mine" in [entry.name for entry in list_archs([tmp_path])]
    [message] = {record.getMessage() for record in caplog.records}
    assert re.fullmatch(rf"{tmp_path}/broken\.yaml:\d: .*; passed over", message)


SPELLINGS = ["Odd Board 9", "odd-board9", "NVIDIA Odd  Board 9", '"Odd\\x20Board 9"', "'Odd_Board\n  9'"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_shipped_board_is_found_however_its_file_spells_the_name(
    board: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.setattr(registry, "search_folders", lambda _: (tmp_path,))
    path = board(head=f"aliases: [{spelling}]\nname: Mine\n")
    assert registry.spec_file("oddboard9") == path
    with pytest.raises(SpecError, match="unknown GPU"):
        _ = registry.spec_file("board9")


OF_T4 = {"t4": "name: Other\n", "other": "name: T4 # mine\n", "third": "aliases: [x, 'T4']\nname: a\n"}


def test_a_broken_file_of_the_board_that_is_asked_for_is_refused_not_replaced_by_the_shipped_one(
    board: Writer, tmp_path: Path
) -> None:
    for stem, head in OF_T4.items():
        path = board("sm: [1\n", stem=stem, head=head)
        with pytest.raises(SpecError, match=rf"{stem}\.yaml:\d: not YAML"):
            load_spec("T4", [tmp_path])
        path.unlink()


def test_a_folder_or_a_dangling_link_named_like_a_spec_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "link.yaml").symlink_to(tmp_path / "gone")
    (tmp_path / "device.yaml").symlink_to("/dev/zero")
    assert load_spec("T4", [tmp_path]).gpu.name == "T4"


@pytest.mark.parametrize("length", [300, 5000])
def test_names_that_no_file_can_have_are_one_line(board: Writer, tmp_path: Path, length: int) -> None:
    long = "x" * length
    asked: list[tuple[str | Path, list[Path]]] = [
        (long, []),
        (f"{long}.yaml", []),
        ("T4", [tmp_path / long]),
        (board(stem="extends", head=f"name: Mine\nextends: {long}\n"), []),
        (board(f"library: {long}\n"), []),
    ]
    for name, folders in asked:
        with pytest.raises(SpecError) as raised:
            load_spec(name, folders)
        assert "\n" not in str(raised.value)
        assert len(str(raised.value)) < 1_000


# The bibliography -------------------------------------------------------------------------------


def test_a_source_cites_the_bibliography_of_its_file_and_of_what_it_extends(board: Writer) -> None:
    text = f"sources:\n  mine: My report\nsm:\n  count: {leaf(3, source='[mine], table 2; [dettmers]')}\n"
    origin = load_spec(board(text)).provenance["sm.count"]
    assert origin.source.startswith("My report, table 2; T. Dettmers, 'Which GPU")


def test_a_key_means_what_the_file_that_cites_it_says(board: Writer) -> None:
    provenance = load_spec(
        board(f"sources: {{dettmers: Another}}\nsm:\n  count: {leaf(3, source='[dettmers]')}\n")
    ).provenance
    assert provenance["sm.count"].source == "Another"
    assert provenance["sm.sub_partitions"].source.startswith("T. Dettmers")


def test_a_citation_of_no_entry_is_answered_with_the_nearest(board: Writer) -> None:
    text = f"sources:\n  mine: My report\nsm:\n  count: {leaf(3, source='[mien]')}\n"
    assert_fails(board(text), 7, r"sm\.count\.source: \[mien\] is not a key of 'sources'; did you mean mine\?")


def test_an_entry_of_the_bibliography_is_text(board: Writer) -> None:
    assert_fails(board("sources:\n  mine: 3\n"), 5, r"sources\.mine: should be a valid string, got 3; correct it")


def test_every_entry_of_the_shipped_bibliographies_is_cited() -> None:
    decided = {path for entry in list_archs() for path, _ in load_spec(entry.path).decided_by}
    files = {path: path.read_text(encoding="utf-8") for path in decided if path.parent.name != "kernels"}
    for path in files:
        alike = [text for other, text in files.items() if other.parent == path.parent]  # those that may cite it
        for key in read_yaml(path).data.get("sources", {}):
            assert any(f"[{key}]" in text for text in alike), (path, key)


# What-if ----------------------------------------------------------------------------------------


def test_an_override_replaces_one_value_and_says_so() -> None:
    spec = load_spec("A100-SXM4-80GB")
    wide = with_overrides(spec, {"dram.peak_bandwidth_gb_per_s": 3000.0, "sm.count": 120})
    assert (wide.gpu.dram.peak_bandwidth_gb_per_s, wide.gpu.sm.count) == (3000.0, 120)
    assert spec.gpu.sm.count == 108
    origin = wide.provenance["sm.count"]
    assert (origin.kind, origin.source, origin.file) == ("assumed", "override", None)
    assert wide.sha256 != spec.sha256
    assert wide.files == spec.files


def test_an_overridden_board_need_not_match_the_vendors_peaks() -> None:
    assert with_overrides(load_spec("T4"), {"sm.count": 80}).gpu.sm.count == 80


def test_overrides_reach_into_the_instruction_table() -> None:
    changed = with_overrides(load_spec("T4"), {"instructions.hmma_1688_f32.issue_interval_cycles": 4.0})
    assert changed.gpu.instructions["hmma_1688_f32"].issue_interval_cycles == 4.0


def test_the_order_of_overrides_does_not_matter() -> None:
    spec = load_spec("T4")
    one = with_overrides(spec, {"sm.count": 80, "l2.partitions": 2})
    other = with_overrides(spec, {"l2.partitions": 2, "sm.count": 80})
    assert (one.gpu, one.sha256) == (other.gpu, other.sha256)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("dram.peak_bandwith", 3000.0, r"^override: dram\.peak_bandwith: no such value; did you mean dram\.peak_"),
        ("l2.bandwidth", 4000.0, r"no such value; did you mean l2\.bandwidth_bytes_per_cycle\?$"),
        ("l2.slice_width", 128, r"no such value; l2 has capacity_mib, (?=.*bandwidth_bytes_per_cycle)"),
        ("dram", 3000.0, r"^override: dram: no such value; dram has technology, "),
        ("host", 1.0, r"^override: host: no such value; host has graph_gap_us, (?=.*, method_overhead_us,)"),
        ("blocks", 1, r"^override: blocks: no such value; 'gpusim archs show' lists them$"),
        ("sm.count", 0, r"^override: sm\.count: should be greater than or equal to 1, got 0; correct it$"),
        ("sm.count", "x2", r"^override: sm\.count: 'x2': write a multiple as 2x$"),
        ("sm.count", "many", r"^override: sm\.count: should be a valid integer, got 'many'; correct it$"),
        ("clock.base_mhz", 2000.0, r"^override: clock\.boost_mhz: .* does not hold"),
    ],
)
def test_a_wrong_override_is_one_line(key: str, value: object, expected: str) -> None:
    with pytest.raises(SpecError, match=expected) as raised:
        with_overrides(load_spec("T4"), {key: value})
    assert "\n" not in str(raised.value)


# For editors ------------------------------------------------------------------------------------


def test_json_schema_knows_every_key_of_every_shipped_file() -> None:
    schema = json_schema(Gpu)
    for path in Path(load_spec("T4").files[0]).parent.glob("*.yaml"):
        assert_described(yaml.safe_load(path.read_text()), schema, schema)


def assert_described(data: object, part: dict[str, object], schema: dict[str, object]) -> None:
    """A tiny reader of the schema: keys are known, and a value has exactly value, kind and source."""
    reference = part.get("$ref")
    if isinstance(reference, str):
        definitions = schema["$defs"]
        assert isinstance(definitions, dict)
        part = definitions[reference.rpartition("/")[2]]
    if not isinstance(data, dict):
        return
    known, others = part.get("properties", {}), part.get("additionalProperties")
    assert isinstance(known, dict)
    for key, value in data.items():
        below = known.get(key, others)
        assert isinstance(below, dict), key
        assert_described(value, below, schema)
    assert set(data) >= set(part.get("required", ()))  # type: ignore[call-overload]


@pytest.mark.parametrize("record", [Gpu, LibraryRecord, Host])
def test_json_schema_describes_every_key(record: type[Record]) -> None:
    schema = json_schema(record)
    assert list(keys_without_description(schema)) == []


UNITS = {
    "_mv_per_mhz": "[mV/MHz]",
    "_mhz": "[MHz]",
    "_kib": "[KiB]",
    "_mib": "[MiB]",
    "_gb": "[GB]",
    "_gb_per_s": "[GB/s]",
    "_bytes": "[B]",
    "_bytes_per_cycle": "[B/SM cycle]",
    "_cycles": "[SM cycles]",
    "_fraction": "[0 to 1]",
    "_ns": "[ns]",
    "_us": "[us]",
    "_ms": "[ms]",
    "_w": "[W]",
    "_v": "[V]",
    "_pj_per_byte": "[pJ/B]",
    "_per_k": "[1/K]",
    "_c": "[degrees C]",
    "_per_s": "/s]",
    "_s": "[s]",
}


def test_json_schema_states_the_unit_that_a_key_ends_in() -> None:
    keys = [item for part in json_schema(Gpu)["$defs"].values() for item in part["properties"].items()]
    for key, below in keys:
        unit = next((unit for suffix, unit in UNITS.items() if f"_{key}".endswith(suffix)), "")
        assert unit in below["description"], key
    assert all(any(key.endswith(suffix) for key, _ in keys) for suffix in UNITS)


def keys_without_description(part: object, key_path: str = "") -> Iterator[str]:
    """Every key below ``properties``, and every row of a table, that says nothing."""
    if isinstance(part, list):
        for item in part:
            yield from keys_without_description(item, key_path)
    if not isinstance(part, dict):
        return
    keys = dict(part.get("properties", {}))
    rows = part.get("additionalProperties")
    if isinstance(rows, dict) and "$ref" not in rows:
        keys["*"] = rows
    for key, below in keys.items():
        if not below.get("description", "").strip():
            yield f"{key_path}.{key}"
    for key, below in part.items():
        yield from keys_without_description(below, f"{key_path}.{key}")


def test_json_schema_asks_for_source_and_kind_of_numbers_only() -> None:
    schema = json_schema(Gpu)
    sm = schema["$defs"]["Sm"]["properties"]["count"]
    assert sm["required"] == ["value", "kind", "source"]
    assert sm["properties"]["kind"]["enum"] == list(KINDS)
    assert schema["properties"]["name"]["type"] == "string"
    assert schema["$defs"]["Instruction"]["properties"]["shape"]["type"] == "array"

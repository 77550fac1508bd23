"""Reading YAML: the core schema, lines, and bounds checked before data is built."""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpusim.files.checked_document import shipped_folder
from gpusim.files.yamlfile import MAX_DEPTH, MAX_NODES, SpecError, YamlFile, parse_value, read_yaml

SHIPPED = sorted(
    path
    for folder in (shipped_folder("arch_specs"), shipped_folder("experiments"), shipped_folder("gpusim") / "mathmode")
    for path in folder.rglob("*.yaml")
)


def read(folder: Path, text: str | bytes) -> YamlFile:
    path = folder / "a.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path)


def refusal(folder: Path, text: str | bytes) -> str:
    """What a file is refused with: one line, without the folder."""
    with pytest.raises(SpecError) as raised:
        read(folder, text)
    assert "\n" not in str(raised.value)
    return str(raised.value).removeprefix(f"{folder}/")


# By hand, from the tables of YAML 1.2.2, section 10.3.2; what YAML 1.1 has other values for stands first.
CORE = [
    ("yes", "yes"), ("off", "off"), ("8:56:8", "8:56:8"), ("1e3", 1000.0), ("012", 12), ("1_000", "1_000"),
    ("2020-01-01", "2020-01-01"), ("=", "="), ("0b1", "0b1"),
    ("", None), ("~", None), ("Null", None), ("nULL", "nULL"), ("True", True), ("FALSE", False),
    ("0", 0), ("-19", -19), ("+3", 3), ("0o7", 7), ("0x3A", 58), ("0.", 0.0), ("-0.5", -0.5), (".5", 0.5),
    ("+12e03", 12000.0), ("-2E+05", -2e5), ("1.5e-3", 0.0015), (".", "."), ("1.2.3", "1.2.3"), ("-", "-"), ("e3", "e3"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), CORE)
def test_a_bare_word_is_what_the_core_schema_says(tmp_path: Path, text: str, value: object) -> None:
    if text != "-":  # in a file it begins a list
        assert read(tmp_path, f"a: {text}\n").data == {"a": value}
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


def test_quoted_words_and_keys_are_text(tmp_path: Path) -> None:
    assert read(tmp_path, "1: '1'\ntrue: \"null\"\nb: !!str 3\nc: ! 4\n").data == {
        "1": "1", "true": "null", "b": "3", "c": "4",
    }  # fmt: skip


def test_tags_of_the_core_schema_are_understood(tmp_path: Path) -> None:
    text = "a: !!float 3\nb: !!int 0x10\nc: !!bool true\nd: !!null ~\ne: !!seq [1]\nf: !!map {g: 1}\n"
    data = read(tmp_path, text).data
    assert data == {"a": 3.0, "b": 16, "c": True, "d": None, "e": [1], "f": {"g": 1}}
    assert isinstance(data["a"], float)


def test_shipped_files_are_read_as_pyyaml_reads_them() -> None:
    """A second reader: YAML 1.1 and 1.2 agree on the shipped files, with keys as text."""

    def with_text_keys(node: Any) -> Any:
        if isinstance(node, dict):
            return {str(key): with_text_keys(value) for key, value in node.items()}
        return [with_text_keys(item) for item in node] if isinstance(node, list) else node

    assert len(SHIPPED) > 50
    for path in SHIPPED:
        assert read_yaml(path).data == with_text_keys(yaml.safe_load(path.read_text(encoding="utf-8"))), path


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Co")), max_size=8),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text("abc<", max_size=3), below, max_size=3),
    max_leaves=10,
)  # fmt: skip


@given(PLAIN)
def test_what_json_writes_is_read_back(data: object) -> None:
    import json

    value = parse_value(json.dumps([data], ensure_ascii=False))
    assert value == [data]


WRONG = [
    ("a:\n  b: .nan\n", "2: a.b: '.nan' is not a finite number"),
    ("a: [1, -.Inf]", "1: a.1: '-.Inf' is not a finite number"),
    ("a: 1e999", "1: a: '1e999' is not a finite number"),
    ("a: 1" + "0" * 400, "1: a: '1000"),
    ("a: 9223372036854775808", "1: a: '9223372036854775808' does not fit 64 bits"),
    ("a:\n- 0x" + "f" * 5000, "2: a.0: '0xff"),
    ("a: !!bool x", "1: a: the tag 'tag:yaml.org,2002:bool' does not fit; remove it, or use one of !!null, !!bool,"),
    ("a: !!timestamp 2001-01-01", "1: a: the tag 'tag:yaml.org,2002:timestamp' does not fit"),
    ("a: !!python/object/apply:os.system [ls]", "1: a: the tag 'tag:yaml.org,2002:python/object/apply:os.system'"),
    ("a: !!set {b: }", "1: a: the tag"),
    ("a: !mine 3", "1: a: the tag '!mine'"),
    ("!!int 1: 2", "1: 1: a key is text"),
    ("? [a]\n: 1", "1: a key must be one word"),
    ("a: 1\n'a': 2", "2: a: also set in line 1"),
    ("a: &a [*a]", "1: no complete value above has the anchor &a"),
    ("a: &x\n  <<: *x\n", "2: no complete value above has the anchor &x"),
    ("a: *b", "1: no complete value above has the anchor &b"),
    ("<<: [1]", "1: '<<' takes a mapping"),
    ("a: 1\n---\na: 2", "2: a second document begins"),
    ("a:\n\tb: 1", "2: not YAML"),
    ("a: 1\nb: \x07", "2: '\\x07' is not a character of YAML"),
    (b"a: 1\nb: caf\xe9\n", "2: byte 0xe9 at offset 11 is not UTF-8 text; save it as UTF-8"),
    ("a: 1".encode("utf-16"), "1: byte 0xff at offset 0 is not UTF-8"),
    ("? " + "k" * 600 + "\n: 1", "1: a key path of more than 500 characters"),
    ("# " + "x" * 2**20, " cannot be read: it is more than 1 MiB"),
]


@pytest.mark.parametrize(("text", "problem"), WRONG, ids=[row[1][:30] for row in WRONG])
def test_what_is_not_plain_data_is_refused_at_its_line(tmp_path: Path, text: str | bytes, problem: str) -> None:
    message = refusal(tmp_path, text)
    assert message.startswith(f"a.yaml:{problem}")
    assert len(message) < 400


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_the_bounds_are_tight(tmp_path: Path) -> None:
    assert read(tmp_path, nested(MAX_DEPTH)).data
    assert "nested more than" in refusal(tmp_path, nested(MAX_DEPTH + 1))
    inner = f"a: &a {nested(10)}\n"
    assert read(tmp_path, inner + f"b: {'[' * (MAX_DEPTH - 11)}*a{']' * (MAX_DEPTH - 11)}\n").data
    assert "2: nested" in refusal(tmp_path, inner + f"b: {'[' * (MAX_DEPTH - 10)}*a{']' * (MAX_DEPTH - 10)}\n")
    thousand = "- &a [" + "1," * 999 + "]\n"  # 1,000 values with the list
    assert read(tmp_path, thousand + "- *a\n" * (MAX_NODES // 1000 - 2)).data
    assert "holds more than" in refusal(tmp_path, thousand + "- *a\n" * (MAX_NODES // 1000 - 1) + "- 1\n")


BOMBS = {
    "aliases": "a0: &a0 [1,1,1,1,1,1,1,1]\n"
    + "".join(f"a{i}: &a{i} [{','.join(8 * [f'*a{i - 1}'])}]\n" for i in range(1, 12)),
    "merges": "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: *a{i - 1}, y{i}: *a{i - 1}}}\n" for i in range(1, 60)),
    "chain": "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 1000)),
    "levels": nested(1000),
    "opened": "[" * 40_000,
    "mappings": "{a: " * 40_000,
    "dashes": "- " * 40_000,
    "questions": "? " * 40_000,
    "indented": "".join(" " * level + "a:\n" for level in range(1000)),
    "items": "[" + "1," * 500_000 + "]",
    "paths": "".join(" " * level + "k" * 100 + ":\n" for level in range(60)) + " " * 60 + f"[{90_000 * '1,'}]",
}


def test_no_file_costs_more_than_its_bounds(tmp_path: Path) -> None:
    """In a process of its own, which a parser that recurses would end: 512 MiB, five seconds for each."""
    for name, text in BOMBS.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    program = (
        "import sys, signal\nfrom pathlib import Path\nfrom gpusim.files.yamlfile import SpecError, read_yaml\n"
        "for path in sys.argv[1:]:\n    signal.alarm(5)\n    try:\n        read_yaml(Path(path))\n"
        "    except SpecError as error:\n        print(len(str(error).splitlines()))\n"
    )
    paths = [str(tmp_path / f"{name}.yaml") for name in BOMBS]
    done = subprocess.run(
        [sys.executable, "-c", program, *paths],
        capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29)),
    )  # fmt: skip
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["1"] * len(BOMBS))

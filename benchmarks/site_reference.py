"""Reference pages of the site, made from the code when the site is built: nothing in them is stated a second time."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
import griffe
from key_paths import KeyPath, key_paths
from sections import row
from typer.main import get_command

import gpusim
from gpusim.cli import app
from gpusim.cli.validate import HELP as MEASURED
from gpusim.evidence.measured import OPTIONAL, REQUIRED
from gpusim.experiment.key_units import unit_of
from gpusim.report.gpu_tables import gpu_tables
from gpusim.report.limit_text import NAMES
from gpusim.sim.causes import Cause
from gpusim.specs import Spec, list_archs, load_spec
from gpusim.studies.explain.parts import MEANINGS, WAITS
from gpusim.studies.file_schemas import TITLES, Schema, schema_of

FOLDER = "reference"
HELP_WIDTH = 100
"""Characters of a line of help: as wide as a page shows a block without a scroll bar."""
PLACES: Mapping[str, str] = {
    "gpu": "`arch_specs/`",
    "library": "`arch_specs/libraries/`",
    "host": "`arch_specs/hosts/`",
    "sources": "`arch_specs/sources/`",
    "node": "`arch_specs/nodes/`",
    "collectives": "`arch_specs/collectives/`",
    "catalogue": "`arch_specs/kernels/`",
    "experiment": "`experiments/`",
    "model": "`experiments/models/`",
    "suite": "`experiments/measure/`",
}
"""Where the shipped files of a kind lie."""


def pages() -> dict[str, str]:
    """Every generated page, by its name in the site."""
    specs = [load_spec(entry.path) for entry in list_archs()]
    made = {
        "cli": _cli(),
        "python": _python(),
        "measured": _measured(),
        "glossary": _glossary(),
        "gpu": _gpu(specs),
        **{kind: _files(kind) for kind in TITLES if kind != "gpu"},
        **{f"boards/{_page_name(spec)}": _board(spec) for spec in specs},
    }
    return {f"{FOLDER}/{name}.md": "\n\n".join(parts) + "\n" for name, parts in made.items()}


# Commands and Python ----------------------------------------------------------------------------


def _cli() -> Iterator[str]:
    """Every command with its help."""
    yield "# Commands"
    yield "The help of each command, as `gpusim COMMAND --help` prints it. The [guide](../guide.md) shows them in use."
    for path, command in _commands(get_command(app), "gpusim"):
        context = click.Context(command, info_name=path, max_content_width=HELP_WIDTH, terminal_width=HELP_WIDTH)
        yield f"{'##' if path.count(' ') < 2 else '###'} {path}"
        yield f"```text\n{command.get_help(context)}\n```"


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """A command and those below it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, f"{path} {name}")


def _python() -> Iterator[str]:
    """The public names, for mkdocstrings."""
    yield "# Python"
    yield "What `import gpusim` offers. The [tour](../tour.md) shows it in use."
    for name in gpusim.__all__:
        if name == "program":
            yield "## Programs"
            yield "What a kernel of one's own is made of ([example](../extending.md#an-operator-of-your-own))."
            yield "::: gpusim.program"
        elif not name.startswith("__"):
            yield f"::: {getattr(gpusim, name).__module__}.{name}"


# Measured tables and words ----------------------------------------------------------------------


def _measured() -> Iterator[str]:
    """The columns of measured tables, as the command that reads them states them."""
    yield "# Measured tables"
    yield (
        "A CSV with a row for each timed operator, which `gpusim validate` and `gpusim calibrate` read, and `gpusim"
        " measure` and `gpusim import` write. `gpusim validate --help` prints this page."
    )
    yield f"Required columns: {', '.join(f'`{name}`' for name in REQUIRED)}."
    yield f"Optional columns: {', '.join(f'`{name}`' for name in OPTIONAL)}. Other columns are kept as they are."
    first, *paragraphs = MEASURED.strip().split("\n\n")
    for text in (first, *paragraphs):
        if text.startswith("\b\n"):
            yield "```text\n" + text.removeprefix("\b\n") + "\n```"
        else:
            yield html.escape(text, quote=False)


def _glossary() -> Iterator[str]:
    """Stalls, parts and limits, with the text that the code has of each."""
    yield "# Glossary of stalls and limits"
    yield "## Stalls"
    yield (
        "Every cycle that a warp lives has one cause: the keys of `stall_cycles`. They are named as the warp states of"
        " Nsight Compute, where there is one (`smsp__average_warps_issue_stalled_*`). The last column is the part of"
        " [explain](../guide.md#explain) that counts it where it is latency."
    )
    module = griffe.load("gpusim.sim.causes")
    texts = {cause.name: module["Cause"].members[cause.name].docstring.value for cause in Cause}
    part = {cause: name for name, causes in WAITS.items() for cause in causes}
    body = [(f"`{one.value}`", texts[one.name], f"`{part[one]}`" if one in part else "") for one in Cause]
    yield _table(("stall", "a warp is", "part"), body)
    yield "## Limits"
    yield (
        "`bottleneck` and `next_bottleneck`: the resource of which twice as much would save most time"
        " ([how](../model.md#what-limits-a-run)). `arithmetic` is named by the cores: CUDA cores or Tensor Cores."
        " `balanced: a, b` are several of which none alone saves 3 % of the time if doubled."
    )
    yield _table(("limit", "in words"), [(f"`{name}`", text) for name, text in NAMES.items()])
    yield "## Parts of a time"
    yield (
        "`gpusim explain` divides a predicted time into these parts, which add up to it. Of a step of a model, each"
        " kind of operator has them, as in `gemm: dram`."
    )
    yield _table(("part", "what happens in it"), [(f"`{name}`", text) for name, text in MEANINGS.items()])


# Files ------------------------------------------------------------------------------------------


def _files(kind: str) -> Iterator[str]:
    """The keys of the files of a kind, record by record."""
    schema = schema_of(kind)
    yield f"# {TITLES[kind][0].upper()}{TITLES[kind][1:]}"
    yield _about(kind)
    yield from _records(schema)


def _about(kind: str) -> str:
    return (
        f"Keys of the files in {PLACES[kind]}, and of yours. `gpusim schema {kind}` prints their JSON Schema; an editor"
        f" with the YAML language server finds it by the first line of a file. A required key is marked with `*`."
    )


def _records(schema: Schema) -> Iterator[str]:
    """Each record of a schema, the whole file first: what it is, and a table of its keys."""
    if "properties" in schema:
        yield from _record("File", schema, schema)
    definitions = schema.get("$defs", {})
    for name in dict.fromkeys(_referred({**schema, "$defs": {}}, definitions, frozenset())):
        part = definitions[name]
        if "properties" in part and not _is_cited(part):
            yield from _record(name, part, schema)


def _referred(part: object, definitions: Mapping[str, Schema], above: frozenset[str]) -> Iterator[str]:
    """Names of the records that a part refers to, each before those that it refers to itself."""
    if isinstance(part, dict):
        name = str(part.get("$ref", "")).rpartition("/")[2]
        if name and name not in above:
            yield name
            yield from _referred(definitions[name], definitions, above | {name})
        # Of a choice, the kind of file that has no key of its own comes first.
        for key in sorted(part, key=lambda key: {"else": 0, "then": 1}.get(key, 0)):
            yield from _referred(part[key], definitions, above)
    elif isinstance(part, list):
        for item in part:
            yield from _referred(item, definitions, above)


def _record(name: str, part: Schema, schema: Schema) -> Iterator[str]:
    yield f"## {name} {{ #{name.lower()} }}"
    if "description" in part:
        yield _prose(part["description"])
    marks = dict.fromkeys(part.get("required", ()), " \\*")
    body = [
        (f"`{key}`{marks.get(key, '')}", _type(value, schema), _default(value), _prose(value.get("description", "")))
        for key, value in part["properties"].items()
    ]
    yield _table(("key", "value", "default", "meaning"), body)


def _type(value: Schema, schema: Schema) -> str:
    """What a key holds, in words.

    Args:
        value: schema of the key.
        schema: of the whole file, which defines the records that it refers to.
    """
    match value:
        case {"$ref": str(reference)}:
            return _record_type(reference.rpartition("/")[2], schema)
        case {"const": _} | {"enum": _}:
            return " ".join(f"`{one}`" for one in value.get("enum", [value.get("const")]))
        case {"anyOf": choices} | {"oneOf": choices}:
            forms = list(dict.fromkeys(_type(one, schema) for one in choices if one.get("type") != "null"))
            return f"{forms[0]}, or a list" if forms[1:] == [f"list of {forms[0]}"] else " or ".join(forms)
        case {"type": "array"}:
            items = [_type(one, schema) for one in value.get("prefixItems", ())]
            return f"[{', '.join(items)}]" if items else f"list of {_type(value.get('items', {}), schema)}"
        case {"properties": {"value": held, "kind": _, "source": _}}:
            return f"{_type(held, schema)}, with kind and source"
        case _:
            return _plain_type(value, schema)


def _record_type(name: str, schema: Schema) -> str:
    """A record of its own as a link, another one as what it holds."""
    held = schema["$defs"][name]
    if "if" in held:  # a layer, which its key "op" says
        return "layer or block, below"
    return f"[{name}](#{name.lower()})" if "properties" in held and not _is_cited(held) else _type(held, schema)


def _plain_type(value: Schema, schema: Schema) -> str:
    match value.get("type"):
        case "object":
            rows = value.get("additionalProperties")
            return f"{_type(rows, schema)} by name" if isinstance(rows, dict) else "mapping"
        case "integer" | "number" as kind:
            return f"{kind}{_range(value)}"
        case list(kinds):
            return " or ".join(kinds)
        case kind:
            return {"boolean": "`true` `false`", "string": "text"}.get(str(kind), "any")


def _range(value: Schema) -> str:
    low, high = (value.get(key) for key in ("minimum", "maximum"))
    above, below = (value.get(key) for key in ("exclusiveMinimum", "exclusiveMaximum"))
    ends = [f"≥ {low:g}" if low is not None else f"> {above:g}" if above is not None else ""]
    ends += [f"≤ {high:g}" if high is not None else f"< {below:g}" if below is not None else ""]
    text = ", ".join(end for end in ends if end)
    return f" ({text})" if text else ""


def _default(value: Schema) -> str:
    default = value.get("default")
    return "" if default in (None, "", [], {}) or isinstance(default, dict) else f"`{json.dumps(default)}`"


def _is_cited(part: Schema) -> bool:
    """Whether a mapping is a value with its kind and source."""
    return {"value", "kind", "source"} <= set(part.get("properties", ()))


# Boards -----------------------------------------------------------------------------------------


def _gpu(specs: Sequence[Spec]) -> Iterator[str]:
    """The keys of a spec with unit and range, what the shipped boards state, and how it is known."""
    yield "# GPU spec"
    yield _about("gpu")
    yield (
        'A number is written as `{value: 1590, kind: datasheet, source: "..."}`, with `spread` where it is known how'
        " far the value may be off. *Range* is what a spec may state, *shipped* what the boards state, by which kinds."
        " A board has every value with its source on its page: "
        + ", ".join(f"[{spec.gpu.name}](boards/{_page_name(spec)}.md)" for spec in specs)
        + "."
    )
    found = key_paths(schema_of("gpu"))
    for section in dict.fromkeys(one.section for one in found):
        yield f"## {section or 'The board'}"
        body = [_key_row(one, specs) for one in found if one.section == section]
        yield _table(("key", "unit", "range", "shipped", "meaning"), body)


def _key_row(key: KeyPath, specs: Sequence[Spec]) -> tuple[str, ...]:
    states_it = re.compile(key.pattern).fullmatch
    origins = [origin for spec in specs for path, origin in spec.provenance.items() if states_it(path)]
    numbers = [
        float(one.value) for one in origins if isinstance(one.value, int | float) and not isinstance(one.value, bool)
    ]
    kinds = ", ".join(dict.fromkeys(one.kind for one in origins))
    span = (
        ""
        if not numbers
        else f"{min(numbers):g} to {max(numbers):g}"
        if min(numbers) < max(numbers)
        else f"{numbers[0]:g}"
    )
    return (
        f"`{key.text}`",
        unit_of(key.text),
        _type(key.value, {}),
        "; ".join(filter(None, (span, kinds))),
        _prose(key.meaning),
    )


def _board(spec: Spec) -> Iterator[str]:
    """A board: facts, peaks, and every value with its source."""
    for place, table in enumerate(gpu_tables(spec)):
        yield f"{'##' if place else '#'} {table.title}"
        if not place:
            yield f"As `gpusim archs show {spec.gpu.name.lower()}` prints it."
        yield _table(
            [heading.removeprefix(">") for heading in table.headings], [map(_prose, line) for line in table.rows]
        )


def _page_name(spec: Spec) -> str:
    return spec.gpu.name.lower()


# Markdown ---------------------------------------------------------------------------------------


def _table(headings: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    titles = list(headings)
    return "\n".join([row(titles), row("---" for _ in titles), *(row(line) for line in body)])


def _prose(text: str) -> str:
    """A text of the code as it may stand in a cell: on one line, with its own marks of code."""
    plain = " ".join(text.split()).replace("``", "`")
    plain = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", plain)
    parts = re.split(r"(`[^`]*`)", plain)
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts).replace("|", "\\|")


def _escaped(text: str) -> str:
    return re.sub(r"([*_\[\]{}#])", r"\\\1", html.escape(text, quote=False))

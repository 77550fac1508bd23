"""The page of the API: what its OpenAPI document says, as a page that needs nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpusim.pages.page import Block, Code, Column, Page, Prose, Section, Table, page_text
from gpusim.serve.guard import policy_text

_COLUMNS = (Column("name", "field"), Column("type", "type"), Column("default", "default"), Column("is", "is"))


def reference_page(document: Mapping[str, Any]) -> Page:
    """The page of an OpenAPI document."""
    sections = [
        Section(f"{method.upper()} {path}", list(_operation(one)))
        for path, methods in document["paths"].items()
        for method, one in methods.items()
    ]
    records = [
        Section(name, [Prose(schema.get("description", "")), _table(schema, name)])
        for name, schema in document["components"]["schemas"].items()
        if schema.get("properties")
    ]
    lead = f"{document['info']['description']} The OpenAPI document of this page is /openapi.json."
    return Page(document["info"]["title"], lead, [*sections, *records])


def reference_html(document: Mapping[str, Any]) -> tuple[str, str]:
    """The page as HTML, and the policy under which it runs: its own script and style by their hashes."""
    text = page_text(reference_page(document))
    script, style = (
        " ".join(_hash(one) for one in re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL))
        for name in ("script", "style")
    )
    return text, policy_text(script_src=script, style_src=style)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _operation(one: Mapping[str, Any]) -> Iterator[Block]:
    yield Prose(one.get("description") or one["summary"])
    if parameters := one.get("parameters"):
        rows = [
            {
                "name": parameter["name"],
                "type": _type(parameter["schema"]),
                "default": _default(parameter["schema"], required=parameter.get("required", False)),
                "is": parameter.get("description", ""),
            }
            for parameter in parameters
        ]
        yield Table(_COLUMNS, rows, f"Query of {one['summary']}")
    for content in (one.get("requestBody") or {}).get("content", {}).values():
        yield Prose(f"Body: {_type(content['schema'])}.")
        for example in content.get("examples", {}).values():
            yield Code(json.dumps(example["value"], indent=2), f"Example: {example['summary']}")
    rows = [
        {
            "status": status,
            "type": ", ".join(f"{kind}: {_type(of_kind.get('schema', {}))}" for kind, of_kind in content.items()),
            "is": answer["description"],
        }
        for status, answer in one["responses"].items()
        for content in [answer.get("content", {})]
    ]
    columns = (Column("status", "status"), Column("type", "answer"), Column("is", "is"))
    yield Table(columns, rows, f"Answers of {one['summary']}")


def _table(schema: Mapping[str, Any], name: str) -> Table:
    needed = schema.get("required", [])
    rows = [
        {
            "name": field,
            "type": _type(one),
            "default": _default(one, required=field in needed),
            "is": one.get("description", ""),
        }
        for field, one in schema["properties"].items()
    ]
    return Table(_COLUMNS, rows, f"Fields of {name}", filtered=False)


def _default(schema: Mapping[str, Any], *, required: bool) -> str:
    return "" if required or "default" not in schema else json.dumps(schema["default"])


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    match schema:
        case {"$ref": name}:
            text = str(name).rpartition("/")[2]
        case {"anyOf": several}:
            text = " or ".join(map(_type, several))
        case {"enum": several}:
            text = ", ".join(map(repr, several))
        case {"const": value}:
            text = repr(value)
        case {"type": "array"}:
            text = f"list of {_type(schema.get('items', {}))}"
        case {"type": "object", "additionalProperties": dict() as of}:
            text = f"object of {_type(of)}"
        case _:
            ends = [f"{sign} {schema[key]:,}" for key, sign in (("minimum", ">="), ("maximum", "<=")) if key in schema]
            text = " ".join((schema.get("type", "any"), " and ".join(ends))).strip()
    return text

"""JSON Schemas of the files that a user writes, by kind: made from the records that read them.

``make schemas`` writes them into the folder ``schemas``, which ships, so that an editor finds them by the comment at
the head of a file.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from gpusim.collectives.nccl import Nccl
from gpusim.collectives.node import Node
from gpusim.evidence.sources import Overheads
from gpusim.experiment.claims import ClaimsFile
from gpusim.experiment.model_speedups import ModelSpeedupsFile
from gpusim.experiment.schema import ExperimentFile, TrainingFile
from gpusim.hardware.gpu import Gpu
from gpusim.host.host import Host
from gpusim.library.catalogue import Catalogue
from gpusim.library.library import LibraryRecord
from gpusim.measure.suite import SuiteFile
from gpusim.models.aten.file import ProgramFile
from gpusim.models.definition import ModelFile, Place, Size, VariantFile
from gpusim.models.layers.layer import Layer
from gpusim.models.layers.registry import LAYERS
from gpusim.specs.document import json_schema

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLES: Mapping[str, str] = {
    "gpu": "architecture spec",
    "library": "library",
    "host": "host",
    "sources": "sources of runs",
    "node": "node",
    "collectives": "library of collectives",
    "catalogue": "kernel catalogue",
    "experiment": "experiment",
    "model": "model",
    "suite": "measurement suite",
}
"""What files of a kind are called."""
_ENTRY = "LayerEntry"


@cache
def attribute_docstrings(of: type) -> Mapping[str, str]:
    """The text below each field of a class that has one, by the name of the field.

    >>> from gpusim.models.layers.views import KvCache
    >>> attribute_docstrings(KvCache)
    {'length': 'Tokens before.'}
    """
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, below in pairwise(tree.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found


class _Documented(GenerateJsonSchema):
    """Describes a key by the text below its field, where the field itself does not."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made = super().model_schema(schema)
        records = [one for one in schema["cls"].__mro__ if issubclass(one, BaseModel) and one is not BaseModel]
        texts = ChainMap(*(dict(attribute_docstrings(one)) for one in records))
        for key, part in made.get("properties", {}).items():
            if key in texts:
                part.setdefault("description", texts[key])
        return made


def schema_of(kind: str) -> Schema:
    """The JSON Schema of the files of a kind, one of :data:`TITLES`."""
    return {"$schema": DIALECT, **_SCHEMAS[kind](), "title": f"gpusim {TITLES[kind]}"}


def _catalogue() -> Schema:
    return Catalogue.model_json_schema(schema_generator=_Documented)


def _suite() -> Schema:
    return SuiteFile.model_json_schema(schema_generator=_Documented)


def _experiment() -> Schema:
    """An experiment of any kind, which one of its keys says."""
    return _by_key({"training": TrainingFile, "claims": ClaimsFile, "models": ModelSpeedupsFile}, ExperimentFile)


def _model() -> Schema:
    """A model of layers, a variant of one, or a captured one."""
    schema = _by_key({"format": ProgramFile, "extends": VariantFile}, ModelFile)
    definitions = schema["$defs"]
    for name in ("Block", "ModelFile"):
        definitions[name]["properties"]["layers"]["items"] = {"$ref": f"#/$defs/{_ENTRY}"}
    where = Place.model_json_schema()["properties"]
    block = {
        "type": "object",
        "description": "The layers of a block, with the sizes that it takes.",
        "properties": {"use": {"type": "string", "description": "name of the block"}, **where},
        "required": ["use"],
        "additionalProperties": TypeAdapter(Size).json_schema(),
    }
    layers = {layer.__name__: layer for layer in LAYERS.values()}
    for name, layer in layers.items():
        own = layer.model_json_schema(schema_generator=_Documented)
        definitions |= own.pop("$defs", {})
        definitions[name] = {**own, "properties": {**own["properties"], **where}}
    by_op = [
        {
            "if": {"properties": {"op": {"const": op}}, "required": ["op"]},
            "then": {"$ref": f"#/$defs/{layer.__name__}"},
        }
        for op, layer in LAYERS.items()
    ]
    definitions[_ENTRY] = {
        "type": "object",
        "if": {"required": ["use"]},
        "then": block,
        "else": {
            "required": ["op"],
            "properties": {"op": {"enum": list(LAYERS), "description": attribute_docstrings(Layer)["op"]}},
            "allOf": by_op,
        },
    }
    return schema


def _by_key(records: Mapping[str, type[BaseModel]], other: type[BaseModel]) -> Schema:
    """The schema of a file that is of one kind if it has a key, of another kind if it has another key, and so on."""
    definitions: Schema = {}
    schema = _referred(other, definitions)
    for key, record in reversed(list(records.items())):
        schema = {"if": {"required": [key]}, "then": _referred(record, definitions), "else": schema}
    return {"type": "object", "$defs": definitions, **schema}


def _referred(record: type[BaseModel], definitions: Schema) -> Schema:
    schema = record.model_json_schema(schema_generator=_Documented)
    definitions |= schema.pop("$defs", {})
    definitions[record.__name__] = schema
    return {"$ref": f"#/$defs/{record.__name__}"}


_SCHEMAS: Mapping[str, Callable[[], Schema]] = {
    "gpu": lambda: json_schema(Gpu),
    "library": lambda: json_schema(LibraryRecord),
    "host": lambda: json_schema(Host),
    "sources": lambda: json_schema(Overheads),
    "node": lambda: json_schema(Node),
    "collectives": lambda: json_schema(Nccl),
    "catalogue": _catalogue,
    "experiment": _experiment,
    "model": _model,
    "suite": _suite,
}

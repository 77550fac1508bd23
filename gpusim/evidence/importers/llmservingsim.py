"""Layer profiles of LLMServingSim: ``**/perf_models/GPU/MODEL/tpN/layers.csv``.

They lie in https://github.com/casys-kaist/LLMServingSim (MIT), written by llm_profile/profiler/layers/main.py: a line
per layer and number of input tokens, the median latency in nanoseconds from the PyTorch profiler. Shapes follow from
the model's ``config.json`` (the repository's model_config folder has some); the GPU and the data type stand nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from gpusim.errors import excerpt
from gpusim.evidence.fields import Fields, csv_fields, header_with, read_text
from gpusim.evidence.importers.rows import Import, ImportOptions, Operation, SourceError, Timing, stated_us

REQUIRED = ("layer_name", "input", "latency(ns)")


class ModelConfig(BaseModel):
    """The sizes of a transformer, as in a Hugging Face ``config.json``; other keys are ignored."""

    hidden_size: int = Field(gt=0)
    intermediate_size: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    num_key_value_heads: int | None = Field(default=None, gt=0)
    head_dim: int | None = Field(default=None, gt=0)
    vocab_size: int = Field(gt=0)

    @property
    def queries(self) -> int:
        """Width of all query heads together."""
        return self.num_attention_heads * self._head

    @property
    def keys(self) -> int:
        """Width of all key heads together."""
        return (self.num_key_value_heads or self.num_attention_heads) * self._head

    @property
    def _head(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads


LAYERS: Mapping[str, Callable[[ModelConfig, int], tuple[int, int]]] = {
    "q_proj": lambda model, ways: (model.queries // ways, model.hidden_size),
    "k_proj": lambda model, ways: (model.keys // ways, model.hidden_size),
    "v_proj": lambda model, ways: (model.keys // ways, model.hidden_size),
    "o_proj": lambda model, ways: (model.hidden_size, model.queries // ways),
    "gate_proj": lambda model, ways: (model.intermediate_size // ways, model.hidden_size),
    "up_proj": lambda model, ways: (model.intermediate_size // ways, model.hidden_size),
    "down_proj": lambda model, ways: (model.hidden_size, model.intermediate_size // ways),
    "lm_head": lambda model, ways: (model.vocab_size // ways, model.hidden_size),
}
"""n and k of the layers that are one matrix multiplication, split over some GPUs."""


def read(path: Path, options: ImportOptions) -> Import:
    """The linear layers of a profile; m is the number of input tokens."""
    found = Import(str(path), options, Timing("profiler", "cold", "llmservingsim"))
    lines = list(csv_fields(str(path), read_text(path), _header))
    model = _model(path, options.model_config)
    for line, fields in lines:
        layer = fields.get("layer_name")
        if layer not in LAYERS:
            found.skip(
                f"layer {excerpt(layer) or 'empty'} is not a single matrix multiplication",
                time_us=stated_us(fields, "latency(ns)", "ns"),
            )
        elif fields.get("latency(ns)") == "0":
            found.skip("latency 0")
        else:
            _add(found, line, fields, LAYERS[layer](model, fields.whole("tp_size") or 1))
    return found


def _header(where: str, names: list[str]) -> list[str]:
    return header_with(REQUIRED, where, names)


def _model(path: Path, config: Path | None) -> ModelConfig:
    if config is None:
        raise SourceError(f"{path}: layers are named without shapes; add --model-config with the model's config.json")
    try:
        return ModelConfig.model_validate_json(read_text(config))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise SourceError(
            f"{config}: {key + ': ' if key else ''}{first['msg']}; give the model's config.json"
        ) from None


def _add(found: Import, line: int, fields: Fields, size: tuple[int, int]) -> None:
    if min(size) < 1:
        raise fields.refuse("tp_size", f"more than the layer can be split, {fields.get('tp_size')}", "correct it")
    extra = {"layer": fields.get("layer_name")}
    operation = Operation("linear", (1, fields.number("input"), *size), None, layout="tn", extra=extra)
    found.add(fields.where, line, operation, fields.time_us("latency(ns)", "ns"))

"""Models of transformers from a configuration, without weights."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from gpusim.capture.errors import CaptureError, reason_of
from gpusim.capture.fake_cuda import silent
from gpusim.capture.sizes import Point
from gpusim.capture.tracing import Source

_TOKENS = 128
"""Tokens of a sequence unless a size says otherwise."""
_LABELS_OF_SEQUENCES = (
    "SequenceClassification",
    "ImageClassification",
    "AudioClassification",
    "NextSentencePrediction",
)
_UNLABELLED = ("CTC", "Detection", "Segmentation", "MultipleChoice", "VisionModel")
"""Heads whose labels are no classes: the gradient is that of all results."""


def transformers_source(name: str, sizes: Mapping[str, int], transformers: Any) -> Source:
    """What is captured of a configuration.

    Args:
        name: path of a ``config.json``, or of the folder that holds one.

    Raises:
        CaptureError: there is none, its architecture is unknown, or takes what nothing states.
    """
    path = Path(name)
    with silent():
        config = _config(name, path, transformers)
        made = _Architecture(config, transformers)
    chosen = made.sizes(f"hf:{name}", sizes)
    named = path.parent if path.suffix == ".json" else path
    title = named.resolve().name if path.name == "config.json" or path.is_dir() else path.stem

    def model(eager: bool) -> Any:
        with silent():
            return made.model(eager=eager)

    return Source(
        title,
        f"hf:{title} ({made.name}), torch {torch.__version__}, transformers {transformers.__version__}",
        model,
        made.inputs,
        chosen,
        targets=made.targets,
        token=made.token if made.generates else None,
        attends=made.fused,
        assumptions=made.assumptions,
        place=f"hf:{name}",
    )


def _config(name: str, path: Path, transformers: Any) -> Any:
    path = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CaptureError(f"hf:{name}: cannot be read: {error.strerror}; give the path of a config.json") from None
    except ValueError as error:
        raise CaptureError(f"hf:{name}: no JSON: {error}") from None
    kind = values.get("model_type") if isinstance(values, dict) else None
    try:
        return transformers.AutoConfig.for_model(kind).from_dict(values)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CaptureError(
            f"hf:{name}: model_type {kind!r}: {reason_of(error)}; "
            f"transformers {transformers.__version__} has to know it"
        ) from None


class _Architecture:
    """A class of models, and what its forward function takes."""

    def __init__(self, config: Any, transformers: Any) -> None:
        self._config = config
        names = config.architectures or []
        of = getattr(transformers, names[0], None) if names else None
        if of is None:
            mapping = transformers.AutoModelForCausalLM._model_mapping  # noqa: SLF001 -- no public name
            of = mapping.get(type(config), None) or transformers.AutoModel._model_mapping[type(config)]  # noqa: SLF001
        self._class = of[0] if isinstance(of, tuple) else of
        self.name: str = self._class.__name__
        self._takes = inspect.signature(self._class.forward).parameters
        self.fused = bool(getattr(self._class, "_supports_sdpa", False))
        self._main: str = self._class.main_input_name
        self._decodes = bool(getattr(config, "is_encoder_decoder", False)) and "decoder_input_ids" in self._takes
        self._text = getattr(config, "text_config", None) or config
        decoder = any(one in self.name for one in ("ForCausalLM", "LMHeadModel")) and not self._decodes
        heads = _number(self._text, "num_attention_heads")
        self._cached = next((one for one in ("past_key_values", "cache") if one in self._takes), "")
        self.generates = decoder and bool(self._cached) and heads is not None
        self._cache = transformers.DynamicCache
        self.assumptions = ["sequences have no padding"] if "attention_mask" in self._takes else []

    def model(self, *, eager: bool) -> Any:
        """The module, in the type that the configuration states."""
        kind = "eager" if eager or not self.fused else "sdpa"
        return self._class._from_config(self._config, attn_implementation=kind)  # noqa: SLF001 -- AutoModel's own way

    # Sizes ----------------------------------------------------------------------------------------

    def sizes(self, what: str, given: Mapping[str, int]) -> dict[str, int]:
        """Sizes with their values unless said otherwise.

        Raises:
            CaptureError: a size that the model does not have.
        """
        known: dict[str, int] = {"batch": 8}
        if self._takes_tokens:
            known["seq_len"] = min(_TOKENS, _number(self._text, "max_position_embeddings", "n_positions") or _TOKENS)
        if self.generates:
            known["past_len"] = known["seq_len"]
        if self._decodes:
            known["target_len"] = known.get("seq_len", _TOKENS)
        if "pixel_values" in self._takes:
            vision = getattr(self._config, "vision_config", None) or self._config
            known["image_size"] = _number(vision, "image_size") or 224
        if self._main == "input_values":
            known["samples"] = 160_000  # ten seconds
        if unknown := [name for name in given if name not in known]:
            raise CaptureError(f"{what}: has no size {unknown[0]}; it has {', '.join(known)}")
        return {**known, **given}

    @property
    def _takes_tokens(self) -> bool:
        return "input_ids" in self._takes and self._main in ("input_ids", "pixel_values")

    # Arguments ------------------------------------------------------------------------------------

    def inputs(self, point: Point) -> dict[str, Any]:
        """Arguments of a forward pass.

        Raises:
            ValueError: the model takes what is not known here.
        """
        batch = point["batch"]
        found: dict[str, Any] = {}
        if "seq_len" in point:
            found["input_ids"] = _tokens(batch, point["seq_len"])
            kinds = _number(self._text, "type_vocab_size") or 0
            if "token_type_ids" in self._takes and kinds > 1:
                found["token_type_ids"] = _tokens(batch, point["seq_len"])
        if "image_size" in point:
            vision = getattr(self._config, "vision_config", None) or self._config
            channels = _number(vision, "num_channels") or 3
            found["pixel_values"] = torch.empty(batch, channels, point["image_size"], point["image_size"])
        if self._main == "input_features":
            frames = 2 * (_number(self._config, "max_source_positions") or 1500)
            found["input_features"] = torch.empty(batch, _number(self._config, "num_mel_bins") or 80, frames)
        if self._main == "input_values":
            found["input_values"] = torch.empty(batch, point["samples"])
        if self._main not in found:
            raise ValueError(f"{self.name} takes {self._main}, which is not known; capture it from a script")
        if self._decodes:
            found["decoder_input_ids"] = _tokens(batch, point["target_len"])
        return found

    def token(self, point: Point, on_device: Callable[[Any], Any]) -> dict[str, Any]:
        """Arguments of a step of one more token of each sequence: it, and keys and values of those before."""
        text, batch = self._text, point["batch"]
        heads = _number(text, "num_attention_heads") or 1
        features = _number(text, "head_dim") or (_number(text, "hidden_size") or 1) // heads
        shape = batch, self._heads_of_keys(heads), point["past_len"], features
        cache = self._cache(config=text)
        for layer in range(_number(text, "num_hidden_layers") or 1):
            keys, values = (on_device(torch.empty(shape, device="meta")) for _ in range(2))
            cache.update(keys, values, layer)
        return {"input_ids": on_device(_tokens(batch, 1)), self._cached: cache, "use_cache": True}

    def _heads_of_keys(self, heads: int) -> int:
        if getattr(self._text, "multi_query", False) and not getattr(self._text, "new_decoder_architecture", False):
            return 1
        return _number(self._text, "num_key_value_heads", "num_kv_heads") or heads

    def targets(self, point: Point) -> dict[str, Any]:
        """Further arguments of training: classes of what the head scores."""
        batch = point["batch"]
        takes, found = self._takes, {}
        if any(one in self.name for one in _UNLABELLED):
            return {}
        if "labels" in takes and not any(one in self.name for one in ("CLIP", "Siglip")):
            of_sequences = any(one in self.name for one in _LABELS_OF_SEQUENCES)
            length = point.get("target_len", point.get("seq_len"))
            found["labels"] = _tokens(batch) if of_sequences or length is None else _tokens(batch, length)
        if "next_sentence_label" in takes:
            found["next_sentence_label"] = _tokens(batch)
        if "start_positions" in takes:
            found |= {"start_positions": _tokens(batch), "end_positions": _tokens(batch)}
        return found


def _tokens(*shape: int) -> Any:
    return torch.empty(shape, dtype=torch.long, device="meta")


def _number(config: Any, *names: str) -> int | None:
    """A number of a configuration; of a list, its first."""
    for name in names:
        value = getattr(config, name, None)
        value = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(value, int) and value > 0:
            return value
    return None

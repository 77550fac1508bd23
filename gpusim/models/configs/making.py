"""A model file of a configuration, by the kind of model that it names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from gpusim.errors import excerpt
from gpusim.models.configs.decoders import FAMILIES, Parts, llama
from gpusim.models.configs.others import bert, gpt2, phi
from gpusim.models.configs.reading import Config, read_config
from gpusim.models.configs.writing import SEQUENCE, Draft

MAKERS: Mapping[str, Callable[[Config], Parts]] = {
    **{name: partial(llama, family=family) for name, family in FAMILIES.items()},
    "gpt2": gpt2,
    "phi": phi,
    "bert": bert,
    "roberta": bert,
    "xlm-roberta": bert,
}
"""What makes the layers of a model, by ``model_type``."""
INPUTS: Mapping[Callable[[Config], Parts], Mapping[str, tuple[str, ...]]] = {
    gpt2: {"tokens": SEQUENCE, "places": ("seq_len",)},
    bert: {
        "tokens": SEQUENCE,
        "segments": SEQUENCE,
        "places": ("seq_len",),
        "mask": ("batch", "1", "1", "seq_len"),
    },
}
_CLASSES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "GPT2LMHeadModel": "gpt2",
}


def model_text(path: Path, title: str = "", source: str = "") -> str:
    """The text of a model file, made of a ``config.json``.

    Args:
        title: what the model is called; its name in the configuration, or the folder's, if empty.
        source: where the configuration is from; its path if empty.

    Raises:
        ConfigError: an unknown kind of model, or a key that is missing or wrong; one line.
        OSError: the file cannot be read.
    """
    config = read_config(path)
    kind = config.text("model_type", "") or next((_CLASSES[one] for one in _classes(config) if one in _CLASSES), "")
    if not kind:
        raise config.error("model_type", f"is missing; add it: one of {', '.join(sorted(MAKERS))}")
    if kind not in MAKERS:
        close = difflib.get_close_matches(kind, MAKERS, n=3, cutoff=0.5)
        near = f"nearest are {', '.join(close)}" if close else f"known are {', '.join(sorted(MAKERS))}"
        raise config.error(
            "model_type", f"no layers are known of '{excerpt(kind)}'; {near}; 'gpusim capture hf:{path}' traces others"
        )
    make = MAKERS[kind]
    parts = make(config)
    classes = _classes(config)
    of = f"; layers as transformers' {classes[0]}" if classes else f"; layers as transformers' {kind}"
    encodes = make is bert
    draft = Draft(
        title=title or config.text("_name_or_path", "").rpartition("/")[2] or path.resolve().parent.name,
        source=(source or path.name) + of,
        item="seq",
        precision="fp16" if encodes or config.text("torch_dtype", config.text("dtype", "")) == "float16" else "bf16",
        fusion="none" if encodes else "serving",
        sizes=parts.sizes,
        limits=parts.limits,
        layers=parts.layers,
        blocks=parts.blocks,
        inputs=INPUTS.get(make, {}),
        block_inputs={"encoder_layer": ("input", "mask")} if encodes else {},
    )
    return draft.text()


def _classes(config: Config) -> list[str]:
    return config.names("architectures")

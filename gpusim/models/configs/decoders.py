"""Decoders of one sequence: Llama and its relatives, mixtures of experts, latent attention, GPT-2, Phi."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from gpusim.models.configs.reading import Config
from gpusim.models.configs.writing import entry

DEFAULT_LENGTH = 4096
"""Tokens of a sequence unless the model takes fewer."""
FUNCTIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
    "relu": "relu",
}
"""Layers by the names that transformers gives activations."""


@dataclass(frozen=True, slots=True)
class Family:
    """In what the relatives of Llama differ from it."""

    query_bias: bool = False
    """Queries, keys and values have biases, unless the configuration says otherwise (``attention_bias``)."""
    query_norm: bool = False
    """Heads of queries and keys are normalised."""
    norms_after: bool = False
    """Attention and feed-forward network are normalised before they are added, too."""
    scaled_words: bool = False
    """Embeddings are multiplied by the root of their size."""
    capped: bool = False
    """Scores of the vocabulary pass through a hyperbolic tangent."""
    tied: bool = False
    """Scores share the weight of the embedding, unless the configuration says otherwise."""
    windowed: bool = False
    """A sliding window of attention is used where the configuration states one."""
    latent: bool = False
    """Keys and values are kept as latent vectors (MLA)."""
    function: str = "silu"


FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(windowed=True),
    "mixtral": Family(windowed=True),
    "qwen2": Family(query_bias=True),
    "qwen2_moe": Family(query_bias=True),
    "qwen3": Family(query_norm=True),
    "qwen3_moe": Family(query_norm=True),
    "phi3": Family(windowed=True),
    "gemma": Family(scaled_words=True, tied=True, function="gelu_pytorch_tanh"),
    "gemma2": Family(
        scaled_words=True, tied=True, norms_after=True, capped=True, windowed=True, function="gelu_pytorch_tanh"
    ),
    "gemma3_text": Family(
        scaled_words=True, tied=True, norms_after=True, query_norm=True, windowed=True, function="gelu_pytorch_tanh"
    ),
    "deepseek_v2": Family(latent=True),
    "deepseek_v3": Family(latent=True),
}
"""Relatives of Llama by transformers' ``model_type``."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a file is made of."""

    sizes: Mapping[str, int | str]
    limits: Mapping[str, int]
    blocks: Mapping[str, Sequence[str]]
    layers: Sequence[str]


def llama(config: Config, family: Family) -> Parts:
    """A relative of Llama.

    Raises:
        ConfigError: a key is missing or wrong.
    """
    count, longest = config.size("num_hidden_layers"), config.size("max_position_embeddings")
    kinds = [(_expert(config, at), _window(config, family, at)) for at in range(count)]
    sizes = _sizes(config, family, longest, kinds)
    blocks: dict[str, Sequence[str]] = {
        _name(kind, kinds): (
            *(_latent(config) if family.latent else _attention(config, family, kind[1])),
            *_second_half(config, family, expert=kind[0]),
        )
        for kind in dict.fromkeys(kinds)
    }
    scores = {"shares": "words"} if config.flag("tie_word_embeddings", default=family.tied) else {}
    biased = {} if config.flag("lm_head_bias", default=False) else {"bias": False}
    layers = [
        entry(op="embedding", name="words", inputs=["tokens"], entries="vocabulary", features="hidden"),
        *([entry(op="scale")] if family.scaled_words else []),
        *_runs(kinds, blocks),
        entry(op="rms_norm"),
        entry(op="linear", name="scores", features="vocabulary", **biased, **scores),
        *_cap(config, family),
        entry(op="cross_entropy", name="loss"),
    ]
    return Parts(sizes, {"seq_len": longest}, blocks, layers)


def _sizes(
    config: Config, family: Family, longest: int, kinds: Sequence[tuple[bool, int | None]]
) -> Mapping[str, int | str]:
    heads = config.size("num_attention_heads")
    sizes: dict[str, int | str] = {
        "batch": 1,
        "seq_len": min(DEFAULT_LENGTH, longest),
        "hidden": config.size("hidden_size"),
        "layers": len(kinds),
        "heads": heads,
    }
    if family.latent:
        sizes |= {
            "plain": config.size("qk_nope_head_dim"),
            "turned": config.size("qk_rope_head_dim"),
            "value_dim": config.size("v_head_dim"),
            "latent": config.size("kv_lora_rank"),
        }
        if config.has("q_lora_rank"):
            sizes["query_latent"] = config.size("q_lora_rank")
    else:
        shared = config.size("num_key_value_heads", default=heads)
        if heads % shared:
            raise config.error(
                "num_key_value_heads", f"{shared} do not divide {heads} heads evenly; correct one of them"
            )
        if not config.has("head_dim") and sizes["hidden"] % heads:
            raise config.error("head_dim", f"is missing, and hidden_size does not divide into {heads} heads; add it")
        sizes["key_heads"] = shared
        sizes["head_dim"] = config.size("head_dim", default=int(sizes["hidden"]) // heads)
    if any(not expert for expert, _ in kinds):
        sizes["ffn"] = config.size("intermediate_size")
    if any(expert for expert, _ in kinds):
        sizes["experts"] = config.size("num_local_experts", "n_routed_experts", "num_experts")
        sizes["top_k"] = config.size("num_experts_per_tok")
        sizes["expert_ffn"] = config.size("moe_intermediate_size", "intermediate_size")
        if shared_ffn := _shared_ffn(config):
            sizes["shared_ffn"] = shared_ffn
    if windows := sorted({window for _, window in kinds if window}):
        sizes["window"] = windows[0]
    sizes["vocabulary"] = config.size("vocab_size")
    return sizes


def _shared_ffn(config: Config) -> int:
    """Features of the expert that takes all tokens; 0 where there is none."""
    if config.has("shared_expert_intermediate_size"):
        return config.size("shared_expert_intermediate_size")
    shared = config.data.get("n_shared_experts")
    return config.size("n_shared_experts") * config.size("moe_intermediate_size") if shared else 0


def _expert(config: Config, at: int) -> bool:
    """Whether a layer has experts."""
    if not any(config.has(name) for name in ("num_local_experts", "n_routed_experts", "num_experts")):
        return False
    if at in config.data.get("mlp_only_layers", ()):
        return False
    if config.has("n_routed_experts"):
        return (
            at >= int(config.number("first_k_dense_replace", 0)) and at % config.size("moe_layer_freq", default=1) == 0
        )
    return (at + 1) % config.size("decoder_sparse_step", default=1) == 0


def _window(config: Config, family: Family, at: int) -> int | None:
    """Keys that a query of a layer sees; None: all."""
    if not config.has("sliding_window") or not (family.windowed or config.flag("use_sliding_window", default=False)):
        return None
    window = config.size("sliding_window")
    if kinds := config.names("layer_types"):
        if len(kinds) <= at:
            raise config.error("layer_types", f"has {len(kinds)} of num_hidden_layers entries; add the others")
        return window if kinds[at] == "sliding_attention" else None
    if config.text("model_type", "") == "gemma2":
        return None if at % 2 else window
    if config.text("model_type", "") == "gemma3_text":
        return None if (at + 1) % config.size("sliding_window_pattern", default=6) == 0 else window
    if config.has("max_window_layers") and at < int(config.number("max_window_layers", 0)):
        return None
    return window if window < config.size("max_position_embeddings") else None


def _attention(config: Config, family: Family, window: int | None) -> list[str]:
    bias = config.flag("attention_bias", default=config.flag("qkv_bias", default=family.query_bias))
    out_bias = config.flag("attention_bias", default=False) and config.text("model_type", "") == "llama"
    seen = {"window": "window"} if window else {}
    normed = ["query", "key"]
    norms = []
    if family.query_norm:
        normed = ["normed_query", "normed_key"]
        norms = [
            entry(op="rms_norm", name="normed_query", inputs=["query"], heads="heads"),
            entry(op="rms_norm", name="normed_key", inputs=["key"], heads="key_heads"),
        ]
    share = config.number("partial_rotary_factor", 1.0)
    part = int(share * _head_dim(config))
    turned = [{} if share == 1.0 else {"features": f"{heads} * {part}"} for heads in ("heads", "key_heads")]
    return [
        entry(op="rms_norm", name="normed"),
        entry(op="linear", name="query", inputs=["normed"], features="heads * head_dim", bias=bias),
        entry(op="linear", name="key", inputs=["normed"], features="key_heads * head_dim", bias=bias),
        entry(op="linear", name="value", inputs=["normed"], features="key_heads * head_dim", bias=bias),
        *norms,
        entry(op="rope", name="turned_query", inputs=[normed[0]], **turned[0]),
        entry(op="rope", name="turned_key", inputs=[normed[1]], **turned[1]),
        entry(
            op="attention",
            inputs=["turned_query", "turned_key", "value"],
            heads="heads",
            key_heads="key_heads",
            causal=True,
            **seen,
        ),
        entry(op="linear", name="projection", features="hidden", bias=out_bias),
    ]


def _head_dim(config: Config) -> int:
    return config.size("head_dim", default=config.size("hidden_size") // config.size("num_attention_heads"))


def _latent(config: Config) -> list[str]:
    query = "normed"
    down = []
    if config.has("q_lora_rank"):
        query = "normed_query"
        down = [
            entry(op="linear", name="query_latent", inputs=["normed"], features="query_latent", bias=False),
            entry(op="rms_norm", name="normed_query"),
        ]
    return [
        entry(op="rms_norm", name="normed"),
        *down,
        entry(op="linear", name="kept", inputs=["normed"], features="latent + turned", bias=False),
        entry(op="linear", name="query", inputs=[query], features="heads * (plain + turned)", bias=False),
        entry(op="slice", name="latent", inputs=["kept"], length="latent"),
        entry(op="rms_norm", name="normed_latent"),
        entry(op="slice", name="key", inputs=["kept"], start="latent", length="turned"),
        entry(op="rope", name="turned_query", inputs=["query"], features="heads * turned"),
        entry(op="rope", name="turned_key", inputs=["key"]),
        entry(
            op="latent_attention",
            inputs=["turned_query", "normed_latent", "turned_key"],
            heads="heads",
            plain="plain",
            value_dim="value_dim",
        ),
        entry(op="linear", name="projection", features="hidden", bias=False),
    ]


def _second_half(config: Config, family: Family, *, expert: bool) -> list[str]:
    """The residual sum after attention, and the feed-forward network or the experts with theirs."""
    function = config.text("hidden_activation", config.text("hidden_act", family.function))
    if function not in FUNCTIONS:
        known = ", ".join(sorted(FUNCTIONS))
        raise config.error("hidden_act", f"no layer computes '{function[:40]}'; known are {known}")
    gate = FUNCTIONS[function]
    bias = config.flag("mlp_bias", default=False)
    after = [entry(op="rms_norm", name="normed_attention")] if family.norms_after else []
    found = [*after, entry(op="add", name="attended", inputs=["normed_attention" if after else "projection", "input"])]
    found.append(entry(op="rms_norm", name="normed_again"))
    last = "narrow"
    if not expert:
        found += _gated("", "ffn", gate, bias=bias)
    else:
        last = "experts"
        biased = {"bias": True} if config.text("topk_method", "") == "noaux_tc" else {}
        if gate != "silu":
            biased["function"] = gate  # type: ignore[assignment]
        found.append(
            entry(op="experts", inputs=["normed_again"], experts="experts", top_k="top_k", ffn="expert_ffn", **biased)
        )
        if _shared_ffn(config):
            found += _gated("shared_", "shared_ffn", gate, bias=bias)
            last = "both"
            shared = "shared_narrow"
            if config.text("model_type", "") == "qwen2_moe":
                found += [
                    entry(op="linear", name="shared_gate_of_all", inputs=["normed_again"], features=1, bias=False),
                    entry(op="sigmoid"),
                    entry(op="mul", name="shared_part", inputs=["shared_narrow", "sigmoid"]),
                ]
                shared = "shared_part"
            found.append(entry(op="add", name="both", inputs=["experts", shared]))
    if family.norms_after:
        found.append(entry(op="rms_norm", name="normed_result", inputs=[last]))
        last = "normed_result"
    return [*found, entry(op="add", inputs=[last, "attended"])]


def _gated(prefix: str, features: str, function: str, *, bias: bool) -> list[str]:
    """A feed-forward network with a gate, such as SwiGLU."""
    return [
        entry(op="linear", name=f"{prefix}gate", inputs=["normed_again"], features=features, bias=bias),
        entry(op=function, name=f"{prefix}{function}" if prefix else ""),
        entry(op="linear", name=f"{prefix}wide", inputs=["normed_again"], features=features, bias=bias),
        entry(op="mul", name=f"{prefix}mul" if prefix else "", inputs=[f"{prefix}{function}", f"{prefix}wide"]),
        entry(op="linear", name=f"{prefix}narrow", features="hidden", bias=bias),
    ]


def _cap(config: Config, family: Family) -> list[str]:
    if not family.capped or not config.has("final_logit_softcapping"):
        return []
    return [entry(op="scale"), entry(op="tanh"), entry(op="scale")]


def _name(kind: tuple[bool, int | None], kinds: Sequence[tuple[bool, int | None]]) -> str:
    """The name of the block of a kind of layers, which says in what kinds differ."""
    expert, window = kind
    several = [len({other[at] for other in kinds}) > 1 for at in (0, 1)]
    parts = [
        ("expert" if expert else "dense") if several[0] else "",
        ("local" if window else "whole") if several[1] else "",
    ]
    return "_".join([*(part for part in parts if part), "layer"]) if any(parts) else "decoder_layer"


def _runs(kinds: Sequence[tuple[bool, int | None]], blocks: dict[str, Sequence[str]]) -> list[str]:
    """Uses of the blocks in their order; a group of several kinds that repeats is a block of its own."""
    names = [_name(kind, kinds) for kind in kinds]
    period = next(size for size in range(1, len(names) + 1) if names[size:] == names[:-size])
    if period == 1:
        return [entry(use=names[0], name="decoder", repeat="layers")]
    whole = len(names) // period
    if whole > 1:
        blocks["group"] = [_used(name, len(list(run))) for name, run in groupby(names[:period])]
        head = [entry(use="group", name="decoder", repeat=whole)]
        rest = names[whole * period :]
    else:
        head, rest = [], names
    return [*head, *(_used(name, len(list(run))) for name, run in groupby(rest))]


def _used(name: str, count: int) -> str:
    return entry(use=name, repeat=count) if count > 1 else entry(use=name)

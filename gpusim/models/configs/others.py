"""Models with layer norms: GPT-2, Phi, BERT and RoBERTa."""

from __future__ import annotations

from gpusim.models.configs.decoders import DEFAULT_LENGTH, FUNCTIONS, Parts
from gpusim.models.configs.reading import Config
from gpusim.models.configs.writing import entry

WORDS = entry(op="embedding", name="words", inputs=["tokens"], entries="vocabulary", features="hidden")
PLACES = entry(op="embedding", name="position", inputs=["places"], entries="positions", features="hidden")


def gpt2(config: Config) -> Parts:
    """GPT-2 (``GPT2LMHeadModel``)."""
    hidden, positions = config.size("n_embd"), config.size("n_positions", "n_ctx")
    sizes: dict[str, int | str] = {
        "batch": 1,
        "seq_len": min(DEFAULT_LENGTH, positions),
        "hidden": hidden,
        "layers": config.size("n_layer"),
        "heads": config.size("n_head"),
        "ffn": config.size("n_inner", default=4 * hidden),
        "vocabulary": config.size("vocab_size"),
        "positions": positions,
    }
    layer = [
        entry(op="layer_norm"),
        entry(op="linear", name="queries_keys_values", features="3 * hidden", by_inputs=True),
        entry(op="slice", name="query", inputs=["queries_keys_values"], length="hidden"),
        entry(op="slice", name="key", inputs=["queries_keys_values"], start="hidden", length="hidden"),
        entry(op="slice", name="value", inputs=["queries_keys_values"], start="2 * hidden", length="hidden"),
        entry(op="attention", inputs=["query", "key", "value"], heads="heads", causal=True),
        entry(op="linear", name="projection", features="hidden", by_inputs=True),
        entry(op="add", name="attended", inputs=["projection", "input"]),
        entry(op="layer_norm"),
        entry(op="linear", name="wide", features="ffn", by_inputs=True),
        entry(op=_function(config, "activation_function", "gelu_new")),
        entry(op="linear", name="narrow", features="hidden", by_inputs=True),
        entry(op="add", inputs=["narrow", "attended"]),
    ]
    layers = [
        WORDS,
        PLACES,
        entry(op="add", inputs=["words", "position"]),
        entry(use="decoder_layer", name="decoder", repeat="layers"),
        entry(op="layer_norm"),
        entry(op="linear", name="scores", features="vocabulary", bias=False, shares="words"),
        entry(op="cross_entropy", name="loss"),
    ]
    return Parts(sizes, {"seq_len": positions}, {"decoder_layer": layer}, layers)


def phi(config: Config) -> Parts:
    """Phi-1 to Phi-2 (``PhiForCausalLM``): attention and feed-forward network take the same norm."""
    hidden, heads = config.size("hidden_size"), config.size("num_attention_heads")
    positions = config.size("max_position_embeddings")
    sizes: dict[str, int | str] = {
        "batch": 1,
        "seq_len": min(DEFAULT_LENGTH, positions),
        "hidden": hidden,
        "layers": config.size("num_hidden_layers"),
        "heads": heads,
        "key_heads": config.size("num_key_value_heads", default=heads),
        "head_dim": hidden // heads,
        "turned": int(config.number("partial_rotary_factor", 0.5) * (hidden // heads)),
        "ffn": config.size("intermediate_size"),
        "vocabulary": config.size("vocab_size"),
    }
    layer = [
        entry(op="layer_norm", name="normed"),
        entry(op="linear", name="query", inputs=["normed"], features="heads * head_dim"),
        entry(op="linear", name="key", inputs=["normed"], features="key_heads * head_dim"),
        entry(op="linear", name="value", inputs=["normed"], features="key_heads * head_dim"),
        entry(op="rope", name="turned_query", inputs=["query"], features="heads * turned"),
        entry(op="rope", name="turned_key", inputs=["key"], features="key_heads * turned"),
        entry(
            op="attention",
            inputs=["turned_query", "turned_key", "value"],
            heads="heads",
            key_heads="key_heads",
            causal=True,
        ),
        entry(op="linear", name="projection", features="hidden"),
        entry(op="linear", name="wide", inputs=["normed"], features="ffn"),
        entry(op=_function(config, "hidden_act", "gelu_new")),
        entry(op="linear", name="narrow", features="hidden"),
        entry(op="add", name="both", inputs=["projection", "narrow"]),
        entry(op="add", inputs=["both", "input"]),
    ]
    layers = [
        WORDS,
        entry(use="decoder_layer", name="decoder", repeat="layers"),
        entry(op="layer_norm"),
        entry(op="linear", name="scores", features="vocabulary"),
        entry(op="cross_entropy", name="loss"),
    ]
    return Parts(sizes, {"seq_len": positions}, {"decoder_layer": layer}, layers)


def bert(config: Config) -> Parts:
    """An encoder (``BertModel``, ``RobertaModel``): all tokens see each other; the first one is pooled.

    RoBERTa's first two positions stand for padding.
    """
    positions, kinds = config.size("max_position_embeddings"), config.size("type_vocab_size", default=2)
    padding = 2 if "roberta" in config.text("model_type", "") else 0
    longest = positions - padding
    sizes: dict[str, int | str] = {
        "batch": 1,
        "seq_len": min(512, longest),
        "hidden": config.size("hidden_size"),
        "layers": config.size("num_hidden_layers"),
        "heads": config.size("num_attention_heads"),
        "ffn": config.size("intermediate_size"),
        "vocabulary": config.size("vocab_size"),
        "positions": positions,
    }
    layer = [
        entry(op="linear", name="query", inputs=["input"], features="hidden"),
        entry(op="linear", name="key", inputs=["input"], features="hidden"),
        entry(op="linear", name="value", inputs=["input"], features="hidden"),
        entry(op="attention", inputs=["query", "key", "value", "mask"], heads="heads"),
        entry(op="linear", name="projection", features="hidden"),
        entry(op="add", inputs=["projection", "input"]),
        entry(op="layer_norm", name="attended"),
        entry(op="linear", name="wide", features="ffn"),
        entry(op=_function(config, "hidden_act", "gelu")),
        entry(op="linear", name="narrow", features="hidden"),
        entry(op="add", inputs=["narrow", "attended"]),
        entry(op="layer_norm"),
    ]
    layers = [
        WORDS,
        entry(op="embedding", name="kinds", inputs=["segments"], entries=kinds, features="hidden"),
        PLACES,
        entry(op="add", inputs=["words", "kinds"]),
        entry(op="add", inputs=["add", "position"]),
        entry(op="layer_norm"),
        entry(use="encoder_layer", name="encoder", repeat="layers", inputs=["layer_norm", "mask"]),
        entry(op="slice", name="first", dim=1, length=1),
        entry(op="flatten"),
        entry(op="linear", name="pooler", features="hidden"),
        entry(op="tanh"),
    ]
    return Parts(sizes, {"seq_len": longest}, {"encoder_layer": layer}, layers)


def _function(config: Config, key: str, default: str) -> str:
    name = config.text(key, default)
    if name not in FUNCTIONS:
        raise config.error(key, f"no layer computes '{name[:40]}'; known are {', '.join(sorted(FUNCTIONS))}")
    return FUNCTIONS[name]

"""How large a model's KV cache grows, read from its config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WINDOWED = ("sliding_attention", "chunked_attention")
WITHOUT_CACHE = ("linear_attention", "mamba", "mamba2", "conv", "recurrent")


class CannotTell(Exception):
    """The version's files say too little for an estimate."""


@dataclass(frozen=True)
class KvCache:
    """What one GPU keeps: values of a token in one layer, and how many layers keep it how long.

    `windowed` layers keep no more than the last `window` tokens. With pipeline parallelism a GPU
    has a fraction of the layers.
    """

    token_values: float
    layers: float
    windowed: float = 0.0
    window: int = 0

    def values(self, tokens: int) -> float:
        """Values that one request of so many tokens keeps."""
        kept = self.layers * tokens + self.windowed * min(tokens, self.window)
        return self.token_values * kept


def language_model(hf_config: Mapping[str, Any]) -> Any:
    """The language model's configuration, with the defaults that config.json leaves unsaid.

    Raises CannotTell for an architecture that transformers does not know.
    """
    from transformers import AutoConfig  # takes seconds to import, and only this needs it

    fields = {key: value for key, value in hf_config.items() if key != "model_type"}
    try:
        return AutoConfig.for_model(str(hf_config.get("model_type")), **fields).get_text_config()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CannotTell(f"transformers cannot read its config.json: {error}") from None


def kv_cache(config: Any, tensor_parallel: int, pipeline_parallel: int) -> KvCache:
    """The cache of a language model's `config`, split over GPUs. Raises CannotTell."""
    kinds = _layer_kinds(config)
    if not kinds:
        raise CannotTell("its config.json does not say how many layers it has")
    windowed = sum(kind in WINDOWED for kind in kinds)
    full = len(kinds) - windowed - sum(kind in WITHOUT_CACHE for kind in kinds)
    if not full + windowed:
        raise CannotTell("none of its layers has a KV cache")
    window = getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", 0)
    return KvCache(
        token_values=_token_values(config, tensor_parallel),
        layers=full / pipeline_parallel,
        windowed=windowed / pipeline_parallel,
        window=int(window or 0),
    )


def _layer_kinds(config: Any) -> list[str]:
    """One name a layer; where nothing is said, a window is every layer's."""
    windowed = bool(getattr(config, "sliding_window", None))
    default = "sliding_attention" if windowed else "full_attention"
    count = int(getattr(config, "num_hidden_layers", 0) or 0)
    return list(getattr(config, "layer_types", None) or [default] * count)


def _token_values(config: Any, tensor_parallel: int) -> float:
    """Values that a GPU keeps of one token in one layer: a key and a value for each of its heads.

    Models with multi-head latent attention keep one latent instead, on every GPU.
    """
    if latent := getattr(config, "kv_lora_rank", None):
        return float(latent + (getattr(config, "qk_rope_head_dim", None) or 0))
    heads = int(getattr(config, "num_attention_heads", None) or 1)
    kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
    width = getattr(config, "head_dim", None) or int(getattr(config, "hidden_size", 0)) / heads
    return 2 * max(1.0, kv_heads / tensor_parallel) * float(width)

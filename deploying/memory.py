"""Whether weights and KV cache fit the GPU: an estimate from sizes, made before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploying.hardware import GIB, Hardware
from deploying.registered import Version

DTYPE_BYTES = {"float32": 4.0, "float16": 2.0, "half": 2.0, "bfloat16": 2.0, "float": 4.0}
QUANTIZED_BYTES = {"fp8": 1.0, "bitsandbytes": 0.6, "int8": 1.0, "experts_int8": 1.0}
DEFAULT_UTILIZATION = 0.92
RESERVED_GIB = 1.5  # activations of a prefill, CUDA graphs and the CUDA context, as vLLM takes them


@dataclass(frozen=True)
class Estimate:
    """Bytes per GPU. `kv_tokens` is how many tokens of all requests fit the cache together."""

    weights: float
    usable: float
    kv_per_token: float
    max_model_len: int

    @property
    def kv_tokens(self) -> int:
        """Tokens that fit beside the weights; below 0 when the weights alone do not."""
        return int((self.usable - self.weights) / self.kv_per_token)

    @property
    def fits(self) -> bool:
        """Whether one request of full length fits, without which vLLM does not start."""
        return self.kv_tokens >= self.max_model_len

    def describe(self) -> str:
        """The figures in GiB and tokens."""
        cache = self.kv_per_token * self.max_model_len / GIB
        return (
            f"weights {self.weights / GIB:.1f} GiB + KV cache {cache:.1f} GiB for one request of "
            f"{self.max_model_len} tokens, of {self.usable / GIB:.1f} GiB usable a GPU; "
            f"room for {max(0, self.kv_tokens)} tokens"
        )


def estimate(version: Version, hardware: Hardware) -> Estimate:
    """The estimate for `version` on `hardware`, by its dtype, quantization and parallelism."""
    args, config = version.engine_args, _text_config(version.hf_config)
    parallel = int(args.get("tensor_parallel_size") or 1)
    utilization = float(args.get("gpu_memory_utilization") or DEFAULT_UTILIZATION)
    usable = (hardware.gpu.memory_gib * utilization - RESERVED_GIB) * GIB
    return Estimate(
        weights=weights_in_memory(version) / parallel,
        usable=usable,
        kv_per_token=kv_bytes_per_token(config, args, parallel),
        max_model_len=int(args.get("max_model_len") or config.get("max_position_embeddings") or 0),
    )


def weights_in_memory(version: Version) -> float:
    """Bytes of the weights once loaded, over all GPUs."""
    if version.hf_config.get("quantization_config"):
        return version.weights_bytes
    stored = DTYPE_BYTES.get(stored_dtype(version.hf_config), 2.0)
    quantization = version.engine_args.get("quantization")
    loaded = QUANTIZED_BYTES.get(str(quantization)) or DTYPE_BYTES[compute_dtype(version)]
    return version.weights_bytes / stored * loaded


def kv_bytes_per_token(config: Mapping[str, Any], args: Mapping[str, Any], parallel: int) -> float:
    """Bytes of keys and values that one token keeps on each GPU, over all layers."""
    heads = int(config.get("num_attention_heads") or 1)
    kv_heads = max(1.0, int(config.get("num_key_value_heads") or heads) / parallel)
    head_dim = int(config.get("head_dim") or int(config.get("hidden_size") or 0) / heads)
    layers = int(config.get("num_hidden_layers") or 0)
    quantized = str(args.get("kv_cache_dtype") or "auto").startswith("fp8")
    return 2 * layers * kv_heads * head_dim * (1.0 if quantized else 2.0)


def stored_dtype(hf_config: Mapping[str, Any]) -> str:
    """The dtype that the weight files are in."""
    config = _text_config(hf_config)
    return str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")


def compute_dtype(version: Version) -> str:
    """The dtype that vLLM will compute in: the one asked for, or its choice for `auto`."""
    asked = str(version.engine_args.get("dtype") or "auto")
    if asked != "auto":
        return asked if asked in DTYPE_BYTES else "bfloat16"
    stored = stored_dtype(version.hf_config)
    return "float16" if stored in ("float16", "half", "float32") else "bfloat16"


def _text_config(hf_config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a configuration that also has others."""
    nested = hf_config.get("text_config")
    return {**hf_config, **nested} if isinstance(nested, Mapping) else hf_config

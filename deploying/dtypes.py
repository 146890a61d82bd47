"""How many bytes a version's weights and cached values take, by dtype and quantization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deploying.hardware import Gpu
from deploying.registered import Version

DTYPE_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}
ALIASES = {"float": "float32", "half": "float16"}
UNSTABLE_IN_FLOAT16 = ("gemma2", "gemma3", "gemma3_text", "glm4")  # vLLM refuses the pair
# What vLLM quantizes to while it loads; every other method finds its weights quantized on disk.
QUANTIZED_BYTES = {
    "fp8": 1.0,
    "fp8_per_tensor": 1.0,
    "fp8_per_block": 1.0,
    "fp8_per_channel": 1.0,
    "int8_per_channel_weight_only": 1.0,
    "experts_int8": 1.0,
    "mxfp8": 1.04,
    "nvfp4_per_token": 0.57,
}
CACHED_BYTES = {"fp8": 1.0, "int8": 1.0, "nvfp4": 0.57, "int4": 0.57}  # by how the name begins


def stored_dtype(hf_config: Mapping[str, Any]) -> str:
    """The dtype that the weight files are in."""
    nested = hf_config.get("text_config")
    config = {**hf_config, **nested} if isinstance(nested, Mapping) else hf_config
    stored = str(config.get("dtype") or config.get("torch_dtype") or "bfloat16")
    return ALIASES.get(stored, stored)


def compute_dtype(version: Version, gpu: Gpu | None = None) -> str:
    """The dtype that vLLM computes in: the one asked for, or its choice for `auto`.

    For `auto` it takes the stored one where the card has it and the architecture allows it.
    """
    asked = str(version.engine_args.get("dtype") or "auto")
    if asked != "auto":
        return ALIASES.get(asked, asked)
    possible = ["bfloat16", "float16", "float32"]
    if gpu is not None and not gpu.bfloat16:
        possible.remove("bfloat16")
    if version.hf_config.get("model_type") in UNSTABLE_IN_FLOAT16:
        possible.remove("float16")
    stored = stored_dtype(version.hf_config)
    return stored if stored in possible and stored != "float32" else possible[0]


def weights_in_memory(version: Version, gpu: Gpu | None = None) -> float:
    """Bytes of the weights once loaded, over all GPUs."""
    method = version.engine_args.get("quantization")
    quantized = QUANTIZED_BYTES.get(str(method))
    if version.hf_config.get("quantization_config") or (method and quantized is None):
        return version.weights_bytes
    stored = DTYPE_BYTES.get(stored_dtype(version.hf_config), 2.0)
    loaded = quantized or DTYPE_BYTES.get(compute_dtype(version, gpu), 2.0)
    return version.weights_bytes / stored * loaded


def cached_value(version: Version, gpu: Gpu | None = None) -> float:
    """Bytes of one value in the KV cache: its own dtype, or else that of the computation."""
    asked = str(version.engine_args.get("kv_cache_dtype") or "auto")
    if asked == "auto":
        return DTYPE_BYTES.get(compute_dtype(version, gpu), 2.0)
    return next((size for begins, size in CACHED_BYTES.items() if asked.startswith(begins)), 2.0)

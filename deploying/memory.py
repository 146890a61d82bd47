"""Whether weights and KV cache fit the GPU: an estimate from sizes, made before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from deploying.dtypes import cached_value, weights_in_memory
from deploying.hardware import GIB, Gpu
from deploying.kv_cache import CannotTell, kv_cache, language_model
from deploying.registered import Version

DEFAULT_UTILIZATION = 0.92  # vLLM's own
RESERVED_GIB = 1.5  # activations of a prefill, CUDA graphs and the CUDA context, as vLLM takes them


@dataclass(frozen=True)
class Estimate:
    """Bytes on each GPU: the weights, the cache of one request of full length, the cache's room.

    `room` is below 0 when the weights alone are too large.
    """

    weights: float
    request: float
    room: float
    max_model_len: int

    @property
    def fits(self) -> bool:
        """Whether one request of full length fits, without which vLLM does not start."""
        return self.room >= self.request

    def describe(self) -> str:
        """The figures in GiB, and how many requests of full length fit together."""
        room = max(0.0, self.room)
        return (
            f"weights {self.weights / GIB:.1f} GiB + KV cache {self.request / GIB:.2f} GiB for one "
            f"request of {self.max_model_len} tokens, on each GPU; {room / GIB:.1f} GiB are left "
            f"for the cache, {room / self.request:.1f} times as much"
        )


def estimate(version: Version, gpu: Gpu) -> Estimate:
    """By the version's dtype, quantization and parallelism. Raises CannotTell."""
    if not version.weights_bytes:
        raise CannotTell("no weight files were found in the version")
    args, config = version.engine_args, language_model(version.hf_config)
    tensor, pipeline = _count(args, "tensor_parallel_size"), _count(args, "pipeline_parallel_size")
    longest = int(args.get("max_model_len") or getattr(config, "max_position_embeddings", 0) or 0)
    if not longest:
        raise CannotTell("neither max_model_len nor its config.json say how long requests may be")
    tokens = max(longest, 1)  # -1: vLLM takes the longest that fits
    weights = weights_in_memory(version, gpu) / (tensor * pipeline)
    weights = max(0.0, weights - float(args.get("cpu_offload_gb") or 0) * GIB)
    request = kv_cache(config, tensor, pipeline).values(tokens) * cached_value(version, gpu)
    return Estimate(weights, request, _room(args, gpu, weights), tokens)


def gpus_needed(version: Version) -> int:
    """How many GPUs the version's engine arguments ask for."""
    kinds = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    return prod(_count(version.engine_args, kind) for kind in kinds)


def _room(args: Mapping[str, Any], gpu: Gpu, weights: float) -> float:
    """Bytes for the cache; a size given explicitly must still leave the weights their place."""
    explicit = args.get("kv_cache_memory_bytes")
    if explicit:
        return min(float(explicit), (gpu.memory_gib - RESERVED_GIB) * GIB - weights)
    utilization = float(args.get("gpu_memory_utilization") or DEFAULT_UTILIZATION)
    return (gpu.memory_gib * utilization - RESERVED_GIB) * GIB - weights


def _count(args: Mapping[str, Any], name: str) -> int:
    return int(args.get(name) or 1)

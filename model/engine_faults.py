"""Why an engine cannot start: checked before anything runs, or read from what vLLM left behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from pydantic import ValidationError
from vllm.exceptions import VLLMClientError
from vllm.platforms import Platform, current_platform

from model.engine_child import REPORT_VAR
from model.errors import ConfigError, EngineError, FormlineError
from model.weights import check_weights

GIB = 1 << 30
SHM = "/dev/shm"  # noqa: S108 (looked at, never written)
SHM_BYTES_A_WORKER = 32 << 20  # vLLM's message queues fill this much in ordinary use
_CGROUP = Path("/sys/fs/cgroup")


def check_start(weights: str, engine_args: Mapping[str, Any]) -> None:
    """Checks what can be known before vLLM starts; ConfigError or EngineError says what to change.

    The weights are whole, a device is there, and memory and shared memory suffice.
    """
    try:
        size = check_weights(Path(weights))
    except OSError as error:
        raise ConfigError(f"weights: {weights} cannot be read ({error})") from error
    workers = _workers(engine_args)
    check_device(current_platform, workers)
    check_shared_memory(shutil.disk_usage(SHM).free, workers)
    if current_platform.is_cpu():
        check_memory(size, _kv_cache_bytes(engine_args), available_memory())


def check_device(platform: Platform, workers: int) -> None:
    """ConfigError when vLLM finds no device, or fewer than it needs."""
    if platform.is_unspecified():
        raise ConfigError(
            "vLLM finds no GPU, and this build of it needs one: choose a GPU workload type "
            "(check with nvidia-smi), or install requirements-cpu.txt to run on the CPU"
        )
    if platform.is_cuda_alike() and workers > platform.device_count():
        raise ConfigError(
            f"engine_args ask for {workers} GPUs (tensor_parallel_size x pipeline_parallel_size), "
            f"{platform.device_count()} are visible: lower them, or choose a larger workload type"
        )


def check_shared_memory(free: int, workers: int) -> None:
    """EngineError when /dev/shm, through which vLLM's processes talk, has too few bytes free."""
    need = workers * SHM_BYTES_A_WORKER
    if free < need:
        raise EngineError(
            f"{SHM} has {free >> 20} MiB free and vLLM's processes need {need >> 20}: start the "
            "container with more (docker run --shm-size=1g; in Kubernetes an emptyDir with "
            f"medium: Memory at {SHM}), or remove what fills it"
        )


def check_memory(weights: int, kv_cache: int, available: int) -> None:
    """EngineError when the weights and the KV cache asked for (bytes) do not fit into memory."""
    if weights + kv_cache > available:
        raise EngineError(
            f"out of memory: the weights need {weights / GIB:.1f} GiB and the KV cache "
            f"{kv_cache / GIB:.1f}, {available / GIB:.1f} GiB are available: lower "
            "kv_cache_memory_bytes (or VLLM_CPU_KVCACHE_SPACE), or use a larger machine"
        )


def available_memory() -> int:
    """Bytes that this process and its children may still use: the machine's, or the container's."""
    free = int(psutil.virtual_memory().available)
    limit, used = _read_number("memory.max"), _read_number("memory.current")
    return min(free, limit - used) if limit is not None and used is not None else free


@contextmanager
def explained() -> Iterator[None]:
    """Turns whatever vLLM raises on its way up into a ConfigError or an EngineError."""
    with tempfile.NamedTemporaryFile("r", prefix="formline-engine-", suffix=".jsonl") as report:
        os.environ[REPORT_VAR] = report.name
        try:
            yield
        except FormlineError:
            raise
        except Exception as error:
            raise explain(error, [json.loads(line) for line in report]) from error
        finally:
            del os.environ[REPORT_VAR]


def explain(error: Exception, report: list[dict[str, str]]) -> FormlineError:
    """The error to show for `error`, given what vLLM's processes reported before they ended."""
    if isinstance(error, ValidationError):
        return ConfigError(f"engine_args: {error.errors(include_url=False)[0]['msg']}")
    if isinstance(error, VLLMClientError | TypeError | ValueError) and not report:
        return ConfigError(f"engine_args: {error}")
    cause = f"{report[0]['error']}: {report[0]['message']}" if report else str(error)
    for pattern, advice in _ADVICE:
        if pattern.search(cause):
            return EngineError(f"vLLM could not start: {advice} ({cause})")
    return EngineError(f"vLLM could not start: {cause}")


_ADVICE = [
    (
        re.compile(r"out of memory|can't allocate|cannot allocate|MemoryError|': -9", re.I),
        "out of memory; lower gpu_memory_utilization, kv_cache_memory_bytes, max_num_seqs or "
        "max_model_len, quantize the model, or use a larger machine",
    ),
    (
        re.compile(r"No available memory for the cache|larger than the available KV cache", re.I),
        "the KV cache is too small for one row; lower max_model_len or give the cache more memory",
    ),
    (
        re.compile(r"available memory on node|less than desired|on kv cache allocation", re.I),
        "out of memory; lower kv_cache_memory_bytes (or VLLM_CPU_KVCACHE_SPACE) or free memory",
    ),
    (
        re.compile(r"safetensor|unpickling|checkpoint", re.I),
        "the weights cannot be read; download them again",
    ),
    (
        re.compile(r"No space left on device|shared memory|shm", re.I),
        f"{SHM} is too small; give the container more (docker run --shm-size=1g)",
    ),
]


def _workers(engine_args: Mapping[str, Any]) -> int:
    sizes = ("tensor_parallel_size", "pipeline_parallel_size")
    tensor, pipeline = (int(engine_args.get(size) or 1) for size in sizes)
    return tensor * pipeline


def _kv_cache_bytes(engine_args: Mapping[str, Any]) -> int:
    given = engine_args.get("kv_cache_memory_bytes")
    if isinstance(given, int):
        return given
    return int(os.environ.get("VLLM_CPU_KVCACHE_SPACE") or 0) * GIB


def _read_number(name: str) -> int | None:
    try:
        text = (_CGROUP / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None

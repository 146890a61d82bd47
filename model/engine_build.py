"""Builds the AsyncLLM: engine arguments, and a process that may start vLLM's child processes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from vllm.config import ReasoningConfig, StructuredOutputsConfig
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.platforms import CpuArchEnum, current_platform
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

from model import engine_child
from model.constraints import plugin as constraints
from model.engine_faults import check_start, explained
from model.engine_processes import claim, end
from model.errors import ConfigError
from model.metrics import engine_process_metrics
from model.reasoning import ReasoningSplitter

_FEW_CORES = 4
_one_at_a_time = threading.Lock()  # `_spawnable` and the report change state of the whole process


@dataclass(frozen=True)
class Built:
    """A running AsyncLLM and the processes it consists of, beside this one."""

    llm: AsyncLLM
    processes: set[psutil.Process]
    splitter: ReasoningSplitter | None


def build_engine(weights: str, engine_args: Mapping[str, Any]) -> Built:
    """Starts vLLM on `weights`; seconds to minutes.

    Raises ConfigError or EngineError that says what to change; nothing is left running then.
    """
    check_start(weights, engine_args)
    engine_child.announce()
    constraints.install()
    with _one_at_a_time, _spawnable(), engine_process_metrics(), explained():
        args = AsyncEngineArgs(**_defaults() | _with_configs(engine_args), model=weights)
        llm = AsyncLLM.from_engine_args(args, usage_context=UsageContext.LLM_CLASS)
        processes = claim()
        try:
            return Built(llm, processes, _splitter(llm))
        except ConfigError:
            llm.shutdown()
            end(processes)
            raise


def _splitter(llm: AsyncLLM) -> ReasoningSplitter | None:
    parser = llm.vllm_config.structured_outputs_config.reasoning_parser
    return ReasoningSplitter(parser, llm.get_tokenizer()) if parser else None


# What AsyncEngineArgs takes as an object only; it makes the other configs from plain dicts itself.
_CONFIGS: dict[str, type[Any]] = {
    "structured_outputs_config": StructuredOutputsConfig,
    "reasoning_config": ReasoningConfig,
}


def _with_configs(engine_args: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _CONFIGS[name](**value) if name in _CONFIGS and isinstance(value, dict) else value
        for name, value in engine_args.items()
    }


def _defaults() -> dict[str, Any]:
    """Priorities keep calls fair (see engine_rows). float32 on x86 CPUs without AVX-512, where
    bfloat16 is emulated and several times slower."""
    defaults: dict[str, Any] = {"scheduling_policy": "priority"}
    if (
        current_platform.is_cpu()
        and current_platform.get_cpu_architecture() == CpuArchEnum.X86
        and not torch.cpu._is_avx512_supported()
    ):
        defaults["dtype"] = "float32"
    return defaults


def _use_every_core() -> None:
    """On a CPU with few cores, has vLLM compute on all of them.

    vLLM keeps one core for its scheduler, which is half of two; the scheduler mostly waits.
    """
    if current_platform.is_cpu() and len(psutil.Process().cpu_affinity()) <= _FEW_CORES:
        os.environ.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")


_MAIN_MARKS = ("__file__", "__spec__")


@contextmanager
def _spawnable() -> Iterator[None]:
    """Lets a daemonic process, or a script without a `__main__` guard, start vLLM's processes.

    vLLM's processes end when this one does (see engine_child), which is what the daemon flag is
    for; and they import vLLM by name, so that they need not run the caller's script again.
    """
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # a fork copies held locks
    _use_every_core()
    settings = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    main = sys.modules["__main__"]
    hidden = {name: main.__dict__.pop(name) for name in _MAIN_MARKS if name in main.__dict__}
    daemon = settings.pop("daemon", None)
    main.__spec__ = None
    try:
        yield
    finally:
        main.__dict__.update(hidden)
        if daemon is not None:
            settings["daemon"] = daemon

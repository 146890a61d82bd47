"""Builds the AsyncLLM: engine arguments, and a process that may start vLLM's child processes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.async_llm import AsyncLLM

_one_at_a_time = threading.Lock()  # `_spawnable` changes state of the whole process


def build_engine(weights: str, engine_args: Mapping[str, Any]) -> AsyncLLM:
    """Starts vLLM on `weights`; seconds to minutes. Raises whatever vLLM raises."""
    args = AsyncEngineArgs(**{**_DEFAULTS, **engine_args, "model": weights})
    with _one_at_a_time, _spawnable():
        return AsyncLLM.from_engine_args(args, usage_context=UsageContext.LLM_CLASS)


_DEFAULTS: dict[str, Any] = {
    "enable_prefix_caching": True,  # a batch shares its system prompt and its examples
    "structured_outputs_config": {"backend": "xgrammar"},
    "trust_remote_code": False,
}


@contextmanager
def _spawnable() -> Iterator[None]:
    """Lets a daemonic process, or a script without a `__main__` guard, start vLLM's processes.

    vLLM's processes end when this one does (see engine_child), which is what the daemon flag is
    for; and they import vLLM by name, so that they need not run the caller's script again.
    """
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # a fork copies held locks
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


_MAIN_MARKS = ("__file__", "__spec__")

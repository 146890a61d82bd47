"""Puts our backend in the place of vLLM's own "lm-format-enforcer", in every vLLM process.

vLLM loads the entry points of its group `vllm.general_plugins` in each of its processes. A
dist-info folder on sys.path is enough to have one, so nothing is installed and site-packages is
not touched: `install` writes the folder's path, and processes that vLLM spawns inherit it.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from model.errors import ConfigError

BACKEND = "lm-format-enforcer"
"""The name our backend answers to in `structured_outputs_config`."""

_METADATA = Path(__file__).parent / "plugin_metadata"
_MODULE = "vllm.v1.structured_output.backend_lm_format_enforcer"
_BACKEND_CLASS = "LMFormatEnforcerBackend"
_VALIDATE = "validate_structured_output_request_lm_format_enforcer"


def install() -> None:
    """Makes this and later vLLM processes find the plugin. Call it before vLLM loads plugins."""
    root = str(Path(__file__).parents[2])
    for path in (root, str(_METADATA)):
        if path not in sys.path:
            sys.path.append(path)
    importlib.invalidate_caches()


def register() -> None:
    """The entry point: replaces the two names that vLLM looks up when a request comes.

    The backend is imported when it is first used and not before: vLLM's CPU worker looks through
    all loaded modules while it starts, and fails on one of numba's.
    """
    module = importlib.import_module(_MODULE)
    missing = [name for name in (_BACKEND_CLASS, _VALIDATE) if not hasattr(module, name)]
    if missing:
        raise ConfigError(
            f"this vLLM has no {', '.join(missing)} in {_MODULE}: install the pinned version"
        )
    setattr(module, _BACKEND_CLASS, _make_backend)
    setattr(module, _VALIDATE, _validate)


def _make_backend(*args: Any, **kwargs: Any) -> Any:
    from model.constraints.backend import FormlineBackend

    return FormlineBackend(*args, **kwargs)


def _validate(params: Any) -> None:
    from model.constraints.backend import validate_request

    validate_request(params)

"""Fixtures shared by all tests. The expensive ones live once a session.

small_model_dir   Path of the real SmolLM2-135M-Instruct, built on first use (a minute), or skips.
engine_args       Engine arguments every test engine is built with, so that all of them share one.

Tests marked `gpu` skip without a GPU, `spark` without Java, `browser` without Chromium.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
GIB = 1 << 30

# vLLM's own reports home, and its progress bars, have no place in a test run.
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("MLFLOW_UV_AUTO_DETECT", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = {
        "gpu": None if _has_gpu() else "needs a GPU",
        "spark": None if shutil.which("java") else "needs Java for Spark",
        "browser": None if find_chromium() else "needs Chromium (apt-get install chromium)",
    }
    for item in items:
        for marker, reason in missing.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def _has_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None and Path("/dev/nvidia0").exists()


def find_chromium() -> str | None:
    """Path of a Chromium or Chrome on this machine."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def small_model_dir() -> Path:
    from scripts.small_model import NAME, SmallModelUnavailable, build

    try:
        return build(ROOT / ".cache" / NAME)
    except SmallModelUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def engine_args() -> dict[str, Any]:
    return {
        "max_model_len": 2048,
        "max_num_seqs": 64,
        "enforce_eager": True,
        "kv_cache_memory_bytes": GIB,
        "seed": 0,
    }

"""Fixtures shared by all tests. The expensive ones live once a session.

small_model_dir     the real SmolLM2-135M-Instruct, built on first use (a minute), or skips
engine_args         engine arguments of every test engine, so that all tests share one
registry            MLflow tracking and registry in a temporary SQLite file, MLflow's default from
                    then on: a test that sets another must set this one again
registered_model    the small model as a version of "formline-small" there, alias "champion"
registered_dir      the MLflow model directory behind that version
registered_weights  its copy of the weights, the artifact "llm-model"
engine              the running engine of that version, the one that `loaded_model` uses too;
                    a test that kills or blocks an engine must build its own
loaded_model        `mlflow.pyfunc.load_model` of that version, predicting on `engine`
served_model        base URL of `mlflow models serve` over that version (an engine of its own)
browser             a headless Chromium, driven by selenium

Tests marked `gpu` skip without a GPU, `spark` without Java, `browser` without Chromium.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from model.engine import Engine
    from register import Registered

ROOT = Path(__file__).resolve().parent.parent
GIB = 1 << 30
PATIENCE_S = 300  # limit of a call over HTTP; a loaded test machine may be slow

# vLLM's own reports home, and its progress bars, have no place in a test run.
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("MLFLOW_UV_AUTO_DETECT", "false")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
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


@pytest.fixture(autouse=True)
def follows_the_tracking_uri() -> Iterator[None]:
    """No test leaves a registry of its own behind, in MLflow or for child processes."""
    yield
    if "MLFLOW_REGISTRY_URI" in os.environ:
        import mlflow

        mlflow.set_registry_uri("")
        del os.environ["MLFLOW_REGISTRY_URI"]


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
        "dtype": "float32",  # CPUs without AVX-512 only emulate bfloat16, 20 times slower
        "kv_cache_memory_bytes": GIB,
        "seed": 0,
    }


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import mlflow

    home = tmp_path_factory.mktemp("registry")
    uri = f"sqlite:///{home / 'mlflow.db'}"
    os.environ["MLFLOW_TRACKING_URI"] = uri
    mlflow.set_tracking_uri(uri)
    mlflow.create_experiment("tests", artifact_location=(home / "artifacts").as_uri())
    mlflow.set_experiment("tests")
    yield uri
    shutil.rmtree(home, ignore_errors=True)  # the weights are 270 MB a version


@pytest.fixture(scope="session")
def registered_model(
    registry: str, small_model_dir: Path, engine_args: dict[str, Any]
) -> Registered:
    from register import register_model

    return register_model(
        small_model_dir,
        "formline-small",
        engine_args=engine_args,
        settings={"served_deadline_s": PATIENCE_S},
        alias="champion",
    )


@pytest.fixture(scope="session")
def registered_dir(registered_model: Registered) -> Path:
    import mlflow

    return Path(mlflow.artifacts.download_artifacts(registered_model.uri))


@pytest.fixture(scope="session")
def registered_weights(registered_dir: Path) -> Path:
    from mlflow.models import Model

    artifacts = Model.load(str(registered_dir)).flavors["python_function"]["artifacts"]
    return registered_dir / str(artifacts["llm-model"]["path"])


@pytest.fixture(scope="session")
def engine(registered_weights: Path, engine_args: dict[str, Any]) -> Iterator[Engine]:
    from model.config import ModelConfig
    from model.engine import Engine

    running = Engine.acquire(str(registered_weights), ModelConfig(engine_args=engine_args))
    yield running
    running.shutdown()


@pytest.fixture(scope="session")
def loaded_model(registered_model: Registered, engine: Engine) -> Any:
    import mlflow

    return mlflow.pyfunc.load_model(registered_model.uri)


@pytest.fixture(scope="session")
def served_model(registered_model: Registered) -> Iterator[str]:
    from scripts.scoring_server import serve

    limit = {"MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT": str(PATIENCE_S)}
    with serve(registered_model.uri, limit) as url:
        yield url


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    driver = shutil.which("chromedriver")
    if driver is None:
        pytest.skip("needs chromedriver (apt-get install chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = find_chromium() or ""
    for flag in (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options, Service(executable_path=driver))
    yield chrome
    chrome.quit()

"""Starting an engine: what is checked first, what is said when it fails, what is left behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest
from vllm.platforms.interface import UnspecifiedPlatform

from model import engine_faults
from model.config import ModelConfig
from model.engine import Engine
from model.engine_registry import weights_identity
from model.errors import ConfigError, EngineError, EngineUnavailable

GIB = 1 << 30


@pytest.fixture
def weights(small_model_dir: Path, tmp_path: Path) -> Path:
    """A directory of its own with the small model in it, as links."""
    folder = tmp_path / "weights"
    folder.mkdir()
    for file in small_model_dir.iterdir():
        (folder / file.name).symlink_to(file.resolve())
    return folder


def config(engine_args: dict[str, Any], **more: Any) -> ModelConfig:
    return ModelConfig(engine_args=engine_args | more)


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    ends_at = time.monotonic() + seconds
    while not condition() and time.monotonic() < ends_at:
        time.sleep(0.1)
    return condition()


def family() -> set[psutil.Process]:
    return {p for p in psutil.Process().children(recursive=True) if "VLLM" in p.name()}


# -- checked before anything runs -----------------------------------------------------------------


def test_weights_that_are_not_there(engine_args: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a directory"):
        Engine.acquire(str(tmp_path / "nowhere"), config(engine_args))


def test_weights_cut_short(weights: Path, engine_args: dict[str, Any]) -> None:
    shard = weights / "model.safetensors"
    original = shard.resolve()
    shard.unlink()
    with original.open("rb") as source, shard.open("wb") as cut:
        cut.write(source.read(1 << 20))
    with pytest.raises(ConfigError, match="its header says"):
        Engine.acquire(str(weights), config(engine_args))


def test_more_memory_than_there_is(small_model_dir: Path, engine_args: dict[str, Any]) -> None:
    args = engine_args | {"kv_cache_memory_bytes": 4096 * GIB}
    with pytest.raises(EngineError, match=r"out of memory.*4096\.0.*lower kv_cache_memory_bytes"):
        Engine.acquire(str(small_model_dir), config(args))


def test_an_engine_argument_of_the_wrong_kind(
    small_model_dir: Path, engine_args: dict[str, Any]
) -> None:
    before = family()
    with pytest.raises(ConfigError, match="engine_args"):
        Engine.acquire(str(small_model_dir), config(engine_args, max_model_len=10**9))
    assert family() == before


def test_no_gpu_for_a_build_that_needs_one() -> None:
    with pytest.raises(ConfigError, match=r"no GPU.*requirements-cpu\.txt"):
        engine_faults.check_device(UnspecifiedPlatform(), 1)


def test_too_little_shared_memory(small_model_dir: Path) -> None:
    """In a mount namespace of its own, where /dev/shm is as small as Docker may make it."""
    script = textwrap.dedent(
        f"""
        from model.engine_faults import check_start
        from model.errors import EngineError
        try:
            check_start({str(small_model_dir)!r}, {{}})
        except EngineError as error:
            print(error)
        """
    )
    mount = 'mount -t tmpfs -o size=4m tmpfs /dev/shm && exec "$0" -c "$1"'
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip("needs the right to mount (unshare -m)")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "has 4 MiB free and vLLM's processes need" in done.stdout
    assert "--shm-size" in done.stdout


# -- told by vLLM's own processes -----------------------------------------------------------------


def test_a_failure_inside_vllms_processes_says_what_to_change(
    small_model_dir: Path, engine_args: dict[str, Any]
) -> None:
    before = family()
    args = engine_args | {"kv_cache_memory_bytes": 1 << 20, "max_model_len": 8192}
    with pytest.raises(EngineError, match=r"KV cache is too small.*lower max_model_len"):
        Engine.acquire(str(small_model_dir), config(args))
    assert family() == before


@pytest.mark.parametrize(
    ("error", "report", "kind", "advice"),
    [
        (RuntimeError("Failed core proc(s): {'EngineCore': -9}"), [], EngineError, "out of memory"),
        (
            RuntimeError("Engine core initialization failed."),
            [{"error": "OutOfMemoryError", "message": "CUDA out of memory. Tried to allocate"}],
            EngineError,
            "lower gpu_memory_utilization",
        ),
        (
            RuntimeError("Engine core initialization failed."),
            [{"error": "SafetensorError", "message": "invalid header"}],
            EngineError,
            "download them again",
        ),
        (ValueError("unknown quantization method"), [], ConfigError, "engine_args"),
    ],
)
def test_what_vllm_left_behind_is_read(
    error: Exception, report: list[dict[str, str]], kind: type[Exception], advice: str
) -> None:
    explained = engine_faults.explain(error, report)
    assert isinstance(explained, kind)
    assert advice in str(explained)


# -- which engine, and how it ends ----------------------------------------------------------------


def test_copies_of_one_logged_model_are_the_same_weights(tmp_path: Path) -> None:
    folders = [tmp_path / name / "artifacts" / "llm-model" for name in ("a", "b", "c")]
    for folder, model_id in zip(folders, ("1", "1", "2"), strict=True):
        folder.mkdir(parents=True)
        (folder.parents[1] / "MLmodel").write_text(f"model_uuid: id-{model_id}\n")
    same, copy, other = (weights_identity(str(folder)) for folder in folders)
    assert same == copy != other
    assert weights_identity(str(tmp_path)) == str(tmp_path.resolve())


def _serve_until_killed(pipe: Connection, weights: str, args: dict[str, Any]) -> None:
    """In a daemonic process: start an engine, answer a row, tell which processes there are."""
    from vllm import SamplingParams

    from model.engine import EngineRequest

    engine = Engine.acquire(weights, ModelConfig(engine_args=args))
    request = EngineRequest([1, 2, 3], SamplingParams(max_tokens=2, ignore_eos=True))
    ((_, answer),) = engine.generate([request], deadline_s=None)
    pipe.send((answer.completion_tokens, [p.pid for p in family()]))  # type: ignore[union-attr]
    time.sleep(600)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_daemonic_process_may_start_an_engine_which_ends_with_it(
    small_model_dir: Path, engine_args: dict[str, Any], method: str
) -> None:
    ours, theirs = multiprocessing.Pipe()
    context: Any = multiprocessing.get_context(method)
    process = context.Process(
        target=_serve_until_killed, args=(theirs, str(small_model_dir), engine_args), daemon=True
    )
    process.start()
    try:
        assert ours.poll(900), "the daemonic process could not start an engine"
        tokens, pids = ours.recv()
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert tokens == 2
    assert len(pids) == 2
    assert wait_for(lambda: not any(map(psutil.pid_exists, pids))), "orphans were left"


@pytest.mark.slow
def test_an_engine_that_cannot_be_rebuilt_is_given_up(
    weights: Path, engine_args: dict[str, Any]
) -> None:
    from vllm import SamplingParams

    from model.engine import EngineRequest

    before = family()
    engine = Engine.acquire(str(weights), config(engine_args))
    others = family() - before
    shutil.rmtree(weights)
    (core,) = (p for p in others if "EngineCore" in p.name())
    core.kill()
    assert wait_for(lambda: not engine.health().alive, 300), engine.health()
    health = engine.health()
    assert "tried 3 times" in health.detail
    assert "not a directory" in health.detail
    with pytest.raises(EngineUnavailable, match="could not be rebuilt"):
        next(engine.generate([EngineRequest([1], SamplingParams())], deadline_s=None))
    assert wait_for(lambda: family() == before)
    assert json.dumps(health.detail)
    engine.shutdown()

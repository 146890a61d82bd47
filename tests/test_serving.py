"""The local endpoint as its clients see it: real processes, registry and HTTP, a fake model.

The endpoint `steady` serves version 1 all through; tests that change an endpoint make their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import NotFound, ResourceAlreadyExists, ResourceConflict
from databricks.sdk.service.serving import (
    EmailNotifications,
    EndpointCoreConfigInput,
    EndpointTag,
    ServedEntityInput,
    TelemetryConfig,
)
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from mlflow.deployments import get_deploy_client
from openai import APIError, BadRequestError, OpenAI
from openai import NotFoundError as OpenAiNotFound
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from deploying.apply import deploy
from deploying.desired import DesiredEndpoint
from deploying.traffic import roll_back
from deploying.watch import DeployFailed
from tests.live_endpoint import LiveEndpoint, alive, register_fakes, wait_for

MODEL = "main.ml.echo"
IDLE_S = "3"


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> str:
    return register_fakes(tmp_path_factory.mktemp("registry"), MODEL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, registry: str) -> Iterator[LiveEndpoint]:
    live = LiveEndpoint(
        tmp_path_factory.mktemp("server"),
        registry,
        *("--scale-to-zero-after", IDLE_S),
        FORMLINE_SECRET_TEAM_WORD="fig",
    ).start()
    reply = live.create("steady", entity_name=MODEL, entity_version="1", workload_size="Large")
    assert reply.status_code == 200
    assert live.settled("steady")["state"]["ready"] == "READY"
    yield live
    live.stop()


@pytest.fixture
def databricks(server: LiveEndpoint, monkeypatch: pytest.MonkeyPatch) -> WorkspaceClient:
    monkeypatch.setenv("DATABRICKS_HOST", server.url)
    monkeypatch.setenv("DATABRICKS_TOKEN", "any")
    return WorkspaceClient()


def desired(name: str, version: str, **more: Any) -> DesiredEndpoint:
    return DesiredEndpoint.check(name=name, entity_name=MODEL, traffic={version: 100}, **more)


class TestDataPlane:
    def test_a_reply_names_the_entity_that_gave_it(self, server: LiveEndpoint) -> None:
        reply = server.ask("steady", "hello", "you")
        assert [row["output"] for row in reply.json()["predictions"]] == ["hello", "you"]
        assert reply.headers["served-model-name"] == "echo-1"

    def test_one_entity_can_be_asked_by_name(self, server: LiveEndpoint) -> None:
        url = f"{server.url}/serving-endpoints/steady/served-models/echo-1/invocations"
        body = {"dataframe_records": [{"prompt": "x"}]}
        assert requests.post(url, json=body, timeout=60).status_code == 200
        missing = requests.post(url.replace("echo-1", "echo-9"), json=body, timeout=60)
        assert missing.status_code == 404

    def test_an_unknown_endpoint(self, server: LiveEndpoint) -> None:
        reply = server.ask("nobody", "x")
        assert reply.status_code == 404
        assert reply.json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"

    def test_oversize_bodies_declared_and_chunked(self, server: LiveEndpoint) -> None:
        url = f"{server.url}/serving-endpoints/steady/invocations"
        block = b"x" * (1 << 20)
        for data in (block * 17, iter([block] * 17)):
            reply = requests.post(
                url, data=data, headers={"Content-Type": "application/json"}, timeout=60
            )
            assert reply.status_code == 413
            assert reply.json()["error_code"] == "REQUEST_SIZE_EXCEEDED"

    def test_sixteen_clients_at_once_get_their_own_answers(self, server: LiveEndpoint) -> None:
        def client(number: int) -> list[str]:
            replies = [server.ask("steady", f"client {number} call {n}") for n in range(3)]
            return [reply.json()["predictions"][0]["output"] for reply in replies]

        with ThreadPoolExecutor(16) as pool:
            for number, outputs in enumerate(pool.map(client, range(16))):
                assert outputs == [f"client {number} call {n}" for n in range(3)]

    def test_a_stream_through_the_server(self, server: LiveEndpoint) -> None:
        with server_stream(server, "a slow b") as reply:
            lines = [line for line in reply.iter_lines() if line]
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert lines[-1] == b"data: [DONE]"
        deltas = [json.loads(line[6:]).get("delta") for line in lines[:-1]]
        assert deltas == ["a ", "slow ", "b ", None]

    def test_a_client_that_leaves_frees_its_place(self, server: LiveEndpoint) -> None:
        with server_stream(server, "slow " * 200) as reply:
            next(reply.iter_lines())
        wait_for(lambda: in_flight(server, "steady") == 0, "the place is free again")


def server_stream(server: LiveEndpoint, prompt: str, name: str = "steady") -> requests.Response:
    body = {"dataframe_records": [{"prompt": prompt}], "stream": True}
    url = f"{server.url}/serving-endpoints/{name}/invocations"
    return requests.post(url, json=body, stream=True, timeout=60)


def in_flight(server: LiveEndpoint, name: str) -> int:
    status = requests.get(f"{server.url}/api/2.0/formline/status", timeout=30).json()
    return next(int(s["in_flight"]) for s in status["endpoints"] if s["endpoint"]["name"] == name)


@pytest.mark.usefixtures("databricks")
class TestMlflowDeployments:
    def test_the_data_plane(self) -> None:
        client = get_deploy_client("databricks")
        answer = client.predict(
            endpoint="steady",
            inputs={"dataframe_records": [{"prompt": "hi"}], "params": {"max_tokens": 5}},
        )
        assert answer.predictions[0]["output"] == "hi"
        stream = client.predict_stream(
            endpoint="steady", inputs={"dataframe_records": [{"prompt": "a b"}]}
        )
        assert [piece.get("delta") for piece in stream] == ["a ", "b ", None]

    def test_reading(self) -> None:
        client = get_deploy_client("databricks")
        assert "steady" in [endpoint["name"] for endpoint in client.list_endpoints()]
        assert client.get_endpoint("steady").state["ready"] == "READY"

    def test_writing_what_rolls_nothing_out(self, server: LiveEndpoint) -> None:
        client = get_deploy_client("databricks")
        added = client.update_endpoint_tags("steady", {"add_tags": [{"key": "k", "value": "v"}]})
        assert {"key": "k", "value": "v"} in added.tags
        assert client.update_endpoint_tags("steady", {"delete_tags": ["k"]}).tags == []
        limits = {"rate_limits": [{"calls": 10_000, "renewal_period": "minute", "key": "user"}]}
        assert (
            client.update_endpoint_rate_limits("steady", limits).rate_limits[0]["calls"] == 10_000
        )
        gateway = {"usage_tracking_config": {"enabled": True}}
        assert client.update_endpoint_ai_gateway("steady", gateway).usage_tracking_config
        client.update_endpoint_rate_limits("steady", {"rate_limits": []})
        assert server.get("steady")["ai_gateway"]["usage_tracking_config"] == {"enabled": True}


class TestDatabricksSdk:
    def test_reading(self, databricks: WorkspaceClient) -> None:
        api = databricks.serving_endpoints
        assert "steady" in [endpoint.name for endpoint in api.list()]
        assert api.query("steady", dataframe_records=[{"prompt": "x"}]).predictions
        assert api.query("steady", inputs=["x"]).served_model_name == "echo-1"
        assert "uvicorn" not in api.build_logs("steady", "echo-1").logs
        assert isinstance(api.logs("steady", "echo-1").logs, str)
        exported = api.export_metrics("steady").contents
        assert exported is not None
        assert b'served_entity="echo-1"' in exported.read()
        assert api.get_open_api("steady").contents is not None

    def test_errors_arrive_as_their_classes(self, databricks: WorkspaceClient) -> None:
        api = databricks.serving_endpoints
        entity = ServedEntityInput(entity_name=MODEL, entity_version="1")
        config = EndpointCoreConfigInput(name="steady", served_entities=[entity])
        with pytest.raises(ResourceAlreadyExists):
            api.create("steady", config=config)
        with pytest.raises(NotFound):
            api.get("nobody")
        missing = ServedEntityInput(entity_name=MODEL, entity_version="77")
        with pytest.raises(NotFound, match="version 77"):
            api.create("new", config=EndpointCoreConfigInput(name="new", served_entities=[missing]))

    def test_settings_without_effect_here_are_kept_and_shown(
        self, databricks: WorkspaceClient, server: LiveEndpoint
    ) -> None:
        api = databricks.serving_endpoints
        told = EmailNotifications(on_update_failure=["team@example.org"])
        assert api.update_notifications("steady", email_notifications=told).name == "steady"
        telemetry = TelemetryConfig(telemetry_profile_id="p")
        shown = api.patch_telemetry_config("steady", telemetry_config=telemetry)
        assert shown.telemetry_config == telemetry
        assert api.get("steady").email_notifications == told
        unknown = requests.get(f"{server.url}/api/2.0/permissions/serving-endpoints/x", timeout=30)
        assert unknown.status_code == 404
        assert unknown.json()["error_code"] == "RESOURCE_DOES_NOT_EXIST"

    def test_tags(self, databricks: WorkspaceClient) -> None:
        patched = databricks.serving_endpoints.patch("steady", add_tags=[EndpointTag("a", "b")])
        assert patched.tags == [EndpointTag("a", "b")]
        databricks.serving_endpoints.patch("steady", delete_tags=["a"])


class TestOpenAi:
    def test_log_probabilities_whole_and_streamed(self, server: LiveEndpoint) -> None:
        with OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
            asked: Any = {
                "model": "steady",
                "messages": [{"role": "user", "content": "a b"}],
                "logprobs": True,
                "top_logprobs": 2,
            }
            [choice] = client.chat.completions.create(**asked).choices
            content = list((choice.logprobs and choice.logprobs.content) or ())
            assert [entry.token for entry in content] == ["a", "b"]
            assert [top.token for top in content[0].top_logprobs] == ["a", "x"]
            chunks = client.chat.completions.create(**asked, stream=True)
            streamed = [c.choices[0].logprobs for c in chunks if c.choices]
            [last] = [found for found in streamed if found is not None]
            assert last.content == content
            [text] = client.completions.create(model="steady", prompt="a b", logprobs=1).choices
            assert text.logprobs is not None
            assert text.logprobs.text_offset == [0, 1]

    def test_a_stream_that_fails_midway_raises(self, server: LiveEndpoint) -> None:
        with OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
            stream = client.chat.completions.create(
                model="steady", messages=[{"role": "user", "content": "a fault b"}], stream=True
            )
            received: list[str] = []
            with pytest.raises(APIError):
                received.extend(c.choices[0].delta.content or "" for c in stream if c.choices)
            assert not stream.response.is_error
        with OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0) as client:
            with pytest.raises(BadRequestError, match="logit_bias"):
                client.chat.completions.create(
                    model="steady",
                    messages=[{"role": "user", "content": "a"}],
                    logit_bias={"1": 1},
                )
            with pytest.raises(OpenAiNotFound, match="nobody"):
                client.completions.create(model="nobody", prompt="a")


class TestLifeCycle:
    """One endpoint from its creation to its deletion, through deploy_endpoint's own functions."""

    def test_from_creation_to_deletion(
        self, server: LiveEndpoint, databricks: WorkspaceClient
    ) -> None:
        lines: list[str] = []
        variables = {"WORD": "{{secrets/team/word}}"}
        first = desired(
            "life", "1", workload_size="Large", scale_to_zero=False, environment=variables
        )
        outcome = deploy(databricks, first, report=lines.append)
        assert outcome.endpoint["state"] == {"ready": "READY", "config_update": "NOT_UPDATING"}
        assert any("DEPLOYMENT_CREATING" in line for line in lines)
        assert server.ask("life", "env WORD").json()["predictions"][0]["output"] == "fig"
        assert server.get("life")["config"]["served_entities"][0]["environment_vars"] == variables

        assert not deploy(databricks, first, report=lines.append).changed
        self.update_under_load(server, databricks, first)
        self.fail_and_keep_serving(server, databricks, first)
        self.roll_back_to_the_first(server, databricks)

        processes = server.children()
        databricks.serving_endpoints.delete("life")
        wait_for(lambda: len(server.children()) < len(processes), "its process has ended")
        assert server.ask("life", "x").status_code == 404

    def update_under_load(
        self, server: LiveEndpoint, databricks: WorkspaceClient, first: DesiredEndpoint
    ) -> None:
        """Version 2 takes over while callers keep calling; none of them sees a failure."""
        stop = threading.Event()

        def caller(number: int) -> list[tuple[int, str]]:
            seen = []
            while not stop.is_set():
                reply = server.ask("life", f"sleep 0.{number + 1}")
                seen.append((reply.status_code, reply.headers["served-model-name"]))
            return seen

        with ThreadPoolExecutor(4) as pool:
            callers = [pool.submit(caller, number) for number in range(4)]
            try:
                both = DesiredEndpoint.check(
                    **{**first.model_dump(), "traffic": {"1": 25, "2": 75}}
                )
                deploy(databricks, both, report=lambda _: None)
                second = DesiredEndpoint.check(**{**first.model_dump(), "traffic": {"2": 100}})
                deploy(databricks, second, report=lambda _: None)
                assert server.ask("life", "x").headers["served-model-name"] == "echo-2"
            finally:
                stop.set()
            seen = [call for future in callers for call in future.result()]
        assert {status for status, _ in seen} == {200}
        assert {name for _, name in seen} == {"echo-1", "echo-2"}

    def fail_and_keep_serving(
        self, server: LiveEndpoint, databricks: WorkspaceClient, first: DesiredEndpoint
    ) -> None:
        broken = DesiredEndpoint.check(**{**first.model_dump(), "traffic": {"3": 100}})
        with pytest.raises(DeployFailed, match="the fake was told not to load") as failure:
            deploy(databricks, broken, report=lambda _: None)
        assert "Still serving: echo-2." in failure.value.message
        state = server.get("life")
        assert state["state"] == {"ready": "READY", "config_update": "UPDATE_FAILED"}
        pending = state["pending_config"]["served_entities"][0]["state"]
        assert pending["deployment"] == "DEPLOYMENT_FAILED"
        assert server.ask("life", "x").headers["served-model-name"] == "echo-2"

    def roll_back_to_the_first(self, server: LiveEndpoint, databricks: WorkspaceClient) -> None:
        """After a failed update the running version is the last good one, then the one before."""
        roll_back(databricks, "life", report=lambda _: None)
        assert server.get("life")["state"]["config_update"] == "NOT_UPDATING"
        assert server.ask("life", "x").headers["served-model-name"] == "echo-2"
        outcome = roll_back(databricks, "life", report=lambda _: None)
        assert server.ask("life", "x").headers["served-model-name"] == "echo-1"
        assert {"key": "formline_good_versions", "value": "1"} in outcome.endpoint["tags"]


class TestOneProcess:
    """What happens to one small endpoint: limits, a crash, sleep, and the server's own end."""

    def test_limits_crash_and_sleep(
        self, server: LiveEndpoint, databricks: WorkspaceClient
    ) -> None:
        mlflow_client = get_deploy_client("databricks")
        small = {"entity_name": MODEL, "entity_version": "1", "workload_size": "Small"}
        config = {"name": "small", "config": {"served_entities": [small]}}
        created = mlflow_client.create_endpoint(config=config, route_optimized=None)
        assert created.state == {"ready": "NOT_READY", "config_update": "IN_PROGRESS"}
        with pytest.raises(ResourceConflict):
            databricks.serving_endpoints.update_config(
                "small", served_entities=[ServedEntityInput(entity_name=MODEL, entity_version="2")]
            )
        early = server.ask("small", "x")
        assert early.status_code == 400
        assert "not ready" in early.json()["message"]
        server.settled("small")
        self.more_calls_than_the_size_allows(server)
        self.a_killed_process_comes_back(server)
        sleepy = {"served_entities": [{**small, "scale_to_zero_enabled": True}]}
        mlflow_client.update_endpoint_config("small", sleepy)
        self.an_idle_one_sleeps_and_wakes(server)
        mlflow_client.delete_endpoint("small")
        assert server.ask("small", "x").status_code == 404

    def more_calls_than_the_size_allows(self, server: LiveEndpoint) -> None:
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda _: server.ask("small", "sleep 5"), range(8)))
        statuses = Counter(reply.status_code for reply in replies)
        assert statuses.keys() == {200, 429}
        assert statuses[200] >= 4
        refused = next(reply for reply in replies if reply.status_code == 429)
        assert refused.json()["error_code"] == "REQUEST_LIMIT_EXCEEDED"

    def a_killed_process_comes_back(self, server: LiveEndpoint) -> None:
        crashed = server.ask("small", "crash")
        assert crashed.status_code == 503
        assert crashed.json()["error_code"] == "TEMPORARILY_UNAVAILABLE"
        again = server.ask("small", "after the crash")
        assert again.json()["predictions"][0]["output"] == "after the crash"
        status = requests.get(f"{server.url}/api/2.0/formline/status", timeout=30).json()
        restarts = {s["endpoint"]["name"]: s["restarts"] for s in status["endpoints"]}
        assert restarts["small"] == 1
        assert restarts["steady"] == 0

    def an_idle_one_sleeps_and_wakes(self, server: LiveEndpoint) -> None:
        before = server.children()
        wait_for(lambda: "Scaled to zero" in str(server.get("small")), "it sleeps")
        wait_for(lambda: len(server.children()) == len(before) - 1, "its process has ended")
        assert server.get("small")["state"]["ready"] == "READY"
        woken = server.ask("small", "good morning")
        assert woken.json()["predictions"][0]["output"] == "good morning"


class TestServersLife:
    def test_state_is_kept_and_no_process_left(self, tmp_path: Path, registry: str) -> None:
        live = LiveEndpoint(tmp_path, registry).start()
        live.create("kept", entity_name=MODEL, entity_version="1")
        live.settled("kept")
        broken = {"served_entities": [{"entity_name": MODEL, "entity_version": "3"}]}
        assert live.put_config("kept", broken).ok
        failed = live.settled("kept")
        wait_for(lambda: len(live.children()) == 1, "the failed one has ended")
        children = live.children()
        assert live.process is not None
        with server_stream(live, "slow " * 15, "kept") as reply:
            lines = reply.iter_lines()
            next(lines)
            live.process.send_signal(signal.SIGTERM)
            assert list(lines)[-2] == b"data: [DONE]", "a call under way may end"
        live.process.wait(60)
        assert not any(map(alive, children))

        live.start()
        assert live.get("kept")["config"]["served_entities"][0]["name"] == "echo-1"
        wait_for(lambda: live.get("kept")["state"]["ready"] == "READY", "it serves again")
        assert live.get("kept")["state"]["config_update"] == "UPDATE_FAILED"
        assert live.get("kept")["pending_config"] == failed["pending_config"]
        assert "told not to load" in str(failed["pending_config"])
        assert live.ask("kept", "hello again").status_code == 200

        children = live.children()
        assert live.process is not None
        os.kill(live.process.pid, signal.SIGKILL)
        live.process.wait(30)
        wait_for(lambda: not any(map(alive, children)), "orphans end by themselves")


class TestTokens:
    def test_only_known_tokens_and_known_hosts(self, tmp_path: Path, registry: str) -> None:
        tokens = tmp_path / "tokens"
        tokens.write_text("# the team's\nright\n")
        live = LiveEndpoint(tmp_path / "server", registry, "--token-file", str(tokens)).start()
        url = f"{live.url}/api/2.0/serving-endpoints"
        try:
            for headers in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": "Basic right"},
            ):
                reply = requests.get(url, headers=headers, timeout=30)
                assert reply.status_code == 401
                assert reply.json()["error_code"] == "UNAUTHENTICATED"
            right = {"Authorization": "Bearer right"}
            assert requests.get(url, headers=right, timeout=30).json() == {"endpoints": []}
            rebound = requests.get(url, headers={**right, "Host": "evil.example"}, timeout=30)
            assert rebound.status_code == 400
            assert "Host" in rebound.json()["message"]
            assert requests.get(live.url, timeout=30).status_code == 200
        finally:
            live.stop()

    def test_no_open_server_beyond_loopback(self) -> None:
        from typer.testing import CliRunner

        from serving.__main__ import cli

        result = CliRunner().invoke(cli, ["--host", "0.0.0.0"])
        assert result.exit_code == 2
        assert "--token" in result.output


load_all_checks()
CONFORMS = CHECKS.get_by_names(
    [f"{what}_conformance" for what in ("status_code", "content_type", "response_schema")]
)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_makes_the_server_fail(server: LiveEndpoint, mode: GenerationMode) -> None:
    """Whatever the published OpenAPI allows, and what it does not, is answered and explained.

    And each answer is one that the OpenAPI document promises.
    """
    schema: Any = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:
        with contextlib.suppress(Unsatisfiable):  # what takes no input cannot be asked wrongly
            answers_or_explains(operation.as_strategy(generation_mode=mode))


def test_the_openapi_document_says_what_is_true(server: LiveEndpoint) -> None:
    document = requests.get(f"{server.url}/openapi.json", timeout=30).json()
    operations = [
        (path, operation) for path, of in document["paths"].items() for operation in of.values()
    ]
    for path, operation in operations:
        assert "422" not in operation["responses"], "FastAPI's own error, which is never sent"
        assert bool(operation.get("security")) == (path != "/health")
    chat = document["components"]["schemas"]["ChatRequest"]
    assert {"model", "messages"} == set(chat["required"])
    assert "response_format" in chat["properties"]


def answers_or_explains(cases: Any) -> None:
    @given(case=cases)
    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    def check(case: Any) -> None:
        if case.path.endswith("/{name}/invocations"):
            case.path_parameters["name"] = "steady"
        reply = case.call()
        assert reply.status_code != 500, reply.text
        case.validate_response(reply, checks=CONFORMS)
        if reply.status_code >= 400:
            assert set(reply.json()) == {"error_code", "message"}

    check()

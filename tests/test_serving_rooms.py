"""The local endpoint's rooms one by one: no process, no network."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest
from databricks.sdk.service import serving as sdk
from pydantic import ValidationError
from starlette.datastructures import Headers

from serving.auth import BearerAuth, accepts, bearer, caller_of
from serving.error_replies import describe_validation
from serving.errors import ApiError
from serving.limits import RateLimiter
from serving.metrics import read_counter
from serving.mlflow_errors import clean
from serving.openai_logprobs import chat_logprobs, text_logprobs
from serving.openai_request import ChatRequest, CompletionRequest, chat_row, completion_rows
from serving.openai_tools import Tools
from serving.process import failure_of, open_log, tail
from serving.replies import ConfigUpdate, Deployment, EntityState, Ready
from serving.router import Router
from serving.schemas import (
    EndpointConfig,
    EndpointCreate,
    RateLimit,
    Route,
    ServedEntityInput,
    WorkloadType,
)
from serving.secret_variables import resolve_secrets
from serving.settings import Settings, is_loopback
from serving.store import ConfigRecord, EndpointRecord, Store


def route(name: str, share: int) -> Route:
    return Route(served_entity_name=name, traffic_percentage=share)


class TestRouter:
    def test_any_hundred_calls_hold_the_percentages(self) -> None:
        router = Router([route("a", 90), route("b", 10)])
        picks = [router.pick() for _ in range(250)]
        for start in range(150):
            assert Counter(picks[start : start + 100]) == {"a": 90, "b": 10}

    def test_an_entity_without_traffic_gets_none(self) -> None:
        router = Router([route("a", 100), route("b", 0)])
        assert {router.pick() for _ in range(100)} == {"a"}

    def test_nothing_routed(self) -> None:
        assert Router([]).pick() is None


class TestRateLimiter:
    limit = RateLimit(renewal_period="minute", calls=2, key="user")

    def test_counts_each_user_and_says_when_to_come_back(self) -> None:
        now = 100.0
        limiter = RateLimiter(clock=lambda: now)
        for caller in ("ann", "ann", "bob"):
            limiter.check([self.limit], caller)
        now = 130.0
        with pytest.raises(ApiError) as refused:
            limiter.check([self.limit], "ann")
        assert (refused.value.status, refused.value.retry_after_s) == (429, 31)
        now = 161.0
        limiter.check([self.limit], "ann")

    def test_no_calls_at_all(self) -> None:
        closed = RateLimit(renewal_period="minute", calls=0)
        with pytest.raises(ApiError, match="0 calls a minute"):
            RateLimiter().check([closed], "ann")

    def test_limits_that_are_only_kept(self) -> None:
        """Token limits, and limits of groups, which nobody here belongs to."""
        kept = [
            RateLimit(renewal_period="minute", tokens=1),
            RateLimit(renewal_period="minute", calls=1, key="user_group", principal="team"),
        ]
        limiter = RateLimiter()
        for _ in range(5):
            limiter.check(kept, "ann")

    def test_a_refused_call_counts_for_no_limit(self) -> None:
        endpoint = RateLimit(renewal_period="minute", calls=3)
        limiter = RateLimiter(clock=lambda: 0.0)
        for _ in range(2):
            limiter.check([endpoint, self.limit], "ann")
        for _ in range(5):
            with pytest.raises(ApiError):
                limiter.check([endpoint, self.limit], "ann")
        limiter.check([endpoint, self.limit], "bob")


class TestAuth:
    def test_only_whole_tokens_are_accepted(self) -> None:
        assert accepts(("one", "two"), "two")
        for given in ("", "tw", "twoo", "öne"):
            assert not accepts(("one", "two"), given)

    def test_reads_bearer_only(self) -> None:
        assert bearer(Headers({"authorization": "bearer  abc "})) == "abc"
        assert bearer(Headers({"authorization": "Basic abc"})) == ""

    def test_callers_are_told_apart_without_their_secret(self) -> None:
        caller = caller_of(Headers({"authorization": "Bearer secret"}), "127.0.0.1")
        assert "secret" not in caller
        assert caller_of(Headers({}), "127.0.0.1") == "127.0.0.1"

    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("/", 200),
            ("/static/status.js", 200),
            ("/health", 200),
            ("/api/2.0/serving-endpoints", 401),
            ("/metrics", 401),
            ("/docs/../metrics", 401),
        ],
    )
    def test_the_page_is_open_and_the_api_is_not(self, path: str, status: int) -> None:
        assert knock({}, path=path) == status

    def test_paths_can_be_opened(self) -> None:
        assert knock({}, open_paths=["/metrics"]) == 200
        assert knock({}, path="/invocations", open_paths=["/metrics"]) == 401

    @pytest.mark.parametrize(
        ("headers", "status"),
        [
            ({}, 401),
            ({"authorization": "Bearer wrong"}, 401),
            ({"authorization": "Bearer right"}, 200),
            ({"authorization": "Bearer right", "origin": "http://evil.example"}, 403),
            ({"authorization": "Bearer right", "origin": "null"}, 403),
            ({"authorization": "Bearer right", "origin": "http://127.0.0.1:8080"}, 200),
        ],
    )
    def test_who_is_let_in(self, headers: dict[str, str], status: int) -> None:
        assert knock(headers) == status

    @pytest.mark.parametrize(
        ("listens_on", "host", "status"),
        [
            ("127.0.0.1", "127.0.0.1:8080", 200),
            ("127.0.0.1", "LOCALHOST:8080", 200),
            ("::1", "[::1]:8080", 200),
            ("127.0.0.2", "127.0.0.2:8080", 200),
            ("127.0.0.1", "evil.example:8080", 400),
            ("127.0.0.1", "127.0.0.1.evil.example", 400),
            ("127.0.0.1", "[bad", 400),
            ("127.0.0.1", "", 400),
            ("0.0.0.0", "gpu-box.example", 200),
        ],
    )
    def test_the_names_it_answers_to(self, listens_on: str, host: str, status: int) -> None:
        hosts = Settings(state_dir=Path(), host=listens_on).hosts
        assert knock({"authorization": "Bearer right", "host": host}, hosts=hosts) == status

    def test_loopback(self) -> None:
        assert is_loopback("127.0.0.1")
        assert is_loopback("localhost")
        assert is_loopback("::1")
        assert not is_loopback("0.0.0.0")
        assert not is_loopback("example.org")


def knock(headers: dict[str, str], path: str = "/metrics", **options: Any) -> int:
    """The status that a server with the token "right" answers a GET with."""
    raw = [(k.encode(), v.encode()) for k, v in {"host": "127.0.0.1:8080", **headers}.items()]
    reached: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reached.append(200)

    async def send(message: Any) -> None:
        reached.append(message.get("status", 0))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    scope = {"type": "http", "path": path, "headers": raw}
    asyncio.run(BearerAuth(app, ["right"], **options)(scope, receive, send))
    return reached[0]


def entity(version: str = "1", **more: Any) -> dict[str, Any]:
    return {"entity_name": "main.ml.grader", "entity_version": version, **more}


class TestSchemas:
    def test_the_words_are_the_apis(self) -> None:
        """As the installed databricks-sdk has them."""
        for ours, theirs in (
            (ConfigUpdate, sdk.EndpointStateConfigUpdate),
            (Ready, sdk.EndpointStateReady),
            (Deployment, sdk.ServedModelStateDeployment),
            (WorkloadType, sdk.ServingModelWorkloadType),
        ):
            assert set(get_args(ours)) == {member.value for member in theirs}

    def test_what_a_served_entity_may_say_is_the_apis(self) -> None:
        """All of the sdk's fields but those of external and foundation models."""
        theirs = {field.name for field in dataclasses.fields(sdk.ServedEntityInput)}
        others = {"external_model", "provisioned_model_units"}
        others |= {f"{end}_provisioned_throughput" for end in ("min", "max")}
        assert set(ServedEntityInput.model_fields) == theirs - others

    def test_one_entity_is_named_and_gets_all_traffic(self) -> None:
        config = EndpointConfig.model_validate({"served_entities": [entity()]})
        assert config.served_entities[0].name == "grader-1"
        assert config.traffic_config is not None
        assert config.traffic_config.routes == [
            Route(
                served_entity_name="grader-1", served_model_name="grader-1", traffic_percentage=100
            )
        ]

    def test_the_older_spelling_means_the_same(self) -> None:
        old = {"served_models": [{"model_name": "m", "model_version": 2, "workload_size": "Large"}]}
        served = EndpointConfig.model_validate(old).served_entities[0]
        assert (served.entity_name, served.entity_version, served.concurrency) == ("m", "2", 64)

    @pytest.mark.parametrize(
        ("config", "said"),
        [
            ({"served_entities": [entity(), entity()]}, "names must differ"),
            ({"served_entities": [entity("1"), entity("2")]}, "add up to 100"),
            (
                {
                    "served_entities": [entity()],
                    "traffic_config": {
                        "routes": [{"served_entity_name": "x", "traffic_percentage": 100}]
                    },
                },
                "names no served entity",
            ),
            ({"served_entities": [entity("../1")]}, "pattern"),
            ({"served_entities": [entity(external_model={})]}, "not permitted"),
            (
                {"served_entities": [entity(environment_vars={f"V{i}": "" for i in range(31)})]},
                "at most 30",
            ),
        ],
    )
    def test_what_is_refused(self, config: dict[str, Any], said: str) -> None:
        with pytest.raises(ValidationError) as refused:
            EndpointCreate.model_validate({"name": "e", "config": config})
        assert said in describe_validation(refused.value.errors())

    def test_a_refusal_names_the_place_and_not_the_value(self) -> None:
        with pytest.raises(ValidationError) as refused:
            EndpointCreate.model_validate(
                {"name": "e", "config": {"served_entities": [entity("hunter2")]}}
            )
        told = describe_validation(
            [{**e, "loc": ("body", *e["loc"])} for e in refused.value.errors()]
        )
        assert told.startswith("config.served_entities[0].entity_version: ")
        assert "hunter2" not in told

    def test_provisioned_concurrency_wins_over_the_size(self) -> None:
        body = {"served_entities": [entity(workload_size="Small", max_provisioned_concurrency=8)]}
        assert EndpointConfig.model_validate(body).served_entities[0].concurrency == 8


class TestStore:
    def record(self) -> EndpointRecord:
        body = {"name": "e", "config": {"served_entities": [entity()]}, "tags": [{"key": "k"}]}
        request = EndpointCreate.model_validate(body)
        record = EndpointRecord.of(request)
        record.config = ConfigRecord.of(request.config, 1)
        state = EntityState(deployment="DEPLOYMENT_FAILED", deployment_state_message="no memory")
        record.failures = {"e-1": state}
        return record

    def test_records_come_back_whole_and_in_order(self, tmp_path: Path) -> None:
        first, second = self.record(), self.record().model_copy(update={"name": "a"})
        with Store(tmp_path) as store:
            store.save(first)
            store.save(second)
            store.save(first)
        with Store(tmp_path) as store:
            assert store.load() == [first, second]
            store.delete("e")
            assert store.load() == [second]

    def test_one_server_a_state_directory(self, tmp_path: Path) -> None:
        with Store(tmp_path), pytest.raises(ApiError, match="Another server"):
            Store(tmp_path)


class TestErrorBodies:
    def test_no_rows_and_no_stack_trace_come_back(self) -> None:
        body = {
            "error_code": "BAD_REQUEST",
            "message": "Failed to predict data '{'prompt': 'secret. \nError: x'}'. \nError: why",
            "stack_trace": "Traceback: secret",
        }
        error = clean(400, json.dumps(body))
        assert (error.status, error.code, error.message) == (400, "BAD_REQUEST", "why")

    @pytest.mark.parametrize(
        ("message", "kept"),
        [
            ("Invalid JSON. Error: 'x'\nInput: \nsecret", "Invalid JSON. Error: 'x'"),
            ("Failed to enforce schema of data 'secret' with schema 's'. Error: why", "why"),
            ("a plain fault", "a plain fault"),
        ],
    )
    def test_other_forms(self, message: str, kept: str) -> None:
        assert clean(400, json.dumps({"message": message})).message == kept

    def test_a_body_that_is_no_json(self) -> None:
        error = clean(415, "only UTF-8")
        assert error.body() == {"error_code": "UNSUPPORTED_MEDIA_TYPE", "message": "only UTF-8"}


class TestLogs:
    def test_the_reason_is_read_from_this_start_only(self, tmp_path: Path) -> None:
        log = tmp_path / "e.log"
        before = "load failed: ValueError: an old fault\n"
        log.write_text(before)
        assert failure_of(log, len(before), 3) == "ended with exit status 3; see its log"
        long = "x" * 100_000  # a log is read from its end, never whole
        log.write_text(before + f"{long}\nload failed: ValueError: a new fault\nmore\n")
        assert failure_of(log, len(before), 3) == "ValueError: a new fault"
        assert "out of memory" in failure_of(log, log.stat().st_size, -9)

    def test_a_log_that_has_grown_starts_anew(self, tmp_path: Path) -> None:
        log = tmp_path / "e.log"
        log.write_text("x" * 100)
        with open_log(log, 99):
            assert log.read_text() == ""
        assert (tmp_path / "e.log.1").read_text() == "x" * 100

    def test_the_tail_begins_with_a_line(self, tmp_path: Path) -> None:
        log = tmp_path / "e.log"
        log.write_text("first line\nsecond line\nthird line\n")
        assert tail(log, 25) == "second line\nthird line\n"
        assert tail(tmp_path / "none") == ""


class TestSecrets:
    def test_resolved_from_the_servers_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FORMLINE_SECRET_MY_SCOPE_HF_TOKEN", "abc")
        given = {"HF_TOKEN": "{{secrets/my-scope/hf-token}}", "PLAIN": "x{{y}}"}
        assert resolve_secrets(given) == {"HF_TOKEN": "abc", "PLAIN": "x{{y}}"}

    def test_a_missing_one_says_what_to_set(self) -> None:
        with pytest.raises(ApiError, match="FORMLINE_SECRET_S_K"):
            resolve_secrets({"A": "{{secrets/s/k}}"})


class TestOpenAi:
    messages = ({"role": "user", "content": "hi"},)
    tool: ClassVar[dict[str, Any]] = {
        "type": "function",
        "function": {
            "name": "grade",
            "parameters": {
                "type": "object",
                "properties": {"g": {"$ref": "#/$defs/G"}},
                "$defs": {"G": {"enum": ["yes", "no"]}},
            },
        },
    }

    def chat(self, **more: Any) -> ChatRequest:
        return ChatRequest.model_validate({"model": "m", "messages": [*self.messages], **more})

    def test_a_chat_becomes_a_row(self) -> None:
        request = self.chat(
            temperature=0.5,
            max_completion_tokens=7,
            stop=["a", "b"],
            logprobs=True,
            top_logprobs=2,
            chat_template_kwargs={"enable_thinking": False},
            response_format={"type": "json_object"},
        )
        assert chat_row(request, Tools()) == {
            "messages": [*self.messages],
            "temperature": 0.5,
            "max_tokens": 7,
            "stop": ["a", "b"],
            "logprobs": 2,
            "enable_thinking": False,
            "response_format": {"type": "json_object"},
        }

    def test_a_callers_template_is_refused(self) -> None:
        for hostile in ({"chat_template": "x"}, {"chat_template_kwargs": {"chat_template": "x"}}):
            with pytest.raises(ValidationError):
                self.chat(**hostile)

    def test_a_list_of_prompts_becomes_rows(self) -> None:
        request = CompletionRequest(model="m", prompt=["a", "b"], max_tokens=3)
        assert completion_rows(request) == [
            {"prompt": "a", "max_tokens": 3},
            {"prompt": "b", "max_tokens": 3},
        ]

    def test_a_forced_tool_becomes_a_schema_and_its_answer_a_call(self) -> None:
        choice = {"type": "function", "function": {"name": "grade"}}
        tools = Tools.of(self.chat(tools=[self.tool], tool_choice=choice))
        json_schema = tools.constraint()["json_schema"]
        assert json_schema["$defs"] == {"G": {"enum": ["yes", "no"]}}
        assert json_schema["properties"]["name"] == {"const": "grade"}
        assert json_schema["properties"]["arguments"]["properties"] == {"g": {"$ref": "#/$defs/G"}}
        message = tools.read('{"name": "grade", "arguments": {"g": "yes"}}')
        assert message["content"] is None
        assert message["tool_calls"][0]["function"] == {
            "name": "grade",
            "arguments": '{"g": "yes"}',
        }

    def test_a_cut_call_is_text(self) -> None:
        tools = Tools.of(self.chat(tools=[self.tool], tool_choice="required"))
        assert tools.read('{"name": "gr') == {"content": '{"name": "gr'}

    def test_tools_are_told_to_the_model_after_its_own_system_prompt(self) -> None:
        system = {"role": "system", "content": "Be kind."}
        request = self.chat(
            messages=[system, *self.messages], tools=[self.tool], tool_choice="required"
        )
        turns = Tools.of(request).told(request.messages)
        assert len(turns) == 2
        assert turns[0]["content"].startswith("Be kind.\n\n")
        assert '"grade"' in turns[0]["content"]

    def test_what_cannot_be_enforced_is_refused(self) -> None:
        for choice in ("auto", None):
            with pytest.raises(ApiError, match="auto"):
                Tools.of(self.chat(tools=[self.tool], tool_choice=choice))
        other = {"type": "function", "function": {"name": "other"}}
        with pytest.raises(ApiError, match="other"):
            Tools.of(self.chat(tools=[self.tool], tool_choice=other))

    def test_log_probabilities_in_both_shapes(self) -> None:
        tokens = [
            {"token": "Hi", "logprob": -0.5, "others": {"Ho": -1.0, "He": -2.0}},
            {"token": "!", "logprob": -3.0, "others": {".": -0.1, "?": -0.2}},
        ]
        row = {"logprobs": json.dumps(tokens)}
        assert text_logprobs(row, 2) == {
            "tokens": ["Hi", "!"],
            "token_logprobs": [-0.5, -3.0],
            "top_logprobs": [{"Hi": -0.5, "Ho": -1.0}, {".": -0.1, "?": -0.2}],
            "text_offset": [0, 2],
        }
        chat = chat_logprobs(row, 1)
        assert chat is not None
        assert [entry["token"] for entry in chat["content"]] == ["Hi", "!"]
        assert chat["content"][1]["top_logprobs"] == [
            {"token": ".", "logprob": -0.1, "bytes": None}
        ]
        assert chat_logprobs({"logprobs": None}, 1) is None
        assert text_logprobs({}, 1) is None

    def test_log_probabilities_of_several_answers_are_refused(self) -> None:
        with pytest.raises(ValidationError, match="need n to be 1"):
            self.chat(n=2, logprobs=True)

    def test_two_functions_that_define_a_name_differently(self) -> None:
        clash = json.loads(json.dumps(self.tool))
        clash["function"]["name"] = "second"
        clash["function"]["parameters"]["$defs"]["G"] = {"type": "string"}
        tools = Tools.of(self.chat(tools=[self.tool, clash], tool_choice="required"))
        with pytest.raises(ApiError, match="same name"):
            tools.constraint()


def test_counters_are_summed_over_the_labels_not_asked_for() -> None:
    text = '# TYPE t counter\nt_total{a="1",b="1"} 2\nt_total{a="1",b="2"} 3\nt_total{a="2"} 4\n'
    assert read_counter(text, "t_total", {"a": "1"}) == 5
    assert read_counter(text, "t_total", {}) == 9
    assert read_counter("", "t_total", {}) == 0

"""The local endpoint over the real small model: every client, unchanged, and the status page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import requests
from databricks.sdk import WorkspaceClient
from mlflow.deployments import get_deploy_client
from openai import BadRequestError, NotFoundError, OpenAI

from deploying.apply import deploy
from deploying.desired import DesiredEndpoint
from deploying.dtypes import cached_value
from deploying.kv_cache import kv_cache, language_model
from deploying.registered import read_version
from scripts.worked_example import DOCUMENTS, PARAMS, Grade
from tests.live_endpoint import LiveEndpoint, alive, all_processes, parent_of, wait_for

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

    from register import Registered

pytestmark = pytest.mark.engine

NAME = "grader"
ROWS = [{"prompt": text} for text in DOCUMENTS]
GRADE = {
    "type": "json_schema",
    "json_schema": {"name": "grade", "schema": Grade.model_json_schema()},
}
QUESTION = [{"role": "user", "content": "Is the sky blue? Answer yes or no."}]


@pytest.fixture(scope="module")
def live(
    tmp_path_factory: pytest.TempPathFactory, registry: str, registered_model: Registered
) -> Iterator[LiveEndpoint]:
    """One server with one deployed endpoint; at the end no process of it may be left."""
    server = LiveEndpoint(tmp_path_factory.mktemp("server"), registry).start()
    client = WorkspaceClient(host=server.url, token="any")
    wanted = DesiredEndpoint.check(
        name=NAME,
        entity_name=registered_model.name,
        traffic={registered_model.version: 100},
        workload_size="Large",
    )
    outcome = deploy(client, wanted, report=lambda _: None)
    assert outcome.endpoint["state"]["ready"] == "READY", server.log()
    started = descendants(server.children())
    assert started
    yield server
    server.stop()
    wait_for(lambda: not any(map(alive, started)), "nothing is left of it")


def descendants(pids: list[int]) -> list[int]:
    """The processes and all below them: an engine has processes of its own."""
    found = list(pids)
    for pid in found:
        found.extend(child for child in all_processes() if parent_of(child) == pid)
    return found


@pytest.fixture
def openai(live: LiveEndpoint) -> Iterator[Any]:
    """OpenAI's client; Any, because its overloads refuse plain dicts."""
    with OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0) as client:
        yield client


def grades(predictions: list[dict[str, Any]]) -> list[str]:
    assert [row["error"] for row in predictions] == [None] * len(predictions)
    return [Grade.model_validate_json(row["output"]).grade for row in predictions]


class TestWorkedExample:
    def test_over_rest(self, live: LiveEndpoint) -> None:
        body = {"dataframe_records": ROWS, "params": PARAMS}
        url = f"{live.url}/serving-endpoints/{NAME}/invocations"
        reply = requests.post(url, json=body, timeout=120)
        assert len(grades(reply.json()["predictions"])) == len(DOCUMENTS)

    def test_as_written_for_databricks(
        self, live: LiveEndpoint, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DATABRICKS_HOST", live.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", "any")
        client = get_deploy_client("databricks")
        inputs = {"dataframe_records": ROWS, "params": PARAMS}
        assert len(grades(client.predict(endpoint=NAME, inputs=inputs).predictions)) == 5
        pieces = list(
            client.predict_stream(endpoint=NAME, inputs={**inputs, "dataframe_records": ROWS[:1]})
        )
        streamed = "".join(piece.get("delta", "") for piece in pieces)
        assert pieces[-1]["output"] == streamed
        Grade.model_validate_json(streamed)

    def test_sixteen_clients_at_once(self, live: LiveEndpoint) -> None:
        def client(number: int) -> tuple[int, list[dict[str, Any]]]:
            reply = live.ask(NAME, DOCUMENTS[number % len(DOCUMENTS)], params=PARAMS)
            return reply.status_code, reply.json()["predictions"]

        with ThreadPoolExecutor(16) as pool:
            for status, predictions in pool.map(client, range(16)):
                assert status == 200
                assert len(grades(predictions)) == 1

    def test_a_bad_schema_is_its_rows_error(self, live: LiveEndpoint) -> None:
        rows = [{"prompt": "a", "json_schema": {"type": "nonsense"}}, {"prompt": "Say hello."}]
        url = f"{live.url}/serving-endpoints/{NAME}/invocations"
        body = {"dataframe_records": rows, "params": {"max_tokens": 8}}
        bad, good = requests.post(url, json=body, timeout=120).json()["predictions"]
        assert bad["output"] is None
        assert "nonsense" in bad["error"] or "type" in bad["error"]
        assert good["error"] is None


class TestOpenAi:
    def test_models(self, openai: Any) -> None:
        assert [model.id for model in openai.models.list()] == [NAME]
        with pytest.raises(NotFoundError):
            openai.models.retrieve("nobody")

    def test_a_response_format(self, openai: Any) -> None:
        reply = openai.chat.completions.create(
            model=NAME, messages=QUESTION, response_format=GRADE, max_tokens=32, temperature=0
        )
        assert reply.choices[0].finish_reason == "stop"
        assert Grade.model_validate_json(reply.choices[0].message.content or "")
        assert reply.usage is not None
        assert reply.usage.completion_tokens > 0

    def test_a_parsed_answer(self, openai: Any) -> None:
        reply = openai.chat.completions.parse(
            model=NAME, messages=QUESTION, response_format=Grade, max_tokens=32
        )
        assert isinstance(reply.choices[0].message.parsed, Grade)

    def test_a_stream(self, openai: Any) -> None:
        stream = openai.chat.completions.create(
            model=NAME,
            messages=QUESTION,
            response_format=GRADE,
            max_tokens=32,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert Grade.model_validate_json(text)
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
        assert chunks[-1].usage is not None

    def test_a_forced_tool(self, openai: Any) -> None:
        function = {"name": "report", "parameters": Grade.model_json_schema()}
        reply = openai.chat.completions.create(
            model=NAME,
            messages=QUESTION,
            tools=[{"type": "function", "function": function}],
            tool_choice="required",
            max_tokens=48,
        )
        assert reply.choices[0].finish_reason == "tool_calls"
        [call] = reply.choices[0].message.tool_calls or []
        assert call.function.name == "report"
        assert Grade.model_validate_json(call.function.arguments)

    def test_log_probabilities(self, openai: Any) -> None:
        reply = openai.chat.completions.create(
            model=NAME, messages=QUESTION, max_tokens=3, logprobs=True, top_logprobs=2
        )
        content = reply.choices[0].logprobs.content
        assert len(content) == reply.usage.completion_tokens == 3
        for token in content:
            assert len(token.top_logprobs) == 2
            assert token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob
        text = openai.completions.create(model=NAME, prompt="Once", max_tokens=3, logprobs=1)
        assert "".join(text.choices[0].logprobs.tokens) == text.choices[0].text

    def test_truncation_is_told(self, openai: Any) -> None:
        reply = openai.completions.create(model=NAME, prompt="Tell a long story.", max_tokens=3)
        assert reply.choices[0].finish_reason == "length"
        assert reply.usage is not None
        assert reply.usage.completion_tokens == 3

    def test_a_schema_that_cannot_be_enforced(self, openai: Any) -> None:
        with pytest.raises(BadRequestError):
            openai.chat.completions.create(
                model=NAME, messages=QUESTION, extra_body={"json_schema": {"type": "nonsense"}}
            )


def test_metrics_count_rows_and_tokens(live: LiveEndpoint) -> None:
    assert live.ask(NAME, "Say hello.", params={"max_tokens": 4}).status_code == 200
    text = requests.get(f"{live.url}/metrics", timeout=30).text
    assert f'formline_endpoint_requests_total{{endpoint="{NAME}",status="200"}}' in text
    assert "formline_tokens_total{" in text
    assert re.search(r"^formline_rows_waiting\{.*\} \d", text, re.MULTILINE), "KEDA scales on it"
    status = requests.get(f"{live.url}/api/2.0/formline/status", timeout=30).json()["endpoints"][0]
    assert status["completion_tokens_total"] > 0


@pytest.mark.parametrize("path", [f"/serving-endpoints/{NAME}/invocations", "/v1/completions"])
def test_a_client_that_hangs_up_has_its_rows_aborted(live: LiveEndpoint, path: str) -> None:
    """Long before the endpoint's limit, which would count them as DEADLINE_EXCEEDED."""
    before = rows_that_ended(live, "CANCELLED")
    prompts = [f"Tell the long story of city number {n}." for n in range(24)]
    body: dict[str, Any] = {"dataframe_records": [{"prompt": p} for p in prompts]}
    body["params"] = {"max_tokens": 1500, "min_tokens": 1500}
    if "completions" in path:
        body = {"model": NAME, "prompt": prompts, "max_tokens": 1500}
    with pytest.raises(requests.ReadTimeout):  # which closes the connection
        requests.post(f"{live.url}{path}", json=body, timeout=2)
    wait_for(lambda: rows_that_ended(live, "CANCELLED") > before, "rows were given up", 60)
    wait_for(lambda: sum_of(live, "vllm:num_requests_running") == 0, "vLLM computes nothing", 60)
    assert rows_that_ended(live, "DEADLINE_EXCEEDED") == 0


def test_a_stream_left_before_its_first_token_is_aborted(live: LiveEndpoint) -> None:
    before = rows_that_ended(live, "CANCELLED")
    prompt = " ".join(f"City {n} is old." for n in range(200))  # seconds to read
    body = {"dataframe_records": [{"prompt": prompt}], "params": {"max_tokens": 500}}
    url = f"{live.url}/serving-endpoints/{NAME}/invocations"
    with pytest.raises(requests.ReadTimeout):  # which closes the connection
        requests.post(url, json={**body, "stream": True}, timeout=0.5)
    wait_for(lambda: rows_that_ended(live, "CANCELLED") > before, "the row was given up", 60)


def rows_that_ended(live: LiveEndpoint, outcome: str) -> float:
    return sum_of(live, "formline_rows_total", f'outcome="{outcome}"')


def sum_of(live: LiveEndpoint, name: str, label: str = "") -> float:
    """The sum of a metric's samples that have the label."""
    lines = requests.get(f"{live.url}/metrics", timeout=30).text.splitlines()
    samples = (line for line in lines if line.startswith(f"{name}{{") and label in line)
    return sum(float(line.rsplit(" ", 1)[1]) for line in samples)


def test_the_pre_flights_cache_is_vllms(
    live: LiveEndpoint, registered_model: Registered, engine_args: dict[str, Any]
) -> None:
    """As many tokens fit the cache that vLLM made as deploying's estimate says."""
    assert live.ask(NAME, "Say hello.", params={"max_tokens": 1}).status_code == 200
    text = requests.get(f"{live.url}/metrics", timeout=30).text
    [info] = [line for line in text.splitlines() if line.startswith("vllm:cache_config_info{")]
    labels = dict(re.findall(r'(\w+)="([^"]*)"', info))
    block, blocks = int(labels["block_size"]), int(labels["num_gpu_blocks"])
    version = read_version(registered_model.name, registered_model.version)
    token = kv_cache(language_model(version.hf_config), 1, 1).values(1) * cached_value(version)
    assert blocks == engine_args["kv_cache_memory_bytes"] // (token * block)


@pytest.mark.browser
class TestStatusPage:
    def test_it_shows_the_endpoint_and_answers_a_prompt(
        self, live: LiveEndpoint, browser: Chrome
    ) -> None:
        from selenium.webdriver.common.by import By

        browser.get(live.url)
        row = f"document.querySelector('tr[data-endpoint={NAME}]')?.innerText ?? ''"
        wait_for(lambda: "ready" in browser.execute_script(f"return {row}"), "it is ready")
        assert "version 1 (100 %)" in browser.execute_script(f"return {row}")
        browser.find_element(By.ID, "send").click()
        facts = browser.find_element(By.ID, "answer-facts")
        wait_for(lambda: "tokens" in facts.text, "an answer is shown")
        answer = browser.find_element(By.ID, "answer")
        assert json.loads(answer.text)["grade"] in ("yes", "no")
        assert "finish reason: stop" in facts.text
        wait_for(lambda: "–" not in browser.execute_script(f"return {row}"), "rates are shown")
        log = browser.get_log("browser")  # type: ignore[no-untyped-call]
        assert [entry for entry in log if entry["level"] == "SEVERE"] == []

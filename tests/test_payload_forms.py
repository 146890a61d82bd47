"""Every payload form through MLflow's real scoring app gives the same rows, or a clear refusal."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.payload_client import PayloadClient, last_texts, understood

SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Hi"},
    {"role": "user", "content": "日本語 🎉"},
]
Record = dict[str, Any]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> PayloadClient:
    return PayloadClient(tmp_path_factory.mktemp("any") / "model")


@pytest.fixture(scope="module")
def text_client(tmp_path_factory: pytest.TempPathFactory) -> PayloadClient:
    return PayloadClient(tmp_path_factory.mktemp("text") / "model", string_columns=True)


def as_records(key: str) -> Callable[[list[Record]], object]:
    return lambda records: {key: records}


def as_columns(key: str) -> Callable[[list[Record]], object]:
    return lambda records: {key: {name: [r[name] for r in records] for name in records[0]}}


def as_split(records: list[Record]) -> object:
    columns = list(records[0])
    rows = [[record[name] for name in columns] for record in records]
    return {"dataframe_split": {"columns": columns, "data": rows}}


FORMS = {
    "inputs records": as_records("inputs"),
    "inputs columns": as_columns("inputs"),
    "instances records": as_records("instances"),
    "instances columns": as_columns("instances"),
    "dataframe_records": as_records("dataframe_records"),
    "dataframe_split": as_split,
}

# A NUL at the end of a text is lost in numpy's string arrays, which MLflow makes of `instances`.
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
prompts = texts.filter(lambda text: text != "None")
record_lists = st.lists(
    st.fixed_dictionaries(
        {
            "prompt": prompts,
            "system_prompt": st.none() | prompts,
            "temperature": st.none() | st.floats(0, 2),
            "max_tokens": st.none() | st.integers(1, 4096),
            "json_schema": st.none() | st.just(SCHEMA) | st.just(json.dumps(SCHEMA)),
            "force_order": st.none() | st.booleans(),
        }
    ),
    min_size=1,
    max_size=4,
)
many_payloads = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def expected(record: Record) -> Record:
    system = record["system_prompt"]
    system = "You are a helpful assistant." if system is None else system
    turns = [("system", system)] if system else []
    return {
        "turns": [*turns, ("user", record["prompt"])],
        "temperature": 0.1 if record["temperature"] is None else record["temperature"],
        "max_tokens": record["max_tokens"] or 512,
        "force_order": bool(record["force_order"]),
        "json_schema": None if record["json_schema"] is None else SCHEMA,
    }


def seen(row: Record) -> Record:
    constraint = row["constraint"]
    return {
        "turns": [(message["role"], message["content"]) for message in row["messages"]],
        **{name: row["fields"][name] for name in ("temperature", "max_tokens", "force_order")},
        "json_schema": None if constraint is None else json.loads(constraint["text"]),
    }


@pytest.mark.parametrize("form", FORMS)
@many_payloads
@given(records=record_lists)
def test_every_form_gives_the_same_rows(
    client: PayloadClient, form: str, records: list[Record]
) -> None:
    rows = client.rows(FORMS[form](records))
    assert [seen(row) for row in rows] == [expected(record) for record in records]
    assert [row["index"] for row in rows] == list(range(len(records)))


@pytest.mark.parametrize("form", FORMS)
@many_payloads
@given(records=record_lists)
def test_every_form_gives_the_same_rows_from_text_columns(
    text_client: PayloadClient, form: str, records: list[Record]
) -> None:
    as_text = [{name: json_text(cell) for name, cell in r.items()} for r in records]
    rows = text_client.rows(FORMS[form](as_text))
    assert [seen(row) for row in rows] == [expected(record) for record in records]


def json_text(cell: Any) -> str | None:
    return cell if cell is None or isinstance(cell, str) else json.dumps(cell)


@many_payloads
@given(records=record_lists)
def test_a_dataframe_gives_the_same_rows(client: PayloadClient, records: list[Record]) -> None:
    answers = client.model.predict(pd.DataFrame(records))
    rows = [json.loads(text) for text in answers["output"]]
    assert [seen(row) for row in rows] == [expected(record) for record in records]


@many_payloads
@given(prompts_=st.lists(prompts, max_size=5))
def test_bare_lists_and_flat_bodies_give_a_row_a_prompt(
    client: PayloadClient, prompts_: list[str]
) -> None:
    for body in ({"inputs": prompts_}, {"instances": prompts_}, {"prompt": prompts_}):
        assert last_texts(client.rows(body)) == prompts_


# What pandas reads in a CSV cell as missing cannot be a text there.
csv_texts = st.text(st.characters(categories=["L", "N", "P"]), min_size=3, max_size=20).filter(
    lambda text: text not in {"NaN", "nan", "NULL", "null", "None", "N/A", "n/a", "#N/A", "<NA>"}
)


@many_payloads
@given(records=record_lists, csv_prompts=st.lists(csv_texts, min_size=4, max_size=4))
def test_csv_gives_the_same_rows_from_text_columns(
    text_client: PayloadClient, records: list[Record], csv_prompts: list[str]
) -> None:
    wanted = [
        {**record, "prompt": prompt, "system_prompt": None}
        for record, prompt in zip(records, csv_prompts, strict=False)
    ]
    frame = pd.DataFrame([{name: json_text(cell) for name, cell in r.items()} for r in wanted])
    reply = text_client.post_raw(frame.to_csv(index=False).encode(), "text/csv")
    assert [seen(row) for row in understood(reply)] == [expected(record) for record in wanted]


def test_csv_needs_text_columns(client: PayloadClient) -> None:
    status, reply = client.post_raw(b"prompt\nhello\n", "text/csv")
    assert status == 400
    assert "CSV" in reply["message"]


def test_parquet_gives_the_same_rows(client: PayloadClient) -> None:
    frame = pd.DataFrame({"prompt": ["a", "b"], "max_tokens": [5, None]})
    buffer = io.BytesIO()
    frame.to_parquet(buffer)
    rows = understood(client.post_raw(buffer.getvalue(), "application/vnd.apache.parquet"))
    assert [(row["messages"][-1]["content"], row["fields"]["max_tokens"]) for row in rows] == [
        ("a", 5),
        ("b", 512),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": CHAT},
        {"messages": [CHAT]},
        {"messages": CHAT, "model": "any", "stream_options": "x"},
        {"inputs": [{"messages": CHAT}]},
        {"inputs": {"messages": [CHAT]}},
        {"inputs": [{"messages": json.dumps(CHAT), "prompt": None}]},
        {"instances": [{"messages": CHAT}]},
        {"dataframe_records": [{"messages": CHAT}]},
        {"dataframe_split": {"columns": ["messages"], "data": [[CHAT]]}},
    ],
)
def test_a_chat_is_one_row_in_every_form(client: PayloadClient, body: object) -> None:
    (row,) = client.rows(body)
    assert [(m["role"], m["content"]) for m in row["messages"]] == [
        (m["role"], m["content"]) for m in CHAT
    ]


def test_chats_of_different_lengths(client: PayloadClient) -> None:
    assert last_texts(client.rows({"inputs": [{"messages": CHAT}, {"messages": CHAT[:2]}]})) == [
        CHAT[-1]["content"],
        "Hello",
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": []},
        {"instances": []},
        {"dataframe_records": []},
        {"dataframe_split": {"columns": ["prompt"], "data": []}},
        {"prompt": []},
    ],
)
def test_zero_rows_give_zero_answers(client: PayloadClient, body: object) -> None:
    assert client.rows(body) == []


def test_a_flat_body_is_answered_without_predictions(client: PayloadClient) -> None:
    status, reply = client.post({"prompt": "hello", "temperature": 0.5})
    assert status == 200
    assert json.loads(reply[0]["output"])["fields"]["temperature"] == 0.5


def test_missing_null_nan_and_none_cells_are_missing(client: PayloadClient) -> None:
    frame = pd.DataFrame(
        {
            "prompt": ["a", "b", "c", "d"],
            "json_schema": pd.Series([None, float("nan"), pd.NA, "None"], dtype=object),
            "temperature": [None, float("nan"), None, None],
            "stop": pd.Series([None, "None", pd.NaT, float("nan")], dtype=object),
        }
    )
    rows = [json.loads(text) for text in client.model.predict(frame)["output"]]
    assert [row["constraint"] for row in rows] == [None] * 4
    assert [row["fields"]["temperature"] for row in rows] == [0.1] * 4
    assert [row["fields"]["stop"] for row in rows] == [[]] * 4


def test_a_null_prompt_is_a_row_error_and_a_prompt_None_is_text(client: PayloadClient) -> None:
    rows = client.rows({"inputs": [{"prompt": None}, {"prompt": "None"}]})
    assert "neither prompt nor messages" in rows[0]["error"]
    assert rows[1]["messages"][-1]["content"] == "None"


def test_a_null_prompt_in_text_columns_is_a_row_error(text_client: PayloadClient) -> None:
    rows = text_client.rows({"inputs": [{"prompt": None}, {"prompt": "a"}]})
    assert "neither prompt nor messages" in rows[0]["error"]
    assert rows[1]["messages"][-1]["content"] == "a"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({"inputs": {"prompt": "a", "json_schema": SCHEMA}}, "spread over the rows"),
        ({"inputs": {"prompt": ["a"], "stop": ["x", "y"]}}, "another length"),
        ({"inputs": {"prompt": ["a", "b"], "system_prompt": ["x"]}}, "another length"),
        ({"inputs": [["a", "b"]]}, "name the columns"),
        ({"dataframe_split": {"data": [["a", "b"]]}}, "name the columns"),
    ],
)
def test_rows_and_columns_mixed_up_are_refused(
    client: PayloadClient, body: object, what: str
) -> None:
    status, reply = client.post(body)
    assert (status, reply["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert what in reply["message"]


def test_an_object_beside_a_list_is_refused(client: PayloadClient) -> None:
    status, _ = client.post({"inputs": {"prompt": ["a", "b"], "json_schema": SCHEMA}})
    assert status == 400


def test_a_scalar_beside_a_list_of_prompts_holds_for_all(client: PayloadClient) -> None:
    rows = client.rows({"inputs": {"prompt": ["a", "b"], "system_prompt": "s"}})
    assert [row["fields"]["system_prompt"] for row in rows] == ["s", "s"]


def test_a_rows_column_wins_over_the_calls_param(client: PayloadClient) -> None:
    rows = client.rows(
        {
            "inputs": [
                {"prompt": "a", "temperature": 0.9, "regex": "[0-9]+", "stop": ["x"]},
                {"prompt": "b", "response_format": {"type": "text"}},
                {"prompt": "c"},
            ],
            "params": {"temperature": 0.4, "json_schema": json.dumps(SCHEMA), "stop": "y"},
        }
    )
    assert [row["fields"]["temperature"] for row in rows] == [0.9, 0.4, 0.4]
    assert [row["fields"]["stop"] for row in rows] == [["x"], ["y"], ["y"]]
    assert [row["constraint"] and row["constraint"]["kind"] for row in rows] == [
        "regex",
        None,
        "json",
    ]


def test_report_16_an_unknown_param_is_dropped_by_mlflow_before_the_model(
    client: PayloadClient,
) -> None:
    """Only the client helper can tell; see test_client.py. Here the drop itself is on record."""
    (row,) = client.rows({"inputs": ["a"], "params": {"Temperature": 0.9}})
    assert row["fields"]["temperature"] == 0.1


def test_report_16_params_beside_dataframe_records_are_read(client: PayloadClient) -> None:
    body = {"dataframe_records": [{"prompt": "a"}], "params": {"temperature": 0.9}}
    assert client.rows(body)[0]["fields"]["temperature"] == 0.9


@pytest.mark.parametrize(
    ("stop", "wanted"),
    [
        ("<|eot_id|>", ["<|eot_id|>"]),
        ('["a", "b"]', ["a", "b"]),
        ("[/INST]", ["[/INST]"]),
        ("[1]", ["[1]"]),
        ("[", ["["]),
    ],
)
def test_report_17_stop_as_text_or_json_list(
    client: PayloadClient, stop: str, wanted: list[str]
) -> None:
    (by_param,) = client.rows({"inputs": ["a"], "params": {"stop": stop}})
    (by_column,) = client.rows({"inputs": [{"prompt": "a", "stop": stop}]})
    assert by_param["fields"]["stop"] == by_column["fields"]["stop"] == wanted


def test_report_17_stop_as_a_list_in_a_column(client: PayloadClient) -> None:
    (row,) = client.rows({"inputs": [{"prompt": "a", "stop": ["x", "y"]}]})
    assert row["fields"]["stop"] == ["x", "y"]


SECRET = "my secret row 4711"


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": -1},
        {"max_tokens": 0},
        {"json_schema": "{"},
        {"json_schema": "{}", "regex": "a"},
        {"min_tokens": 600},
    ],
)
def test_report_18_wrong_params_are_a_400_without_rows_or_trace(
    client: PayloadClient, params: Record
) -> None:
    status, reply = client.post({"inputs": [SECRET], "params": params})
    assert (status, reply["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert SECRET not in json.dumps(reply)
    assert "Traceback" not in json.dumps(reply)
    assert "stack_trace" not in reply


def test_report_18_a_fault_of_ours_tells_nothing(
    client: PayloadClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    implementation = client.model.unwrap_python_model()
    monkeypatch.delattr(implementation, "text_columns")
    status, reply = client.post({"inputs": [SECRET]})
    assert (status, reply["error_code"]) == (500, "INTERNAL_ERROR")
    assert SECRET not in json.dumps(reply)
    assert "Traceback" not in json.dumps(reply)

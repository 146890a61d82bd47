"""Input rows become requests: by name, by a mapping, by a template."""

from __future__ import annotations

import pyarrow as pa
import pytest

from scoring.errors import UsageError
from scoring.requests import RequestBuilder

TABLE = pa.table({"prompt": ["p", None], "question": ["Why {x}?", "B"], "temperature": [0.0, 1.0]})
KNOWN = ("prompt", "messages", "system_prompt", "temperature")


def build(columns: dict[str, str] | None = None, template: str | None = None) -> RequestBuilder:
    return RequestBuilder(TABLE.schema, KNOWN, columns or {}, template)


def test_request_columns_are_taken_by_name() -> None:
    assert build().build(TABLE).rows == [
        {"prompt": "p", "temperature": 0.0},
        {"prompt": None, "temperature": 1.0},
    ]


def test_a_mapping_takes_only_what_it_names() -> None:
    assert build({"prompt": "question"}).build(TABLE).rows == [
        {"prompt": "Why {x}?"},
        {"prompt": "B"},
    ]


def test_a_template_sees_all_columns_and_leaves_braces_alone() -> None:
    requests = build(template="Q: {{ question }}\n").build(TABLE)
    assert [row["prompt"] for row in requests.rows] == ["Q: Why {x}?\n", "Q: B\n"]


def test_a_row_that_the_template_fails_on_is_that_rows_error() -> None:
    requests = build(template="{{ prompt.upper() }}").build(TABLE)
    assert requests.rows[0]["prompt"] == "P"
    assert list(requests.errors) == [1]
    assert requests.errors[1].startswith("TEMPLATE_ERROR")


def test_templates_are_sandboxed() -> None:
    requests = build(template="{{ question.__class__.__mro__ }}").build(TABLE)
    assert len(requests.errors) == 2


def test_a_frame_keeps_none_and_integers() -> None:
    table = pa.table({"prompt": ["a", None, "c"], "temperature": pa.array([1, None, 0])})
    requests = RequestBuilder(table.schema, KNOWN, {}, None).build(table)
    frame = requests.frame([1, 2])
    assert frame["prompt"].tolist() == [None, "c"]
    assert frame["temperature"].tolist() == [None, 0]


def test_structs_do_not_send_nulls_for_absent_keys() -> None:
    messages = [
        [{"role": "user", "content": "a", "name": "Ann"}],
        [{"role": "user", "content": "b"}],
        None,
    ]
    table = pa.table({"messages": messages})
    requests = RequestBuilder(table.schema, KNOWN, {}, None).build(table)
    assert [row["messages"] for row in requests.rows] == messages


@pytest.mark.parametrize(
    ("columns", "template", "said"),
    [
        ({"promt": "question"}, None, "no request column of that name"),
        ({"prompt": "nope"}, None, "no column 'nope'"),
        ({"prompt": "question"}, "{{ question }}", "not both"),
        (None, "{{ qestion }}", "qestion"),
        (None, "{% if %}", "line 1"),
    ],
)
def test_what_cannot_work_is_said_at_once(
    columns: dict[str, str] | None, template: str | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        build(columns, template)


def test_an_input_without_prompts_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="--map prompt="):
        RequestBuilder(pa.schema([("text", pa.string())]), KNOWN, {}, None)

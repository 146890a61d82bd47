"""Files and tables in and out: nothing changes on the way that the format can hold."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from scoring.chunks import cut
from scoring.errors import UsageError
from scoring.formats import csv_text, delta, format_of, json_lines, parquet

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=20)


def read_back(module: object, path: Path) -> list[dict[str, object]]:
    schema = module.read_schema(str(path))  # type: ignore[attr-defined]
    batches = module.read(str(path), schema, 3)  # type: ignore[attr-defined]
    return [row for batch in batches for row in batch.to_pylist()]


@given(st.lists(st.fixed_dictionaries({"prompt": st.none() | TEXT, "b": TEXT}), min_size=1))
def test_text_comes_back_from_csv_as_it_was(rows: list[dict[str, str | None]]) -> None:
    schema = pa.schema([("prompt", pa.string()), ("b", pa.string())])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.csv"
        csv_text.write(str(path), schema, [pa.RecordBatch.from_pylist(rows, schema)])
        assert read_back(csv_text, path) == rows


def test_csv_keeps_leading_zeros_byte_order_mark_and_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffid,prompt\n007,"two\nlines"\n008,""\n009,\n'.encode())
    assert read_back(csv_text, path) == [
        {"id": "007", "prompt": "two\nlines"},
        {"id": "008", "prompt": ""},
        {"id": "009", "prompt": None},
    ]


def test_csv_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,a\n1,2\n")
    with pytest.raises(UsageError, match="twice"):
        csv_text.read_schema(str(tmp_path / "a.csv"))


def test_csv_writes_structs_as_columns_and_lists_as_json(tmp_path: Path) -> None:
    rows = [{"parsed": {"grade": "yes", "tags": ["a"]}}, {"parsed": None}]
    batch = pa.RecordBatch.from_pylist(rows)
    csv_text.write(str(tmp_path / "a.csv"), batch.schema, [batch])
    assert read_back(csv_text, tmp_path / "a.csv") == [
        {"parsed.grade": "yes", "parsed.tags": '["a"]'},
        {"parsed.grade": None, "parsed.tags": None},
    ]


def test_json_lines_carries_objects_without_inventing_keys(tmp_path: Path) -> None:
    rows = [
        {"prompt": "a", "meta": {"x": 1}, "tags": ["t"], "n": 1},
        {"prompt": "b", "meta": {"y": [{"z": None}]}, "tags": [], "n": 2.5},
        {"prompt": "c", "meta": None, "tags": None, "n": None},
    ]
    source, copy = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    schema = json_lines.read_schema(str(source))
    json_lines.write(str(copy), schema, json_lines.read(str(source), schema, 2))
    assert [json.loads(line) for line in copy.read_text().splitlines()] == rows


def test_a_json_column_of_mixed_kinds_is_text_even_when_the_change_comes_late(
    tmp_path: Path,
) -> None:
    rows = [{"v": 1}] * (json_lines.LINES_AT_ONCE + 1) + [{"v": "x"}, {"v": {"a": 1}}, {"w": 2**80}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    back = read_back(json_lines, path)
    assert [row["v"] for row in back[-3:]] == ["x", '{"a": 1}', None]
    assert back[0]["v"] == "1"
    assert back[-1]["w"] == str(2**80)


@pytest.mark.parametrize(("line", "said"), [("{oops", "line 2"), ("[1]", "must be a JSON object")])
def test_a_bad_json_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n' + line + "\n")
    with pytest.raises(UsageError, match=said):
        json_lines.read_schema(str(path))


def test_parquet_directories_are_read_in_name_order(tmp_path: Path) -> None:
    for name, value in (("b", 2), ("a", 1)):
        pq.write_table(pa.table({"v": [value]}), tmp_path / f"{name}.parquet")
    assert read_back(parquet, tmp_path) == [{"v": 1}, {"v": 2}]
    assert parquet.count(str(tmp_path)) == 2


def test_a_delta_table_in_partitions_with_a_column_added_later(tmp_path: Path) -> None:
    """Neither column is in every file; both are in every row."""
    path = str(tmp_path / "table")
    first = pa.table({"day": [1, 1, 2], "prompt": ["a", "b", "c"]})
    write_deltalake(path, first, partition_by=["day"])
    later = pa.table({"day": [2, None], "prompt": ["d", "e"], "note": ["new", None]})
    write_deltalake(path, later, mode="append", schema_mode="merge")
    found = {row["prompt"]: (row["day"], row["note"]) for row in read_back(delta, Path(path))}
    assert found == {
        "a": (1, None),
        "b": (1, None),
        "c": (2, None),
        "d": (2, "new"),
        "e": (None, None),
    }


@pytest.mark.parametrize("module", [parquet, delta])
def test_a_large_file_is_read_a_part_at_a_time(tmp_path: Path, module: Any) -> None:
    """Each file is one row group, which Arrow by itself takes in whole."""
    path = str(tmp_path / f"x.{module.NAME}")
    texts = [str(i) * 50 for i in range(200_000)]
    table = pa.table({"prompt": texts})
    if module is delta:
        write_deltalake(path, table)
    else:
        pq.write_table(table, path, row_group_size=len(table))
    size = table.nbytes
    del table, texts
    schema = module.read_schema(path)
    before = pa.total_allocated_bytes()
    held = [pa.total_allocated_bytes() - before for _ in module.read(path, schema, 1_000)]
    assert len(held) == 200
    assert max(held) < size / 4


def test_delta_commits_a_job_once(tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    batch = pa.RecordBatch.from_pylist([{"v": 1, "s": {"x": "a"}}])
    for _ in range(2):
        delta.write(path, batch.schema, [batch], job="job-1")
    assert read_back(delta, tmp_path / "table") == batch.to_pylist()
    assert delta.identity(path)["version"] == 0
    delta.write(path, batch.schema, [batch], job="job-2", overwrite=True)
    assert delta.identity(path)["version"] == 1
    assert delta.count(path) == 1


def test_content_not_name_identifies_a_file(tmp_path: Path) -> None:
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    one.write_text("prompt\na\n")
    two.write_text("prompt\na\n")
    assert csv_text.identity(str(one)) == csv_text.identity(str(two))
    two.write_text("prompt\nb\n")
    assert csv_text.identity(str(one)) != csv_text.identity(str(two))


@pytest.mark.parametrize(
    ("path", "said"), [("x.parquet", "no such file"), ("x.delta", "no Delta table")]
)
def test_a_missing_input_is_named(tmp_path: Path, path: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        format_of(path).read_schema(str(tmp_path / path))


def test_an_unknown_suffix_asks_for_the_format() -> None:
    with pytest.raises(UsageError, match=r"\.parquet"):
        format_of("rows.xlsx")


@given(st.lists(st.integers(0, 7)), st.integers(1, 9))
def test_chunks_have_the_asked_size_whatever_the_batches(sizes: list[int], rows: int) -> None:
    numbers = iter(range(1000))
    batches = [pa.RecordBatch.from_pydict({"v": [next(numbers) for _ in range(n)]}) for n in sizes]
    batches = [batch.cast(pa.schema([("v", pa.int64())])) for batch in batches]
    chunks = list(cut(batches, pa.schema([("v", pa.int64())]), rows))
    assert [v for chunk in chunks for v in chunk.table["v"].to_pylist()] == list(range(sum(sizes)))
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert all(chunk.rows == rows for chunk in chunks[:-1])
    assert not chunks or 0 < chunks[-1].rows <= rows

"""What MLflow makes of each payload form, undone: any of them as plain records, one a row.

MLflow's schema enforcement turns every form into a DataFrame before a model sees it. On the way
a flat body's list of prompts becomes one row holding a list, a flat chat becomes one row a
message, a bare list becomes the unnamed column 0, and an object beside a scalar is spread over
one row a key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from model.cells import plain
from model.errors import RequestError

BARE_COLUMN = 0  # where MLflow puts a bare list
SECOND_BARE_COLUMN = 1  # there only when a bare list holds lists
_OBJECT_COLUMNS = ("json_schema", "response_format")
_SCHEMA_KEYS = frozenset(
    {"type", "properties", "required", "items", "enum", "const", "anyOf", "oneOf", "allOf"}
    | {"$defs", "definitions", "$ref", "$schema", "title", "description", "json_schema"}
    | {"additionalProperties"}
)
Record = dict[str, Any]


class _FrameRecords(Collection[Record]):
    """A DataFrame's rows, read as they are iterated."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._frame = frame

    def __len__(self) -> int:
        return len(self._frame)

    def __iter__(self) -> Iterator[Record]:
        return (_record(self._frame.columns, cells) for cells in _tuples(self._frame))

    def __contains__(self, record: object) -> bool:
        return any(record == own for own in self)


def read_records(model_input: Any) -> Collection[Record]:
    """The rows of a call, in order, as records of plain values; missing cells are None.

    Raises RequestError when columns of different lengths, or an object spread over rows, show
    that rows and columns were mixed up.
    """
    frame = _as_frame(model_input)
    if frame.columns.size == 0:
        return ()
    if not frame.columns.is_unique:
        raise RequestError(f"column names must differ, got {list(map(str, frame.columns))}")
    _refuse_unnamed_columns(frame)
    _refuse_spread_object(frame)
    if _is_flat_chat(frame):
        return [{"messages": [plain(cell) for cell in frame["messages"]]}]
    if len(frame) == 1:
        return _unfold(_record(frame.columns, next(_tuples(frame))))
    return _FrameRecords(frame)


def _as_frame(model_input: Any) -> pd.DataFrame:
    """The input as a DataFrame, also when it did not come through MLflow's enforcement."""
    if isinstance(model_input, pd.DataFrame):
        return model_input
    if isinstance(model_input, (str, pd.Series)):
        return pd.DataFrame(
            {BARE_COLUMN: [model_input] if isinstance(model_input, str) else model_input}
        )
    if isinstance(model_input, Mapping):
        return pd.DataFrame([dict(model_input)], dtype=object)
    if isinstance(model_input, Sequence):
        if all(isinstance(row, Mapping) for row in model_input):
            return pd.DataFrame(list(model_input), dtype=object)
        return pd.DataFrame({BARE_COLUMN: pd.Series(list(model_input), dtype=object)})
    raise RequestError(f"rows must be a DataFrame, a list or an object, got {type(model_input)}")


def _tuples(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    rows: Iterator[tuple[Any, ...]] = frame.itertuples(index=False, name=None)
    return rows


def _record(columns: pd.Index[Any], cells: tuple[Any, ...]) -> Record:
    record = {str(name): plain(cell) for name, cell in zip(columns, cells, strict=True)}
    bare = record.pop(str(BARE_COLUMN), None)
    record.pop(str(SECOND_BARE_COLUMN), None)
    return record if bare is None else {**record, "prompt": bare}


def _unfold(record: Record) -> list[Record]:
    """The rows of one record whose prompt is a list: its other lists run along, scalars stay."""
    prompts = record.get("prompt")
    if not isinstance(prompts, list):
        return [record]
    lists = {name: cell for name, cell in record.items() if isinstance(cell, list)}
    if uneven := [name for name, cell in lists.items() if len(cell) != len(prompts)]:
        raise RequestError(
            f"prompt holds {len(prompts)} texts, but {', '.join(uneven)} a list of another length: "
            "send one record a row, or lists of equal length"
        )
    return [
        {**record, **{name: cell[place] for name, cell in lists.items()}}
        for place in range(len(prompts))
    ]


def _is_flat_chat(frame: pd.DataFrame) -> bool:
    return (
        list(frame.columns) == ["messages"]
        and len(frame) > 0
        and all(isinstance(cell, dict) and "role" in cell for cell in frame["messages"])
    )


def _refuse_unnamed_columns(frame: pd.DataFrame) -> None:
    """Only a lone unnamed column can be told to be the prompts."""
    given = {
        name for name in (BARE_COLUMN, SECOND_BARE_COLUMN, "prompt") if _has_values(frame, name)
    }
    if SECOND_BARE_COLUMN in given or given == {BARE_COLUMN, "prompt"}:
        raise RequestError("rows came as lists of several values: name the columns")


def _has_values(frame: pd.DataFrame, name: str | int) -> bool:
    return name in frame.columns and bool(frame[name].notna().any())


def _refuse_spread_object(frame: pd.DataFrame) -> None:
    """An object beside a scalar becomes one row a key, with the keys as the frame's index."""
    spread = [name for name in _OBJECT_COLUMNS if name in frame.columns]
    if spread and not _SCHEMA_KEYS.isdisjoint(frame.index):
        raise RequestError(
            f"{' and '.join(spread)} was spread over the rows, one key a row: send it as JSON "
            "text, or send records, each with its own object"
        )

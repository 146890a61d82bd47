"""One cell of a payload as plain Python: numpy, pandas and Spark wrappings taken off."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd

from model.errors import RowError

_KINDS = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}
_LARGEST_EXACT = 2**53  # beyond it a float no longer tells neighbouring integers apart


def plain(value: Any) -> Any:
    """The cell as None, bool, int, float, str, list or dict; NaN, NaT and NA are None."""
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, (list, tuple)) and not hasattr(value, "asDict"):
        return [plain(item) for item in value]
    if hasattr(value, "asDict"):  # a Spark Row, which is a tuple too
        return plain(value.asDict(recursive=True))
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        value = value.item()
    return None if value is None or _is_missing(value) else value


def _is_missing(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is pd.NA or isinstance(value, type(pd.NaT))


def kind(value: Any) -> str:
    """What a value is, for an error message; numbers are shown, texts and containers are not."""
    name = _KINDS.get(type(value), f"a value of type {type(value).__name__}")
    return f"{name} ({value})" if type(value) in (bool, int, float) else name


def whole(value: Any) -> Any:
    """An integral float as its integer: pandas turns integer columns with gaps into floats."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_EXACT:
        return int(value)
    return value


def read_json(text: str, field: str) -> Any:
    """The value of strict JSON text (no NaN or Infinity); RowError naming `field` otherwise."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise RowError(f"{field} is nested too deeply", "INVALID_JSON") from None
    except ValueError as error:
        where = (
            f" (line {error.lineno}, column {error.colno}: {error.msg})"
            if isinstance(error, json.JSONDecodeError)
            else f" ({error})"
        )
        raise RowError(f"{field} is not valid JSON{where}{_hint(text)}", "INVALID_JSON") from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _hint(text: str) -> str:
    if text.lstrip().startswith("{'"):
        return ". A Python dict was turned into text on its way; send json.dumps(...) of it"
    return ""


def to_json(value: Any, field: str) -> str:
    """Compact JSON text of a plain value, keys in their given order."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError) as error:
        raise RowError(f"{field} cannot be written as JSON: {error}", "INVALID_JSON") from None

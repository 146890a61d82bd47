"""A JSON schema as an Arrow type, and answers parsed into it.

object -> struct, array -> list, string, integer (int64), number (double), boolean; what has no
single column type (unions, free-form objects, recursion) is JSON text. A cell that does not fit
its column is null and says so; the text in `output` is never touched.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from scoring.errors import UsageError

JSON_TEXT = pa.string()
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_SCALARS = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_LITERALS = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def arrow_type(json_schema: str) -> pa.DataType:
    """The column type of answers under this schema."""
    root = json.loads(json_schema)
    return _type(root, root, ())


def _type(node: Any, root: Any, seen: tuple[str, ...]) -> pa.DataType:
    if not isinstance(node, dict):
        return JSON_TEXT
    if "$ref" in node:
        return _referred(node["$ref"], root, seen)
    if "const" in node or "enum" in node:
        return _literal_type([node["const"]] if "const" in node else node["enum"])
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in node:
            return _branches_type(node[keyword], root, seen)
    return _kind_type(node, root, seen)


def _referred(ref: str, root: Any, seen: tuple[str, ...]) -> pa.DataType:
    """The type of a local `$ref`; a recursive one has no finite type."""
    if not ref.startswith("#") or ref in seen:
        return JSON_TEXT
    node = root
    for part in ref[1:].split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, dict) or part not in node:
            raise UsageError(f"json_schema: $ref {ref!r} points nowhere")
        node = node[part]
    return _type(node, root, (*seen, ref))


def _literal_type(values: Sequence[Any]) -> pa.DataType:
    kinds = {type(value) for value in values if value is not None}
    return _LITERALS.get(kinds.pop(), JSON_TEXT) if len(kinds) == 1 else JSON_TEXT


def _branches_type(branches: Sequence[Any], root: Any, seen: tuple[str, ...]) -> pa.DataType:
    """One type when all branches but null have it."""
    types = {str(t): t for b in branches if b != {"type": "null"} for t in [_type(b, root, seen)]}
    return next(iter(types.values())) if len(types) == 1 else JSON_TEXT


def _kind_type(node: Mapping[str, Any], root: Any, seen: tuple[str, ...]) -> pa.DataType:
    kinds = node.get("type", [])
    named = [kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]
    if len(named) != 1:
        return JSON_TEXT
    if named[0] == "array":
        items = node.get("items")
        return JSON_TEXT if "prefixItems" in node else pa.list_(_type(items, root, seen))
    if named[0] == "object":
        return _struct(node, root, seen)
    return _SCALARS.get(named[0], JSON_TEXT)


def _struct(node: Mapping[str, Any], root: Any, seen: tuple[str, ...]) -> pa.DataType:
    properties = node.get("properties")
    if not properties or node.get("patternProperties") or _is_open(node):
        return JSON_TEXT
    return pa.struct([(name, _type(sub, root, seen)) for name, sub in properties.items()])


def _is_open(node: Mapping[str, Any]) -> bool:
    """Whether the schema asks for more properties than it names, by giving them a schema."""
    return isinstance(node.get("additionalProperties"), dict)


def parse_answers(
    outputs: Sequence[str | None], errors: Sequence[str | None], wanted: pa.DataType
) -> tuple[pa.Array, list[str | None]]:
    """The typed column, and the errors with those of cells that do not fit it."""
    cells: list[Any] = []
    problems = list(errors)
    for position, text in enumerate(outputs):
        try:
            cells.append(None if text is None or problems[position] else _fit(text, wanted))
        except ValueError as error:
            cells.append(None)
            problems[position] = f"NOT_TYPED: {error}"
    return pa.array(cells, wanted), problems


def _fit(text: str, wanted: pa.DataType) -> Any:
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return _cell(value, wanted, "")


def _cell(value: Any, wanted: pa.DataType, where: str) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(wanted):
        _want(isinstance(value, dict), "an object", where)
        return {f.name: _cell(value.get(f.name), f.type, f"{where}/{f.name}") for f in wanted}
    if pa.types.is_list(wanted):
        _want(isinstance(value, list), "an array", where)
        return [_cell(v, wanted.value_type, f"{where}/{i}") for i, v in enumerate(value)]
    return _scalar(value, wanted, where)


def _scalar(value: Any, wanted: pa.DataType, where: str) -> Any:
    if pa.types.is_string(wanted):
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if pa.types.is_boolean(wanted):
        _want(isinstance(value, bool), "true or false", where)
        return value
    _want(isinstance(value, int | float) and not isinstance(value, bool), "a number", where)
    if pa.types.is_integer(wanted):
        whole = isinstance(value, int) or value.is_integer()
        _want(whole and INT64_MIN <= value <= INT64_MAX, "an integer of 64 bits", where)
        return int(value)
    return _double(value, where)


def _double(value: int | float, where: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{where or '/'} is beyond a double's range") from None


def _want(holds: bool, what: str, where: str) -> None:
    if not holds:
        raise ValueError(f"{where or '/'} is not {what}")

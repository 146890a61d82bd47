"""Command-line texts as a job's values."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from scoring.errors import UsageError


def extra_params(arguments: Sequence[str]) -> dict[str, Any]:
    """["--max-tokens", "64", "--stop=;"] -> {"max_tokens": 64, "stop": ";"}"""
    params: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        option = rest.pop(0)
        if not option.startswith("--"):
            raise UsageError(f"unexpected argument {option!r}")
        name, equals, text = option[2:].partition("=")
        if not equals:
            if not rest:
                raise UsageError(f"{option} needs a value")
            text = rest.pop(0)
        params[name.replace("-", "_")] = _value(text)
    return params


def _value(text: str) -> Any:
    """A number or true/false as such; all else stays the text it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float) else text


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """["prompt=question"] -> {"prompt": "question"}"""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--map {text}: write REQUEST_COLUMN=INPUT_COLUMN")
        found[name] = value
    return found


def read_text(given: str | None) -> str | None:
    """The content of the file of that name, or the text itself."""
    if given is None:
        return None
    try:
        path = Path(given)
        return path.read_text(encoding="utf-8") if path.is_file() else given
    except OSError:  # a long text is no file name
        return given


def read_schema(json_schema: str | None, pydantic: str | None) -> str | None:
    """JSON text of the schema; UsageError when both are given or the type has none."""
    if json_schema is not None and pydantic is not None:
        raise UsageError("give either --json-schema or --pydantic, not both")
    return read_text(json_schema) if pydantic is None else schema_of(pydantic)


def schema_of(name: str) -> str:
    """The JSON schema of `module:Name`: a pydantic model, dataclass, TypedDict or other type."""
    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise UsageError(f"--pydantic {name}: write module:Class")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module_name), attribute)
        return json.dumps(_closed(TypeAdapter(found).json_schema()), ensure_ascii=False)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--pydantic {name}: {error}") from error
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise UsageError(f"--pydantic {name}: {error.message}") from error
    finally:
        sys.path.remove(str(Path.cwd()))


def _closed(schema: Any) -> Any:
    """The schema with its objects closed: a type's fields are all its fields."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        inner.setdefault("additionalProperties", False)
    return inner

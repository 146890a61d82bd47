"""What one scoring job is asked to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from scoring.errors import UsageError

CHUNK_ROWS = 256  # rows a part file holds: what a kill can cost, and one call of the model


@dataclass(frozen=True)
class Job:
    """One job. Exactly one of `model` (a model URI) and `endpoint` (a name or URL) answers it.

    columns          request column -> input column; empty: by name
    prompt_template  Jinja text over the input columns, for `prompt`
    json_schema      JSON text of the schema that every answer obeys
    typed            answers parsed into the column `parsed`, with types from `json_schema`
    label            input column with the right answers; `answer_field` is what it is compared to
    prefix           put before the names of answer columns
    """

    model: str | None = None
    endpoint: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    json_schema: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    prompt_template: str | None = None
    typed: bool = False
    deduplicate: bool = True
    label: str | None = None
    answer_field: str | None = None
    prefix: str = ""
    chunk_rows: int = CHUNK_ROWS
    row_retries: int = 2

    def __post_init__(self) -> None:
        if (self.model is None) == (self.endpoint is None):
            raise UsageError("name either a model (models:/NAME@ALIAS) or an endpoint, not both")
        if self.chunk_rows < 1:
            raise UsageError("chunk_rows must be at least 1")
        if self.typed and self.json_schema is None:
            raise UsageError("typed columns come from a schema: give --json-schema or --pydantic")
        if self.json_schema is not None:
            _check_json(self.json_schema)

    @property
    def all_params(self) -> dict[str, Any]:
        """The params of every call, the schema among them."""
        given = {} if self.json_schema is None else {"json_schema": self.json_schema}
        return {**self.params, **given}

    def shaping(self) -> dict[str, Any]:
        """All that shapes the output, as JSON; what answers (a version) comes from the target."""
        everything = asdict(self)
        for name in ("model", "endpoint", "row_retries", "label", "answer_field"):
            del everything[name]
        return everything


def _check_json(text: str) -> None:
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"json_schema is not valid JSON: {error}") from error
    if not isinstance(loaded, dict | bool):
        raise UsageError("json_schema must be a JSON object")

"""Input rows -> what the model is asked: request columns by name, by a mapping, or a template.

A row that a template fails on becomes that row's error; everything else is the model's to judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import jinja2.meta
import jinja2.sandbox
import pandas as pd
import pyarrow as pa

from scoring.errors import UsageError


@dataclass(frozen=True)
class Requests:
    """A chunk's requests: one dict a row, or the error that takes its place."""

    rows: list[dict[str, Any]]
    errors: dict[int, str]

    def frame(self, positions: Sequence[int]) -> pd.DataFrame:
        """The rows at `positions`, as object columns: None stays None, integers stay integers."""
        chosen = [self.rows[position] for position in positions]
        names = chosen[0] if chosen else {}
        columns = {name: [row[name] for row in chosen] for name in names}
        return pd.DataFrame(columns, dtype=object)


class RequestBuilder:
    """How this job makes a request of an input row. UsageError when it cannot."""

    def __init__(
        self,
        schema: pa.Schema,
        known: Sequence[str],
        columns: Mapping[str, str],
        prompt_template: str | None,
    ) -> None:
        self.columns = _mapping(schema, known, columns, prompt_template)
        self._template = _compile(prompt_template, schema) if prompt_template is not None else None
        self._template_columns = [
            name for name in _used(prompt_template or "") if name in schema.names
        ]

    def build(self, table: pa.Table) -> Requests:
        cells = {name: _cells(table.column(source)) for name, source in self.columns.items()}
        rows = [
            dict(zip(cells, values, strict=True)) for values in zip(*cells.values(), strict=True)
        ]
        if self._template is None:
            return Requests(rows, {})
        rows = rows or [{} for _ in range(table.num_rows)]
        return Requests(rows, self._add_prompts(self._template, table, rows))

    def _add_prompts(
        self, template: jinja2.Template, table: pa.Table, rows: list[dict[str, Any]]
    ) -> dict[int, str]:
        """Puts a prompt into each row; returns the errors of rows that have none."""
        errors: dict[int, str] = {}
        used = table.select(self._template_columns).to_pylist()
        for position, (row, cells) in enumerate(zip(rows, used, strict=True)):
            try:
                row["prompt"] = template.render(cells)
            except Exception as error:  # noqa: BLE001  a template may raise anything: one row's error
                row["prompt"] = None
                errors[position] = f"TEMPLATE_ERROR: prompt_template: {error}"
        return errors


def _cells(column: pa.ChunkedArray) -> list[Any]:
    """Plain values, without the nulls that structs hold for absent keys (`name` of a message)."""
    cells: list[Any] = column.to_pylist()
    return [_without_nulls(cell) for cell in cells] if pa.types.is_nested(column.type) else cells


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(cell) for key, cell in value.items() if cell is not None}
    return [_without_nulls(cell) for cell in value] if isinstance(value, list) else value


def _mapping(
    schema: pa.Schema, known: Sequence[str], columns: Mapping[str, str], template: str | None
) -> dict[str, str]:
    for name, source in columns.items():
        if name not in known:
            raise UsageError(
                f"--map {name}: the model has no request column of that name; it has "
                f"{', '.join(known)}"
            )
        if source not in schema.names:
            raise UsageError(
                f"--map {name}={source}: the input has no column {source!r}; it has "
                f"{', '.join(schema.names)}"
            )
    if template is not None and "prompt" in columns:
        raise UsageError("give either --map prompt=COLUMN or --prompt-template, not both")
    if columns or template is not None:
        return dict(columns)
    by_name = {name: name for name in known if name in schema.names}
    if not {"prompt", "messages"} & by_name.keys():
        raise UsageError(
            f"the input has no column prompt or messages (it has {', '.join(schema.names)}); "
            "use --map prompt=COLUMN or --prompt-template"
        )
    return by_name


def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    return jinja2.sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )


def _used(template: str) -> list[str]:
    environment = _environment()
    return sorted(jinja2.meta.find_undeclared_variables(environment.parse(template)))


def _compile(template: str, schema: pa.Schema) -> jinja2.Template:
    environment = _environment()
    try:
        compiled = environment.from_string(template)
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(f"prompt_template, line {error.lineno}: {error.message}") from error
    unknown = sorted(set(_used(template)) - set(schema.names) - set(environment.globals))
    if unknown:
        raise UsageError(
            f"prompt_template uses {', '.join(unknown)}, but the input has the columns "
            f"{', '.join(schema.names)}"
        )
    return compiled

"""Which columns the output has: the input's, the answers', and the typed one when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from scoring.errors import UsageError
from scoring.typed_columns import arrow_type, parse_answers

PARSED = "parsed"


@dataclass(frozen=True)
class Layout:
    """The output's schema, known before the first row is answered."""

    carried: pa.Schema
    answers: pa.Schema
    prefix: str = ""
    typed: pa.DataType | None = None

    @classmethod
    def plan(
        cls, carried: pa.Schema, answers: pa.Schema, prefix: str, json_schema: str | None
    ) -> Layout:
        """`json_schema` is given when typed columns are wanted. UsageError when names collide."""
        layout = cls(
            carried.remove_metadata(),
            answers,
            prefix,
            None if json_schema is None else arrow_type(json_schema),
        )
        taken = set(layout.answer_names) & set(carried.names)
        if taken:
            raise UsageError(
                f"the input has columns named like the answers: {', '.join(sorted(taken))}; "
                "put something before the answers' names with --prefix"
            )
        return layout

    @property
    def answer_names(self) -> list[str]:
        typed = [] if self.typed is None else [PARSED]
        return [self.prefix + name for name in [*self.answers.names, *typed]]

    @property
    def schema(self) -> pa.Schema:
        types = [*self.answers.types, *([] if self.typed is None else [self.typed])]
        fields = [pa.field(n, t) for n, t in zip(self.answer_names, types, strict=True)]
        return pa.schema([*self.carried, *fields])

    def join(self, rows: pa.Table, answers: pa.RecordBatch) -> pa.RecordBatch:
        """The input's rows with their answers."""
        columns = [_whole(column) for column in rows.columns]
        columns += answers.columns if self.typed is None else self._with_parsed(answers)
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def answers_in(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The answers of joined rows, under their own names."""
        columns = [batch.column(self.prefix + name) for name in self.answers.names]
        return pa.RecordBatch.from_arrays(columns, schema=self.answers)

    def _with_parsed(self, answers: pa.RecordBatch) -> Sequence[pa.Array]:
        texts = answers.column("output").to_pylist()
        errors = answers.column("error").to_pylist()
        parsed, problems = parse_answers(texts, errors, self.typed)
        place = answers.schema.get_field_index("error")
        told = answers.set_column(place, "error", pa.array(problems, pa.string()))
        return [*told.columns, parsed]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """One array of the column; combine_chunks gives several beyond 2 GiB of text."""
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        raise UsageError("a chunk holds more than 2 GiB of text: use a smaller chunk_rows")
    return combined

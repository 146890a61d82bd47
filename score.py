"""Answers every row of a file or table.

    python score.py INPUT --output OUTPUT --model models:/NAME@ALIAS [--max-tokens 64 ...]

Any param of the model is an option. Start a stopped or killed run again with the same command: it
goes on where it was. Exit codes: 0 all rows answered, 3 some rows have errors, 2 usage, 1 failure.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scoring.errors import Interrupted, ScoringError, UsageError
from scoring.job import CHUNK_ROWS, Job
from scoring.options import extra_params, pairs, read_schema, read_text
from scoring.run import Options, Result, score, score_frame

if TYPE_CHECKING:
    from scoring.spark import score_spark

__all__ = ["Job", "Options", "Result", "ScoringError", "score", "score_frame", "score_spark"]

ALL_ANSWERED, FAILURE, USAGE, ROW_ERRORS = 0, 1, 2, 3

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def main(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="Parquet, CSV, JSONL, Delta, spark:TABLE")
    ],
    output: Annotated[str, typer.Option(help="Where the answers go; its suffix is its format")],
    model: Annotated[str | None, typer.Option(help="Model URI, as models:/NAME@ALIAS")] = None,
    endpoint: Annotated[str | None, typer.Option(help="Serving endpoint: name or URL")] = None,
    json_schema: Annotated[str | None, typer.Option(help="Schema file, or its text")] = None,
    pydantic: Annotated[str | None, typer.Option(help="Schema of a type, module:Name")] = None,
    prompt_template: Annotated[str | None, typer.Option(help="Jinja file, or its text")] = None,
    map: Annotated[list[str] | None, typer.Option(help="REQUEST=INPUT column, repeatable")] = None,
    typed: Annotated[bool, typer.Option(help="Parse answers into the column parsed")] = False,
    deduplicate: Annotated[bool, typer.Option(help="Ask equal rows once at temperature 0")] = True,
    label: Annotated[str | None, typer.Option(help="Column with the right answers")] = None,
    answer_field: Annotated[str | None, typer.Option(help="Answer's field it is held to")] = None,
    prefix: Annotated[str, typer.Option(help="Put before the names of answer columns")] = "",
    input_format: Annotated[str | None, typer.Option(help="parquet, csv, jsonl, delta")] = None,
    output_format: Annotated[str | None, typer.Option(help="parquet, csv, jsonl, delta")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an output that exists")] = False,
    restart: Annotated[bool, typer.Option(help="Drop an unfinished job's rows")] = False,
    track: Annotated[bool, typer.Option(help="Write an MLflow run")] = True,
    sample: Annotated[bool, typer.Option(help="Log a sample of rows in it")] = True,
    quiet: Annotated[bool, typer.Option(help="No progress")] = False,
    work_dir: Annotated[Path | None, typer.Option(help="Where to keep finished parts")] = None,
    chunk_rows: Annotated[int, typer.Option(help="Rows a part holds")] = CHUNK_ROWS,
    row_retries: Annotated[int, typer.Option(help="Retries of rows the engine failed")] = 2,
) -> None:
    """Answer every row of INPUT. Any param of the model is an option too: --temperature 0 ..."""
    try:
        job = Job(
            model=model,
            endpoint=endpoint,
            params=extra_params(context.args),
            json_schema=read_schema(json_schema, pydantic),
            columns=pairs(map or []),
            prompt_template=read_text(prompt_template),
            typed=typed,
            deduplicate=deduplicate,
            label=label,
            answer_field=answer_field,
            prefix=prefix,
            chunk_rows=chunk_rows,
            row_retries=row_retries,
        )
        options = Options(overwrite, restart, track, sample, quiet, work_dir)
        result = score(
            source,
            output,
            job=job,
            input_format=input_format,
            output_format=output_format,
            options=options,
        )
    except ScoringError as error:
        raise typer.Exit(told(error)) from error
    except OSError as error:  # a full disk, a file that may not be written
        raise typer.Exit(told(ScoringError(str(error)))) from error
    print(result.summary())
    raise typer.Exit(ROW_ERRORS if result.totals.errors else ALL_ANSWERED)


def told(error: ScoringError) -> int:
    """Says what stopped the job and how to go on; returns the exit code."""
    print(f"score: {error.message}", file=sys.stderr)
    if isinstance(error, UsageError):
        return USAGE
    what = "go on" if isinstance(error, Interrupted) else "try the remaining rows again"
    print(f"score: run the same command to {what}", file=sys.stderr)
    return FAILURE


def __getattr__(name: str) -> Any:
    """score_spark, where PySpark is installed: nothing else here needs it."""
    if name == "score_spark":
        from scoring.spark import score_spark

        return score_spark
    raise AttributeError(name)


if __name__ == "__main__":
    app()

"""Every notebook runs top to bottom, in order, on the small model and a local endpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from scripts import notebooks

NAMES = [
    "01_register",
    "02_deploy",
    "03_rest_and_deployments_client",
    "04_structured_extraction",
    "05_batch_scoring",
    "06_spark",
    "07_ai_query",
]
# Paths and addresses of a machine; Databricks' own /Volumes are everybody's.
PRIVATE = re.compile(
    r"/(?:root|home|tmp|work|opt|Users|usr|private)/|\b\d+\.\d+\.\d+\.\d+\b|file://"
)


@pytest.fixture(scope="module")
def environment(
    small_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, str], Path]]:
    folder = tmp_path_factory.mktemp("notebooks")
    with notebooks.workspace(folder, small_model_dir) as variables:
        yield variables, folder


def test_these_are_all_notebooks() -> None:
    assert [path.stem for path in notebooks.paths()] == NAMES


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name: str, environment: tuple[dict[str, str], Path]) -> None:
    """In order: later ones use the version that 01 registers and the endpoint of 02."""
    if name == "06_spark" and notebooks.java() is None:
        pytest.skip("needs Java for Spark")
    variables, folder = environment
    (path,) = notebooks.paths([name])
    executed = notebooks.run(path, variables, folder)
    assert sum(cell.cell_type == "code" for cell in executed.cells) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_it_is_kept_with_outputs_and_without_traces_of_a_machine(name: str) -> None:
    (path,) = notebooks.paths([name])
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any(cell.outputs for cell in code)
    assert all(cell.execution_count for cell in code)
    shown = [text for cell in code for out in cell.outputs for text in texts(out)]
    assert not [text for text in shown if PRIVATE.search(text)]
    assert not [out for cell in code for out in cell.outputs if out.output_type == "error"]


def texts(output: nbformat.NotebookNode) -> list[str]:
    """What an output shows, pictures aside."""
    data = output.get("data", {})
    shown = [value for kind, value in data.items() if not kind.startswith("image/")]
    return [str(text) for text in [output.get("text", ""), *shown]]

"""A run's plots. Each function draws one figure from a job's statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scoring.evaluation import Evaluation
from scoring.histogram import Histogram
from scoring.statistics import Statistics

TIME_BINS = 60
BLUE, ORANGE, GREEN, RED = "#3b6fb6", "#d9822b", "#3d9970", "#c0392b"
_STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
}


def figures(statistics: Statistics) -> Iterator[tuple[str, Figure]]:
    """All figures that the statistics can fill, with their file names."""
    with mpl.rc_context(_STYLE):
        if statistics.chunk_seconds.count:
            yield "throughput.png", throughput(statistics)
            yield "latency.png", latency(statistics)
        if statistics.prompt_tokens.count:
            yield "tokens.png", tokens(statistics)
        yield "outcomes.png", outcomes(statistics)
        evaluation = statistics.evaluation
        if evaluation is not None and evaluation.rows:
            yield "confusion_matrix.png", confusion_matrix(evaluation)
            if evaluation.calibration():
                yield "calibration.png", calibration(evaluation)


def _figure(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 4.5), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def throughput(statistics: Statistics) -> Figure:
    """Rows and tokens a second over the job's time."""
    figure, axes = _figure("Throughput", "seconds since the start", "rows a second")
    edges = np.linspace(0, max(statistics.totals.seconds, 1e-3), TIME_BINS + 1)
    width = edges[1] - edges[0]
    rows, _ = np.histogram(statistics.at_s, edges, weights=statistics.rows_at)
    made, _ = np.histogram(statistics.at_s, edges, weights=statistics.tokens_at)
    axes.stairs(rows / width, edges, color=BLUE, fill=True, alpha=0.35, label="rows a second")
    other = axes.twinx()
    other.grid(visible=False)
    other.set_ylabel("tokens a second")
    other.stairs(made / width, edges, color=ORANGE, label="tokens a second")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def latency(statistics: Statistics) -> Figure:
    """How long chunks took, from their first row sent to their last answer."""
    figure, axes = _figure("Time a chunk of rows takes", "seconds", "chunks")
    _bars(axes, statistics.chunk_seconds, BLUE)
    for share, style in ((0.5, "--"), (0.95, ":")):
        value = statistics.chunk_seconds.quantile(share)
        axes.axvline(value, color=RED, linestyle=style, label=f"p{share * 100:.0f} {value:.3g} s")
    axes.legend(frameon=False)
    return figure


def tokens(statistics: Statistics) -> Figure:
    """Prompt and completion lengths."""
    figure, axes = _figure("Tokens a row", "tokens", "rows")
    _bars(axes, statistics.prompt_tokens, BLUE, "prompt")
    _bars(axes, statistics.completion_tokens, ORANGE, "completion")
    axes.legend(frameon=False)
    return figure


def _bars(axes: Axes, histogram: Histogram, color: str, label: str | None = None) -> None:
    """The filled part of a logarithmic histogram."""
    axes.set_xscale("log")
    filled = np.flatnonzero(histogram.counts)
    if len(filled):
        part = slice(filled[0], filled[-1] + 1)
        edges = histogram.edges[filled[0] : filled[-1] + 2]
        axes.stairs(histogram.counts[part], edges, color=color, fill=True, alpha=0.55, label=label)


def outcomes(statistics: Statistics) -> Figure:
    """Valid rows and each kind of error."""
    figure, axes = _figure("Outcome of rows", "rows", "")
    counts = statistics.outcomes.most_common()[::-1]
    names = [name for name, _ in counts]
    numbers = [number for _, number in counts]
    colors = [GREEN if name == "valid" else RED for name in names]
    bars = axes.barh(names, numbers, color=colors)
    whole = max(sum(numbers), 1)
    axes.bar_label(bars, [f"{n:,} ({n / whole:.1%})" for n in numbers], padding=4)
    axes.margins(x=0.2)
    return figure


def confusion_matrix(evaluation: Evaluation) -> Figure:
    """Labels against answers."""
    labels, answers, counts = evaluation.confusion()
    title = f"Accuracy {evaluation.accuracy:.1%} of {evaluation.rows:,} labelled rows"
    figure, axes = _figure(title, "answer", "label")
    axes.grid(visible=False)
    axes.imshow(counts, cmap="Blues", aspect="auto")
    axes.set_xticks(range(len(answers)), answers, rotation=30, ha="right")
    axes.set_yticks(range(len(labels)), labels)
    for (row, column), number in np.ndenumerate(counts):
        dark = number > counts.max() / 2
        axes.text(column, row, f"{number:,}", ha="center", color="white" if dark else "black")
    return figure


def calibration(evaluation: Evaluation) -> Figure:
    """How often answers are right, by how sure the model was."""
    figure, axes = _figure("Calibration", "confidence", "share right")
    bins = evaluation.calibration()
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--", label="calibrated")
    sure, right, rows = zip(*bins, strict=True)
    sizes = [30 + 200 * n / max(rows) for n in rows]
    axes.scatter(sure, right, s=sizes, color=BLUE, label="answers (size: rows)")
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    axes.legend(frameon=False)
    return figure

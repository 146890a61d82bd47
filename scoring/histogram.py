"""Counts in fixed logarithmic bins: any number of values in the same memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


class Histogram:
    """Values above 0 by powers of `2 ** (1 / per_doubling)`, from `low` to `high`."""

    def __init__(self, low: float, high: float, per_doubling: int = 1) -> None:
        doublings = np.log2(high / low)
        self.edges: npt.NDArray[np.float64] = low * 2 ** np.linspace(
            0, doublings, round(doublings * per_doubling) + 1
        )
        self.counts: npt.NDArray[np.int64] = np.zeros(len(self.edges) - 1, np.int64)
        self.total = 0.0
        self.count = 0

    def add(self, values: Iterable[float], times: Iterable[int] | None = None) -> None:
        """Each value once, or as often as `times` says; far ones go to the outer bins."""
        array = np.fromiter(values, np.float64)
        weights = np.ones(len(array), np.int64) if times is None else np.fromiter(times, np.int64)
        clipped = np.clip(array, self.edges[0], self.edges[-1])
        self.counts += np.histogram(clipped, self.edges, weights=weights)[0]
        self.total += float(array @ weights)
        self.count += int(weights.sum())

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The upper edge of the bin where `share` of the values is reached; 0 without values."""
        if not self.count:
            return 0.0
        place = int(np.searchsorted(np.cumsum(self.counts), share * self.count))
        return float(self.edges[min(place + 1, len(self.edges) - 1)])

"""Splits traffic between served entities, exactly by their percentages."""

from __future__ import annotations

from serving.schemas import Route


class Router:
    """Smooth weighted round robin: any 100 calls in a row hold each entity's percentage."""

    def __init__(self, routes: list[Route]) -> None:
        self._weights = {r.target: r.traffic_percentage for r in routes if r.traffic_percentage}
        self._credit = dict.fromkeys(self._weights, 0)

    def pick(self) -> str | None:
        """The name of the entity that gets the next call; None when nothing is routed."""
        if not self._weights:
            return None
        for name, weight in self._weights.items():
            self._credit[name] += weight
        chosen = max(self._credit, key=self._credit.__getitem__)
        self._credit[chosen] -= sum(self._weights.values())
        return chosen

"""What the command line's options say, read into DesiredEndpoint's values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from databricks.sdk.service.serving import AiGatewayRateLimitKey

from deploying.desired import InferenceTable, RateLimit
from deploying.registered import resolve_version
from model.errors import ConfigError

NONE = "none"  # ends a setting, where leaving the option out keeps it


def read_pairs(pairs: Iterable[str] | None) -> dict[str, str]:
    """["K=V"] as a dict. Raises ConfigError."""
    result = {}
    for pair in pairs or ():
        key, found, value = pair.partition("=")
        if not found or not key:
            raise ConfigError(f"{pair!r}: write KEY=VALUE")
        result[key] = value
    return result


def read_shares(pairs: Iterable[str] | None) -> dict[str, int]:
    """["3=90", "4=10"] as version -> percent. Raises ConfigError."""
    return {version: _percent(share) for version, share in read_pairs(pairs).items()}


def read_traffic(model: str, pairs: Iterable[str] | None) -> dict[str, int]:
    """["3=90", "@champion=10"] as version -> percent. Raises ConfigError."""
    return {resolve_version(model, v): share for v, share in read_shares(pairs).items()}


def read_table(text: str | None) -> InferenceTable | Literal["off"] | None:
    """`catalog.schema`, `catalog.schema.prefix` or `none`. Raises ConfigError."""
    if text is None:
        return None
    if text == NONE:
        return "off"
    parts = text.split(".")
    if len(parts) not in (2, 3) or not all(parts):
        raise ConfigError(
            f"inference table {text!r}: write CATALOG.SCHEMA, CATALOG.SCHEMA.PREFIX or none"
        )
    prefix = parts[2] if len(parts) == 3 else None
    return InferenceTable(catalog=parts[0], schema_name=parts[1], prefix=prefix)


def read_rate_limits(texts: Iterable[str] | None) -> tuple[RateLimit, ...] | None:
    """`100`, `endpoint=100`, `user=100`, or `none` alone. Raises ConfigError."""
    given = list(texts or ())
    if not given:
        return None
    return () if given == [NONE] else tuple(map(_rate_limit, given))


def _rate_limit(text: str) -> RateLimit:
    key, found, calls = text.partition("=")
    key, calls = (key, calls) if found else ("endpoint", key)
    if key not in ("endpoint", "user") or not calls.isdigit() or int(calls) < 1:
        raise ConfigError(f"rate limit {text!r}: write CALLS, endpoint=CALLS, user=CALLS or none")
    return RateLimit(calls=int(calls), per=AiGatewayRateLimitKey(key))


def _percent(text: str) -> int:
    if not text.isdigit():
        raise ConfigError(f"{text!r} is no whole percentage: write VERSION=PERCENT, such as 3=90")
    return int(text)

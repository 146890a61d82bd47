"""Which versions of an endpoint were good: kept in a tag on the endpoint itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TAG = "formline_good_versions"
LENGTH = 10


def good_versions(endpoint: Mapping[str, Any]) -> list[str]:
    """Versions that were rolled out and became ready, the newest first."""
    tags = {tag["key"]: tag.get("value") or "" for tag in endpoint.get("tags") or ()}
    return [version for version in tags.get(TAG, "").split("-") if version]


def with_good(versions: list[str], version: str) -> list[str]:
    """`versions` after `version` became ready."""
    return [version, *(v for v in versions if v != version)][:LENGTH]


def after_roll_back(versions: list[str], target: str) -> list[str]:
    """`versions` without those that were left behind, `target` first."""
    kept = versions[versions.index(target) :] if target in versions else [target]
    return kept[:LENGTH]


def as_tag(versions: list[str]) -> dict[str, str]:
    """The tag that holds `versions`; tag values allow no commas."""
    return {"key": TAG, "value": "-".join(versions)}

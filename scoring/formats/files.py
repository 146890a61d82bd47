"""What all file formats share: which files a path means, and what identifies their content."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from scoring.errors import UsageError

BLOCK = 1 << 20


def data_files(path: str, pattern: str = "*") -> list[Path]:
    """The file itself, or the visible files of a directory in name order."""
    place = Path(path)
    if not place.exists():
        raise UsageError(f"{path}: there is no such file")
    if place.is_file():
        return [place]
    found = sorted(p for p in place.rglob(pattern) if p.is_file() and p.name[0] not in "._")
    if not found:
        raise UsageError(f"{path}: no {pattern} files in this directory")
    return found


def content_identity(path: str, pattern: str = "*") -> dict[str, Any]:
    """Bytes and digest of the content; the name plays no part, so a file may be moved."""
    digest = hashlib.blake2b(digest_size=16)
    size = 0
    for file in data_files(path, pattern):
        with file.open("rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
                size += len(block)
        digest.update(b"\0end of file\0")
    return {"bytes": size, "content": digest.hexdigest()}

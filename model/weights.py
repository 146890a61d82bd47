"""A directory of weights, checked before anything is copied or loaded."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from model.errors import ConfigError

CONFIG_FILES = ("config.json", "params.json")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "spiece.model")
WEIGHT_PATTERNS = ("*.safetensors", "*.gguf", "*.bin", "*.pt")
MAX_HEADER_BYTES = 100 << 20


def check_weights(folder: Path) -> int:
    """Size in bytes of a complete weights directory; ConfigError says what it lacks."""
    if not folder.is_dir():
        raise ConfigError(f"weights: {folder} is not a directory")
    _need_one_of(folder, CONFIG_FILES, "model config")
    _need_one_of(folder, TOKENIZER_FILES, "tokenizer")
    _need_one_of(folder, WEIGHT_PATTERNS, "weights file")
    for index in folder.glob("*.safetensors.index.json"):
        _check_shards(index)
    for shard in sorted(folder.glob("*.safetensors")):
        _check_safetensors(shard)
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def has_chat_template(folder: Path) -> bool:
    """Whether the tokenizer comes with a chat template of its own."""
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(settings, dict) and bool(settings.get("chat_template"))


def _need_one_of(folder: Path, patterns: tuple[str, ...], what: str) -> None:
    if not any(any(folder.glob(pattern)) for pattern in patterns):
        raise ConfigError(f"weights: {folder} has no {what} ({', '.join(patterns)})")


def _check_shards(index: Path) -> None:
    try:
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError) as error:
        raise ConfigError(f"weights: {index} is not a shard index ({error!r})") from error
    missing = sorted(shard for shard in shards if not (index.parent / shard).is_file())
    if missing:
        raise ConfigError(
            f"weights: {index.parent} lacks {len(missing)} of {len(shards)} shards, "
            f"first {missing[0]}; download them again"
        )


def _check_safetensors(shard: Path) -> None:
    """A safetensors file is 8 bytes of header length, a JSON header, then the tensors' bytes."""
    size = shard.stat().st_size
    with shard.open("rb") as file:
        head = file.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else MAX_HEADER_BYTES + 1
        if length > MAX_HEADER_BYTES:
            raise ConfigError(f"weights: {shard} is not a safetensors file (a Git LFS pointer?)")
        try:
            header = json.loads(file.read(length))
            ends = [t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"weights: {shard} has an unreadable header") from error
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise ConfigError(f"weights: {shard} has {size} bytes, its header says {expected}")

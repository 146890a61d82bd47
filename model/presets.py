"""Chat templates by name, as the models' makers published them."""

from __future__ import annotations

from dataclasses import dataclass

from model.config import RoleTemplates


@dataclass(frozen=True)
class Preset:
    """A maker's template; `trims` strips contents, `alternates` refuses a role twice in a row."""

    templates: RoleTemplates
    trims: bool = False
    alternates: bool = False


PRESETS: dict[str, Preset] = {
    "llama-3": Preset(
        RoleTemplates(
            pre_prompt="<|begin_of_text|>",
            roles={
                role: f"<|start_header_id|>{header}<|end_header_id|>\n\n{{}}<|eot_id|>"
                for role, header in {
                    "system": "system",
                    "user": "user",
                    "assistant": "assistant",
                    "tool": "ipython",
                }.items()
            },
            post_prompt="<|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        trims=True,
    ),
    "chatml": Preset(
        RoleTemplates(
            roles={
                role: f"<|im_start|>{role}\n{{}}<|im_end|>\n"
                for role in ("system", "user", "assistant", "tool")
            },
            post_prompt="<|im_start|>assistant\n",
        )
    ),
    "mistral": Preset(
        RoleTemplates(
            pre_prompt="<s>",
            roles={"user": "[INST] {}[/INST]", "assistant": " {}</s>"},
        ),
        alternates=True,
    ),
    "gemma": Preset(
        RoleTemplates(
            pre_prompt="<bos>",
            roles={
                "user": "<start_of_turn>user\n{}<end_of_turn>\n",
                "assistant": "<start_of_turn>model\n{}<end_of_turn>\n",
            },
            post_prompt="<start_of_turn>model\n",
        ),
        trims=True,
        alternates=True,
    ),
    "phi-4": Preset(
        RoleTemplates(
            roles={
                role: f"<|im_start|>{role}<|im_sep|>{{}}<|im_end|>"
                for role in ("system", "user", "assistant")
            },
            post_prompt="<|im_start|>assistant<|im_sep|>",
        )
    ),
}

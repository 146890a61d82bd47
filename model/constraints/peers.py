"""Constraints that a request wants enforced by one of vLLM's own backends.

vLLM is imported inside the functions: it must be set up before, and checks need no engine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from model.constraints.spec import ConstraintSpec
from model.errors import UnsupportedSchema

if TYPE_CHECKING:
    from vllm.v1.structured_output.backend_types import (
        StructuredOutputBackend,
        StructuredOutputKey,
    )


def check(spec: ConstraintSpec) -> None:
    """Raises UnsupportedSchema when the named backend refuses the constraint."""
    _validated(spec)


def key_of(spec: ConstraintSpec) -> StructuredOutputKey:
    """The kind and text in the form that the named backend compiles."""
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions
    from vllm.v1.structured_output.request import get_structured_output_key
    from vllm.v1.structured_output.utils import choice_as_grammar

    kind, text = get_structured_output_key(_validated(spec).structured_outputs)
    if kind is StructuredOutputOptions.CHOICE and spec.backend == "xgrammar":
        return StructuredOutputOptions.GRAMMAR, choice_as_grammar(json.loads(text))
    return kind, text


def make(name: str, config: Any, tokenizer: Any, vocab_size: int) -> StructuredOutputBackend:
    """vLLM's backend of that name."""
    if name == "xgrammar":
        from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend as Backend
    elif name == "guidance":
        from vllm.v1.structured_output.backend_guidance import GuidanceBackend as Backend
    else:
        from vllm.v1.structured_output.backend_outlines import OutlinesBackend as Backend
    backend: StructuredOutputBackend = Backend(config, tokenizer=tokenizer, vocab_size=vocab_size)
    return backend


def _validated(spec: ConstraintSpec) -> Any:
    """vLLM's sampling params with the constraint, as its validation leaves them."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams
    from vllm.v1.structured_output.backend_guidance import validate_guidance_grammar
    from vllm.v1.structured_output.backend_outlines import (
        validate_structured_output_request_outlines,
    )
    from vllm.v1.structured_output.backend_xgrammar import validate_xgrammar_grammar

    validate = {
        "xgrammar": validate_xgrammar_grammar,
        "guidance": lambda params: validate_guidance_grammar(params, tokenizer=None),
        "outlines": validate_structured_output_request_outlines,
    }[spec.backend]
    try:
        params = SamplingParams(structured_outputs=StructuredOutputsParams(**_fields(spec)))
        validate(params)
    except Exception as error:  # noqa: BLE001 each backend raises errors of its own
        raise UnsupportedSchema(
            f"{spec.backend} refuses the {spec.kind}: {str(error)[:500]}",
            keyword=spec.kind,
            hint="the backend formline says where; or change the constraint",
        ) from None
    return params


def _fields(spec: ConstraintSpec) -> dict[str, Any]:
    if spec.kind == "json_object":
        return {"json_object": True}
    return {spec.kind: json.loads(spec.text) if spec.kind == "choice" else spec.text}

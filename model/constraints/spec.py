"""What constrains a row's answer, as it travels from the caller to vLLM's engine process.

vLLM knows one structured-output backend an engine and no options a request, so a ConstraintSpec
travels as the text of a JSON "schema" that holds it whole; backend.py in the engine process reads
it back. A plain JSON schema text is a valid spec too: it means the defaults.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from model.errors import RequestError

Kind = Literal["json", "json_object", "regex", "choice", "grammar"]
Backend = Literal["formline", "xgrammar", "guidance", "outlines"]
Whitespace = Literal["none", "compact", "flexible"]

_ENVELOPE = "$formline"


@dataclass(frozen=True)
class ConstraintSpec:
    """One row's constraint. Hashable: equal specs share one compiled automaton.

    `text` is the JSON schema, the regular expression, a JSON list of choices, the EBNF grammar,
    or "" for json_object. `whitespace`: "none" writes no whitespace, "compact" at most one space
    after `,` and `:`, "flexible" leaves bounded whitespace and line breaks to the model.
    `force_order` makes properties come in the schema's own order. `extra_properties` lets an answer
    bring keys that a schema with `properties` neither lists nor forbids; without it they are left
    out unless the schema speaks of them (`additionalProperties`, `patternProperties`).
    """

    kind: Kind
    text: str
    backend: Backend = "formline"
    whitespace: Whitespace = "flexible"
    force_order: bool = False
    extra_properties: bool = False

    def __post_init__(self) -> None:
        for field, allowed in (("kind", Kind), ("backend", Backend), ("whitespace", Whitespace)):
            value = getattr(self, field)
            if value not in get_args(allowed):
                raise RequestError(
                    f"constraint {field}: {value!r} is not one of {', '.join(get_args(allowed))}"
                )
        if self.kind == "grammar" and self.backend == "formline":
            object.__setattr__(self, "backend", "xgrammar")  # LMFE has no grammars; xgrammar does

    def to_text(self) -> str:
        """The spec as the text vLLM carries in `StructuredOutputsParams(json=...)`."""
        return json.dumps({_ENVELOPE: asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> ConstraintSpec:
        """Reads `to_text`'s output, or a plain JSON schema, which gets the defaults."""
        if _ENVELOPE in text[: len(_ENVELOPE) + 8]:
            loaded = json.loads(text)
            if isinstance(loaded, dict) and set(loaded) == {_ENVELOPE}:
                return cls(**loaded[_ENVELOPE])
        return cls("json", text)

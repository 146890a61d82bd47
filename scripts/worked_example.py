"""The worked example: grade whether retrieved documents answer a question."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ValidationError


class Grade(BaseModel):
    """Whether a document helps to answer the question."""

    grade: Literal["yes", "no"]


QUESTION = "東京で桜が見頃になるのはいつですか?"
DOCUMENTS = (
    "東京の桜は例年三月下旬に開花し、四月の初めに満開を迎えます。",
    "上野公園では約八百本の桜が植えられ、三月末から四月上旬が見頃です。",
    "味噌汁は出汁に味噌を溶かし、豆腐やわかめを加えて作ります。",
    "新幹線は東京と新大阪の間をおよそ二時間半で結んでいます。",
    "気象庁の発表では、今年の東京の満開は四月三日の見込みです。",
)
PARAMS: dict[str, Any] = {
    "system_prompt": "You grade whether a retrieved document is relevant to a question. "
    f"Question: {QUESTION} Answer with the grade yes or no.",
    "json_schema": json.dumps(Grade.model_json_schema()),
    "stop": "<|eot_id|>",
}


def is_valid(answer: str | None) -> bool:
    """Whether an answer is a Grade."""
    try:
        Grade.model_validate_json(answer or "")
    except ValidationError:
        return False
    return True

"""Number texts: whatever is accepted must be valid to jsonschema and by exact arithmetic."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from model.constraints import dfa, numbers
from model.constraints.dfa import Dfa
from model.constraints.tables import TooComplex


def fraction(value: int | float) -> Fraction:
    return Fraction(str(value))


def walk(language: Dfa, rng: random.Random) -> str:
    """A random text of the language."""
    text, state = "", 0
    while True:
        if state in language.accepting and (not language.edges[state] or rng.random() < 0.15):
            return text
        lo, hi, state = rng.choice(language.edges[state])
        text += chr(rng.randint(lo, hi))


def is_valid(
    text: str, schema: dict[str, Any], draft: type = jsonschema.Draft202012Validator
) -> bool:
    valid: bool = draft(schema).is_valid(json.loads(text))
    return valid


def exactly_inside(text: str, schema: dict[str, Any]) -> bool:
    value = Fraction(text)
    return (
        ("minimum" not in schema or value >= fraction(schema["minimum"]))
        and ("maximum" not in schema or value <= fraction(schema["maximum"]))
        and ("exclusiveMinimum" not in schema or value > fraction(schema["exclusiveMinimum"]))
        and ("exclusiveMaximum" not in schema or value < fraction(schema["exclusiveMaximum"]))
        and ("multipleOf" not in schema or value % fraction(schema["multipleOf"]) == 0)
        and (schema["type"] == "number" or value.denominator == 1)
    )


def language_of(schema: dict[str, Any]) -> Dfa:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    build = numbers.integer_texts if schema["type"] == "integer" else numbers.number_texts
    return build(
        None if low is None else fraction(low),
        None if high is None else fraction(high),
        "exclusiveMinimum" in schema,
        "exclusiveMaximum" in schema,
        fraction(schema["multipleOf"]) if "multipleOf" in schema else None,
    )


bounds = st.one_of(
    st.integers(-30, 30),
    st.integers(-(2**70), 2**70),
    st.integers(-4000, 4000).map(lambda n: n / 100),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.1, 1e23, 1e25, 5e-324, -1e-7, 1e16, 2**53 + 1, 0.30000000000000004]),
)
steps = st.sampled_from([1, 2, 3, 7, 10, 16, 1.0, 2.0, 0.5, 2.5, 0.1, 0.01, 0.05, 0.3, 1.1, 1000])


@st.composite
def schemas(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["integer", "number"]))}
    low, high = sorted([draw(bounds), draw(bounds)])
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["minimum", "exclusiveMinimum"]))] = low
    if draw(st.booleans()):
        schema[draw(st.sampled_from(["maximum", "exclusiveMaximum"]))] = high
    if draw(st.integers(0, 3)) == 0:
        schema["multipleOf"] = draw(steps)
    return schema


@settings(max_examples=200, deadline=None)
@given(schemas(), st.integers(0, 2**32))
@example({"type": "integer", "minimum": 1e25}, 0)
@example({"type": "number", "exclusiveMinimum": 5}, 1)
@example({"type": "number", "maximum": 0.1, "minimum": -0.1}, 2)
def test_every_accepted_text_is_valid(schema: dict[str, Any], seed: int) -> None:
    try:
        language = language_of(schema)
    except TooComplex:
        return
    rng = random.Random(seed)
    for _ in range(30 if language.edges else 0):
        text = walk(language, rng)
        assert is_valid(text, schema), text
        assert math.isfinite(json.loads(text))
        if "e" not in text.lower():
            assert exactly_inside(
                text,
                {k: v for k, v in schema.items() if k == "multipleOf"} | {"type": schema["type"]},
            ), text


@settings(max_examples=150, deadline=None)
@given(
    schemas().filter(lambda schema: "multipleOf" not in schema),
    st.one_of(
        bounds,
        st.floats(-100, 100),
        st.integers(-10000, 10000).map(lambda n: n / 1000),
        st.integers(-100, 100),
    ),
)
def test_what_python_writes_is_accepted_when_valid(
    schema: dict[str, Any], value: int | float
) -> None:
    text = json.dumps(value)
    if not is_valid(text, schema) or not (1e-20 < abs(value) < 1e307 or value == 0):
        return
    edges = [fraction(bound) for key, bound in schema.items() if key != "type"]
    if any(0 < abs(fraction(value) - edge) <= abs(edge) * Fraction(1, 2**52) for edge in edges):
        return  # within rounding of a bound, the readings of the bound may differ
    if isinstance(value, float) and schema["type"] == "integer" and abs(value) >= 1e15:
        return  # 15 digits before a point; an exponent only without bounds on both sides
    assert language_of(schema).matches(text), text


CASES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"type": "integer"}, ["0", "-0", "7", "-12", "1.0", "3.000", "1e+16", "1.5e300", "9" * 40],
     ["", "-", "01", "+1", "1.", ".5", "1.5", "1.01", "1e400", "NaN", "0x1", "1e2"]),
    ({"type": "number"}, ["0", "-0.0", "1.5", "1e5", "1E+5", "12.5e-3", "1e-05", "0e0", "5e-307"],
     ["1e309", "1.e5", "1e", "--1", "Infinity", "1_000"]),
    ({"type": "integer", "minimum": 1, "maximum": 5}, ["1", "5", "3.0"], ["0", "7", "6", "5.1"]),
    ({"type": "integer", "exclusiveMinimum": 0}, ["1", "12"], ["0", "-0", "-1", "0.0"]),
    ({"type": "integer", "minimum": -15, "maximum": 120}, ["-15", "-9", "-0", "99", "120"],
     ["-16", "121", "-20", "1000"]),
    ({"type": "integer", "minimum": 0.5, "maximum": 2.5}, ["1", "2"], ["0", "3"]),
    ({"type": "number", "minimum": 0.1}, ["0.1", "0.10", "1e+16", "2"], ["0.09", "0", "-1"]),
    ({"type": "number", "exclusiveMinimum": 0.1}, ["0.11", "0.2"],
     ["0.1", "0.10000000000000000001"]),
    ({"type": "number", "exclusiveMinimum": 0}, ["0.001", "1e-05"], ["0", "0.0", "-0.0", "-1"]),
    ({"type": "number", "exclusiveMaximum": 0}, ["-0.001", "-1e-05"], ["0", "0.0", "-0.0", "1"]),
    ({"type": "number", "minimum": -90, "maximum": 90}, ["-90", "90.0", "45.25", "9.5e-7", "1e-05"],
     ["90.0000000001", "-90.5", "91", "1e2"]),
    ({"type": "number", "minimum": 2.5, "maximum": 2.5}, ["2.5", "2.50"], ["2.4", "2.51"]),
    ({"type": "integer", "multipleOf": 7}, ["0", "7", "-14", "21.0"], ["1", "13", "7.5"]),
    ({"type": "number", "multipleOf": 2}, ["4", "-4.0"], ["3", "4.5"]),
    ({"type": "number", "multipleOf": 0.01}, ["0.05", "10.99", "1230.55", "4", "1234567.25"],
     ["0.001", "19.99", "0.29"]),  # 19.99 / 0.01 is 1998.9999999999998
    ({"type": "number", "multipleOf": 0.1}, ["0.5", "0.1", "12"], ["0.3", "0.05"]),
    ({"type": "number", "multipleOf": 2.5}, ["2.5", "-5", "7.5", "100000.0"], ["1", "2.4"]),
    ({"type": "integer", "multipleOf": 0.5}, ["1", "3.0"], ["0.5"]),
    ({"type": "integer", "multipleOf": 65536, "minimum": 0, "maximum": 10**6}, ["65536", "0"],
     ["1"]),
    ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
     ["9223372036854775807", "-9223372036854775808"], ["9223372036854775808"]),
    ({"type": "number", "minimum": 1e30}, ["1e+30", "2e30"], ["9e29"]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "good", "bad"), CASES, ids=[str(case[0]) for case in CASES])
def test_cases(schema: dict[str, Any], good: list[str], bad: list[str]) -> None:
    language = language_of(schema)
    for text in good:
        assert is_valid(text, schema), text
        assert language.matches(text), text
    for text in bad:
        assert not language.matches(text), text


def test_draft_4_integers_have_no_point() -> None:
    language = numbers.integer_texts(Fraction(0), allow_decimal_zero=False)
    assert language.matches("12")
    assert not language.matches("12.0")
    assert not language.matches("1e+16")
    assert not is_valid("12.0", {"type": "integer"}, jsonschema.Draft4Validator)


@pytest.mark.parametrize("step", [0.01, 0.1, 0.05, 0.3, 1.1, 0.001, 0.015])
def test_decimal_multiples_are_judged_one_by_one(step: float) -> None:
    language = numbers.number_texts(multiple_of=fraction(step))
    places = -int(Decimal(str(step)).as_tuple().exponent)
    right = 0
    for n in [*range(1500), *range(97_000, 98_500)]:
        text = f"{n / 10**places:.{places}f}"
        valid = (
            is_valid(text, {"multipleOf": step})
            and fraction(n) % (fraction(step) * 10**places) == 0
        )
        assert language.matches(text) == valid, text
        right += valid
    assert right > 1000 * min(1, 0.1 / (step * 10**places))


def test_multiples_that_cannot_be_counted_are_refused() -> None:
    for step in (1_000_003, 14_983, Fraction(1, 3), Fraction(1, 10**20)):
        with pytest.raises(TooComplex, match="multiples of"):
            numbers.number_texts(multiple_of=Fraction(step))
    few = numbers.integer_texts(Fraction(0), Fraction(10**7), multiple_of=Fraction(1_000_003))
    assert few.matches("2000006")


@given(st.one_of(bounds, st.integers(-1000, 1000)))
@settings(deadline=None)
def test_a_number_literal_means_its_number(value: int | float) -> None:
    language = numbers.number_literal(value)
    assert all(json.loads(text) == value for text in language.words(10**4))
    assert language.matches(json.dumps(value))
    if isinstance(value, int) and abs(value) < 2**53:
        assert language.matches(f"{value}.0")


def test_number_literal_cases() -> None:
    one = numbers.number_literal(1)
    assert one == numbers.number_literal(1.0)
    assert {"1", "1.0", "1e0"} <= set(one.words(100))
    assert {"0", "-0", "0.0", "-0.0"} <= set(numbers.number_literal(0).words(100))
    assert set(numbers.number_literal(1.0, allow_decimal_zero=False).words(9)) == {"1"}
    assert numbers.number_literal(1e-05).matches("0.00001")
    with pytest.raises(ValueError, match="not a JSON number"):
        numbers.number_literal(math.inf)


@given(st.lists(bounds, min_size=1, max_size=3), st.integers(0, 2**32), schemas())
@settings(max_examples=100, deadline=None)
def test_excluded_values_never_come_back(
    values: list[int | float], seed: int, schema: dict[str, Any]
) -> None:
    try:
        language = numbers.excluding(language_of(schema), values)
    except TooComplex:
        return
    rng = random.Random(seed)
    for _ in range(20 if language.edges else 0):
        assert json.loads(walk(language, rng)) not in values
    for value in values:
        for text in numbers.number_literal(value).words(50):
            assert not language.matches(text)


def test_excluding_keeps_the_others() -> None:
    language = numbers.excluding(numbers.number_texts(), [5, 0.5])
    assert not any(map(language.matches, ["5", "5.0", "0.5", "0.50", "5.00000000000000000000001"]))
    assert all(map(language.matches, ["50", "0.51", "-5", "5.1", "0"]))


@given(st.one_of(bounds, st.integers(-10, 10)))
def test_canonical_number(value: int | float) -> None:
    for text in numbers.number_literal(value).words(50):
        assert numbers.canonical_number(text) == numbers.canonical_number(json.dumps(value))
    assert json.loads(numbers.canonical_number(json.dumps(value))) == value


@pytest.mark.parametrize("text", ["", "1e999", "true", '"1"', "NaN", "-Infinity"])
def test_canonical_number_refuses_what_is_none(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own errors are among them
        numbers.canonical_number(text)


@given(st.integers(0, 2**32))
def test_canonical_texts_are_one_a_number(seed: int) -> None:
    rng = random.Random(seed)
    text = walk(numbers.canonical_texts(), rng)
    others = set(numbers.number_literal(json.loads(text)).words(1000)) - {text}
    assert others
    assert not any(map(numbers.canonical_texts().matches, others))


def test_fractional_numbers_are_no_integers() -> None:
    language = numbers.fractional(numbers.number_texts(Fraction(0)))
    assert all(map(language.matches, ["0.5", "1.250", "12345.678"]))
    assert not any(map(language.matches, ["1", "1.0", "9007199254740993.5", "1e5", "-0.5"]))
    rng = random.Random(7)
    for _ in range(300):
        assert not is_valid(walk(language, rng), {"type": "integer"})


def test_canonical_texts_of_a_range() -> None:
    language = dfa.intersect(
        numbers.number_texts(Fraction(0), Fraction(3)), numbers.canonical_texts()
    )
    assert all(map(language.matches, ["0", "1", "2.5", "3"]))
    assert not any(map(language.matches, ["-0", "1.0", "2.50", "3e0"]))

"""Formats: what is generated is valid to jsonschema's checkers, and real texts are inside."""

from __future__ import annotations

import datetime
import ipaddress
import random
import re
import uuid
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft3Validator, Draft202012Validator

from model.constraints.dfa import Dfa
from model.constraints.formats import FORMATS, format_texts

CHECKERS = {
    **Draft3Validator.FORMAT_CHECKER.checkers,
    **Draft202012Validator.FORMAT_CHECKER.checkers,
}  # color is draft 3's


def language(name: str) -> Dfa:
    found = format_texts(name)
    assert found is not None
    return found


def is_valid(text: str, name: str) -> bool:
    if name not in CHECKERS:
        pytest.skip(f"jsonschema's optional checker for {name} is not installed")
    check, errors = CHECKERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of odd but valid regexes
        try:
            return bool(check(text))
        except errors:
            return False


def walk(automaton: Dfa, rng: random.Random) -> str:
    """A random text of the language; ASCII and the borders of intervals are likelier."""
    text, state = "", 0
    stop = rng.choice([0.02, 0.1, 0.5])
    while state not in automaton.accepting or (automaton.edges[state] and rng.random() > stop):
        lo, hi, state = rng.choice(automaton.edges[state])
        text += chr(rng.choice([lo, hi, rng.randint(lo, hi)]))
    return text


@pytest.mark.parametrize("name", FORMATS)
def test_every_accepted_text_is_valid(name: str) -> None:
    rng = random.Random(name)
    automaton = language(name)
    for _ in range(100 if name.startswith("iri") else 400):
        text = walk(automaton, rng)
        assert is_valid(text, name), text


GOOD = {
    "color": ["red", "#fff", "#00FF7f"],
    "date": ["2024-02-29", "2000-02-29", "1999-12-31", "2023-01-01"],
    "time": ["12:00:00Z", "23:59:59.123456+02:00", "00:00:00.5-08:00", "08:30:06z"],
    "date-time": ["2024-11-29T17:40:20Z", "1985-04-12T23:20:50.52Z", "1996-12-19T16:39:57-08:00",
                  "2022-01-01t12:00:00.000+00:00"],
    "duration": ["P1Y", "P3D", "PT1H30M", "P1Y2M3DT4H5M6S", "P4W", "PT36H", "P1DT12H", "PT0S"],
    "email": ["joe.bloggs@example.com", "te~st@example.com", "a@b",
              "first+tag@sub.mail.example.org",
              "x_y-z@my-company.co.uk"],
    "hostname": ["example.com", "localhost", "a-b.c", "xn--4gbwdl.xn--wgbh1c", "a" * 63 + ".de",
                 "kafka-0.kafka-headless.messaging.svc.cluster.local", "1host"],
    "idn-email": ["実例@実例.テスト", "joe@example.com"],
    "idn-hostname": ["実例.jp", "münchen.de", "example.com"],
    "ipv4": ["192.168.0.1", "0.0.0.0", "255.255.255.255"],
    "ipv6": ["::1", "::", "2001:db8::ff00:42:8329", "fe80::1", "::ffff:192.168.0.1",
             "1:2:3:4:5:6:7:8",
             "1::", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "2001:0DB8:0:0:0:0:0:1"],
    "iri": ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "https://example.com/a"],
    "iri-reference": ["/é/ü", "//例え.jp/x"],
    "json-pointer": ["", "/", "/foo/0", "/a~1b/m~0n", "/é 姓"],
    "regex": ["^[a-z0-9_-]+$", r"\d{3}-\d{4}", "(foo|bar)+?", "[^/]*", "a.b",
              "^(?:[A-Z]{2,10})?$"],
    "relative-json-pointer": ["0", "1/a/b", "2#"],
    "uri": ["https://example.com/a/b?c=d&e=f#g", "http://user:pw@host.org:8080/%20x",
            "mailto:a@b.c",
            "urn:isbn:0451450523", "file:///etc/hosts", "tel:+1-816-555-1212", "s3://bucket/key"],
    "uri-reference": ["", "/abc", "../x?y#z", "#frag", "//host/path", "https://a.b/c", "a.html"],
    "uri-template": ["http://example.com/~{username}/{?q,lang}", "/a/{b}", "{+path:3}/{list*}"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"],
}  # fmt: skip
BAD = {
    "color": ["#ff", "reddish", "fff"],
    "date": ["2023-02-29", "1900-02-29", "2024-04-31", "0000-01-01", "2024-1-1", "2024-13-01",
             "২024-01-01"],
    "time": ["24:00:00Z", "12:00:00", "12:60:00Z", "23:59:60Z", "12:00:00+24:00", "12:00:00.Z"],
    "date-time": ["2022-01-01T12:00:00", "2022-01-01 12:00:00Z", "2023-02-29T00:00:00Z",
                  "2022-01-01"],
    "duration": ["P", "PT", "P1", "1D", "P1YT", "P1D2H", "P1Y2W", "PT1D", "P1Y3D", "-P1D", "P1Y\n"],
    "email": ["2962", "a@", "@b", "a b@c", ".a@b.c", "a.@b.c", "a..b@c", "a@-b.c", "a@b@c"],
    "hostname": ["", "-a", "a-", "a_b", "a..b", ".a", "a" * 64, "é.com", "a.b."],
    "ipv4": ["256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5", "0x7f.0.0.1", "1.2.3.4\n"],
    "ipv6": [":::", "1::2::3", "12345::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "::1%eth0", ":1"],
    "iri": ["not-an-iri", "http://a b"],
    "json-pointer": ["a", "/~", "/~2"],
    "regex": ["*", "[", "\\", "a**", "(", ")", "(?<a>b)", "[z-a]", "a{3,1}", r"\p{L}", "(a)\\1x{"],
    "relative-json-pointer": ["", "01", "-1", "/a", "1#/a"],
    "uri": ["not a uri", "//host/path", "/abc", "http://a b", "http://x/%zz",
            "\\\\win\\share", ":x"],
    "uri-reference": ["\\a", "a b", "%z", "#a#b"],
    "uri-template": ["{", "{a", "{}", "a}b", "{a b}"],
    "uuid": ["123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400", "{}"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(n, t) for n, texts in GOOD.items() for t in texts])
def test_real_texts_are_accepted(name: str, text: str) -> None:
    assert is_valid(text, name)
    assert language(name).matches(text)


@pytest.mark.parametrize(("name", "text"), [(n, t) for n, texts in BAD.items() for t in texts])
def test_wrong_texts_are_not(name: str, text: str) -> None:
    assert not language(name).matches(text)


def test_unknown_formats_are_annotations() -> None:
    assert format_texts("int32") is None
    assert format_texts("DATE") is None


@given(st.dates())
def test_every_date_is_inside(date: datetime.date) -> None:
    assert language("date").matches(date.isoformat())


@given(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
def test_only_dates_of_the_calendar_are_inside(year: int, month: int, day: int) -> None:
    text = f"{year:04}-{month:02}-{day:02}"
    try:
        datetime.date(year, month, day)
    except ValueError:
        assert not language("date").matches(text)
    else:
        assert language("date").matches(text)


@given(st.datetimes(timezones=st.just(datetime.UTC)))
def test_python_datetimes_are_inside(moment: datetime.datetime) -> None:
    assert language("date-time").matches(moment.isoformat())
    assert language("time").matches(moment.isoformat()[11:])


@given(st.uuids())
def test_uuids_are_inside(value: uuid.UUID) -> None:
    assert language("uuid").matches(str(value))


@given(st.ip_addresses(v=4) | st.ip_addresses(v=6))
def test_addresses_are_inside(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    automaton = language(f"ipv{address.version}")
    assert automaton.matches(str(address))
    assert automaton.matches(address.exploded)


@settings(max_examples=50)
@given(
    st.from_regex(
        re.compile(r"[a-z]{1,5}://[a-z.]{1,12}(:\d{1,4})?(/[\w.~-]{0,4}){0,3}", re.A),
        fullmatch=True,
    )
)
def test_plain_urls_are_inside(url: str) -> None:
    assert language("uri").matches(url)
    assert language("uri-reference").matches(url)
    assert language("iri").matches(url)

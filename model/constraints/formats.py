"""The formats of JSON Schema as languages.

A format's language lies inside its RFC and inside what jsonschema's FormatChecker accepts with all
its optional checkers, so a text that is generated is valid to either. Where the RFC's language is
not regular or far too large it is a part of it:

- date, date-time: the years 1 to 9999; no leap seconds; at most 12 digits of a second
- duration: at most 9 digits a unit; RFC 3339's grammar, so no fractions
- email: dot-atoms of at most 63 characters at names of at most 5 labels; no quotes, no literals
- hostname: at most 253 characters, as 8 labels the first two of which may be long
- uri, iri and their references: no IP literals in brackets
- idn-hostname: lower-case Latin, kana and Han letters; idn-email: any letters
- regex: plain characters, escapes, simple sets, quantifiers, and groups nested up to twice
- uri-template: no percent-encoding in a variable's name, prefixes of at most 999
- color: hexadecimal, or one of CSS 2.1's names
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from model.constraints import dfa
from model.constraints.dfa import Dfa
from model.constraints.regex import compile_pattern

__all__ = ["FORMATS", "format_texts"]


@lru_cache(maxsize=32)
def _texts(name: str) -> Dfa:
    pattern = FORMATS[name]
    return compile_pattern(pattern, anchored=True) if isinstance(pattern, str) else pattern()


def format_texts(name: str) -> Dfa | None:
    """The texts of a format, or None if it is unknown and so only an annotation."""
    return _texts(name) if name in FORMATS else None


_DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    r"|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = rf"(?!0000)(?:[0-9]{{4}}-{_DAY}|{_LEAP_YEAR}-02-29)"
_HOUR_MINUTE = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_HOUR_MINUTE}:[0-5][0-9](?:\.[0-9]{{1,12}})?(?:[Zz]|[+-]{_HOUR_MINUTE})"


def _duration() -> str:
    def units(*letters: str) -> str:
        """Units in their order, without gaps: each letter may be followed by the next ones."""
        rest = ""
        forms = []
        for letter in reversed(letters):
            rest = rf"[0-9]{{1,9}}{letter}" + (f"(?:{rest})?" if rest else "")
            forms.append(rest)
        return "(?:" + "|".join(forms) + ")"

    time = "T" + units("H", "M", "S")
    return f"P(?:{units('Y', 'M', 'D')}(?:{time})?|{time}|[0-9]{{1,9}}W)"


def _label(longest: int) -> str:
    return rf"[A-Za-z0-9](?:[A-Za-z0-9-]{{0,{longest - 2}}}[A-Za-z0-9])?"


_HOSTNAME = rf"{_label(63)}(?:\.{_label(63)}(?:\.{_label(20)}){{0,6}})?"
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_MAIL_DOMAIN = rf"{_label(63)}(?:\.{_label(62)}(?:\.{_label(20)}){{0,3}})?"


def _address(atom: str, domain: str) -> Dfa:
    """A dot-atom of at most 63 characters at a domain."""
    atoms = compile_pattern(rf"{atom}+(?:\.{atom}+)*", anchored=True)
    local = dfa.intersect(atoms, dfa.length_between(1, 63))
    return dfa.concat(local, compile_pattern(f"@{domain}", anchored=True))


_LETTERS = "\u00a1-\u1fff\u2070-\ud7ff\uf900-\ufdcf\ufdf0-\uffdc\U00010000-\U0001fffd"
_WIDE_ATOM = _ATOM[:-1] + _LETTERS + "]"
_WIDE_LABEL = f"[A-Za-z0-9{_LETTERS}](?:[A-Za-z0-9{_LETTERS}-]{{0,40}}[A-Za-z0-9{_LETTERS}])?"
_WIDE_DOMAIN = rf"{_WIDE_LABEL}(?:\.{_WIDE_LABEL}){{0,3}}"
_IDN_LABEL = (
    "(?:[a-z0-9](?:-?[a-z0-9]){0,30}"
    "|[a-z0-9\u00df-\u00f6\u00f8-\u00ff\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5]{1,10})"
)
_IDN_HOSTNAME = rf"{_IDN_LABEL}(?:\.{_IDN_LABEL}){{0,3}}"

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"


def _ipv6() -> str:
    part = "[0-9A-Fa-f]{1,4}"
    last = f"(?:{part}:{part}|{_IPV4})"
    forms = [f"(?:{part}:){{6}}{last}", f"::(?:{part}:){{5}}{last}"]
    forms += [f"(?:(?:{part}:){{0,{n}}}{part})?::(?:{part}:){{{4 - n}}}{last}" for n in range(5)]
    forms += [f"(?:(?:{part}:){{0,5}}{part})?::{part}", f"(?:(?:{part}:){{0,6}}{part})?::"]
    return "(?:" + "|".join(forms) + ")"


_UNRESERVED = "A-Za-z0-9._~-"
_DELIMITERS = "!$&'()*+,;="
_IRI_LETTERS = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"


def _uri(letters: str = "", *, reference: bool = False) -> str:
    """RFC 3986, or with more letters RFC 3987; a reference needs no scheme."""
    encoded = "%[0-9A-Fa-f]{2}"
    set_ = letters + _DELIMITERS + _UNRESERVED
    char = f"(?:[:@{set_}]|{encoded})"
    authority = f"(?:(?:[:{set_}]|{encoded})*@)?(?:[{set_}]|{encoded})*(?::[0-9]*)?"
    segments = f"(?:/{char}*)*"
    rooted = f"//{authority}{segments}|/(?:{char}+{segments})?"
    end = rf"(?:\?(?:{char}|[/?])*)?(?:#(?:{char}|[/?])*)?"
    whole = f"[A-Za-z][A-Za-z0-9+.-]*:(?:{rooted}|{char}+{segments}){end}"
    if not reference:
        return whole
    return f"(?:{whole}|(?:{rooted}|(?:[@{set_}]|{encoded})+{segments}|){end})"


def _uri_template() -> str:
    name = "[A-Za-z0-9_]+"
    variable = rf"{name}(?:\.{name})*(?:\*|:[1-9][0-9]{{0,2}})?"
    literal = r"""[^\x00-\x20"'<>\\^`{|}%\x7f-\x9f]|%[0-9A-Fa-f]{2}"""
    return rf"(?:{literal}|\{{[+#./;?&]?{variable}(?:,{variable})*\}})*"


def _regex() -> str:
    char = r"[^\\.^$*+?{}\[\]()|]"
    escape = r"\\(?:[dDwWsSnrtfv]|[^A-Za-z0-9])"
    range_ = "[0-9]-9|0-[0-9]|[a-z]-z|a-[a-z]|[A-Z]-Z|A-[A-Z]"
    set_ = rf"\[\^?(?:{range_}|[^\\\[\]^-]|{escape})+-?\]"
    counts = r"\{(?:[0-9]{1,3},?|[01],[1-9]|[0-9],[1-9][0-9]{1,2})\}"
    quantifier = rf"(?:(?:[*+?]|{counts})\??)?"
    group = "(?!)"
    for _ in range(3):
        atom = rf"(?:{char}|{escape}|\.|{set_}|{group}){quantifier}"
        terms = rf"(?:{atom}|[\^$]|\\[bB])*"
        alternatives = rf"{terms}(?:\|{terms})*"
        group = rf"\((?:\?:)?{alternatives}\)"
    return alternatives


_COLORS = (
    "aqua", "black", "blue", "fuchsia", "gray", "green", "lime", "maroon", "navy", "olive",
    "orange", "purple", "red", "silver", "teal", "white", "yellow",
)  # fmt: skip


def _color() -> Dfa:
    hexadecimal = compile_pattern("#(?:[0-9A-Fa-f]{3}){1,2}", anchored=True)
    return dfa.union(hexadecimal, dfa.literals(_COLORS))


_POINTER = r"(?:/(?:[^~/]|~[01])*)*"

FORMATS: dict[str, str | Callable[[], Dfa]] = {
    "color": _color,
    "date": _DATE,
    "date-time": rf"{_DATE}[Tt]{_TIME}",
    "duration": _duration(),
    "email": lambda: _address(_ATOM, _MAIL_DOMAIN),
    "hostname": _HOSTNAME,
    "idn-email": lambda: _address(_WIDE_ATOM, _WIDE_DOMAIN),
    "idn-hostname": _IDN_HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": _ipv6(),
    "iri": _uri(_IRI_LETTERS),
    "iri-reference": _uri(_IRI_LETTERS, reference=True),
    "json-pointer": rf"(?s:{_POINTER})",
    "regex": _regex(),
    "relative-json-pointer": rf"(?s:(?:0|[1-9]+0?)(?:#|{_POINTER}))",
    "time": _TIME,
    "uri": _uri(),
    "uri-reference": _uri(reference=True),
    "uri-template": _uri_template(),
    "uuid": "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
}
"""Patterns that match a format's whole text, or functions that build its language."""

"""What is half read of one character: of its UTF-8 bytes, or of its escape in a JSON string.

Partial                             after
()                                  a whole character
(BYTES, bits, bytes to come, least) a lead byte and some more; `least` is the least code point that
                                    needs as many bytes
(ESCAPE,)                           a backslash
(HEX_DIGITS, value, digits read)    backslash, u and some digits
(LOW_BACKSLASH, high)               an escaped high surrogate, `high` from 0
(LOW_U, high)                       its low one's backslash
(LOW_DIGITS, high, value, digits)   the low one's u and some digits
"""

from __future__ import annotations

Partial = tuple[int, ...]
BYTES, ESCAPE, HEX_DIGITS, LOW_BACKSLASH, LOW_U, LOW_DIGITS = range(6)

ASTRAL = 0x10000
"""The first code point that is two UTF-16 units."""

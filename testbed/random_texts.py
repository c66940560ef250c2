"""Texts of any characters, and of what has a meaning for somebody."""

import random

_RANGES = (
    (0, 0x7F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF),
    (0x2000, 0x206F), (0x2190, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
    (0xD800, 0xDFFF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF),
)  # fmt: skip
_BITS = (
    "[a](/b/)", "[[", "]]", "<speak>", "&amp;", "\x00", "\x01", "1e999", "...", "''", "{", "\u202e",
    "x" * 200, "9" * 60, "\u0301" * 50, "A.B.C.", "--", "$", "%s%n", "\n\n", " ", "$1.2.3", "5'6",
    "12:99:99", "32/13/2024", "XIIII", "$-", "€1,2,3", "0x1F", "1/0", "St. ", "’", "1,,2",
    "²½", "٣", "❽",
)  # fmt: skip


def random_text(rng: random.Random) -> str:
    """Runs of characters of one block, and bits that have a meaning for somebody."""
    parts = []
    for _ in range(rng.randrange(30)):
        low, high = rng.choice(_RANGES)
        run = "".join(chr(rng.randint(low, high)) for _ in range(rng.randrange(12)))
        parts.append(rng.choice((run, rng.choice(_BITS))))
    return rng.choice(("", " ")).join(parts)

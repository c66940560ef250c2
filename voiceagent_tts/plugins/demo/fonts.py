"""Fonts of the demo's picture: matplotlib's own has no Chinese, Japanese or Korean characters.

Fonts are looked for only when a text needs them, and anew each time: matplotlib keeps a list of
them in a file, which lacks those installed since. This module knows no picture.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from matplotlib.font_manager import findfont, findSystemFonts, fontManager
from matplotlib.ft2font import FT2Font

OWN_FONT = "DejaVu Sans"
WIDE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",  # Debian's fonts-noto-cjk: matplotlib reads the first font of a collection
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Droid Sans Fallback",
    "Hiragino Sans GB",
    "PingFang SC",
    "Microsoft YaHei",
)
"""Families with the characters of Chinese, Japanese and Korean, the preferred one first."""

WIDE_PACKAGE = "fonts-wqy-microhei"
"""The smallest Debian package (2 MB) with one of `WIDE_FONTS`."""


@dataclass(frozen=True, slots=True)
class Fonts:
    """The fonts for a text, in the order in which a character is looked for."""

    families: tuple[str, ...]
    characters: frozenset[int]

    def can_draw(self, text: str) -> bool:
        """Whether every character of `text` has a glyph."""
        return self.characters.issuperset(map(ord, text))


def fonts_for(text: str) -> Fonts:
    """Choose matplotlib's own font, and for what it lacks of `text` one that is installed."""
    own = frozenset(FT2Font(findfont(OWN_FONT)).get_charmap())
    lacking = frozenset(map(ord, text)) - own
    if not lacking:
        return Fonts((OWN_FONT,), own)
    wide = sorted(_wide_fonts(), key=lambda font: WIDE_FONTS.index(font[0]))
    best = max(wide, key=lambda font: len(lacking & font[2]), default=None)
    if best is None:
        return Fonts((OWN_FONT,), own)
    family, file, characters = best
    fontManager.addfont(file)
    return Fonts((OWN_FONT, family), own | characters)


def _wide_fonts() -> Iterator[tuple[str, Path, frozenset[int]]]:
    """Family, file and characters of each installed font of `WIDE_FONTS`."""
    for file in findSystemFonts():
        try:
            font = FT2Font(file)
        except (OSError, RuntimeError):  # not readable, or not a font
            continue
        if font.family_name in WIDE_FONTS:
            yield font.family_name, Path(file), frozenset(font.get_charmap())

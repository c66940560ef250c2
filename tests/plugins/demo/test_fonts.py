"""Fonts of the demo's picture: what is installed is used, and what is missing is said."""

from pathlib import Path

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager

from voiceagent_tts.core import WordTimestamp
from voiceagent_tts.plugins.demo.fonts import WIDE_FONTS
from voiceagent_tts.plugins.demo.realtime_file_transport import Utterance
from voiceagent_tts.plugins.demo.report import DemoTurn, draw, score_turn
from voiceagent_tts.text.words import split_words

CHINESE = "你好。今天是Monday"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which this machine has fonts, besides matplotlib's own."""
    monkeypatch.setattr(font_manager, "X11FontDirectories", [str(tmp_path)])
    monkeypatch.setattr(font_manager, "_get_fontconfig_fonts", list)
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [*font_manager.fontManager.ttflist])
    return tmp_path


def install(folder: Path, family: str, characters: str) -> None:
    """Put a font with square glyphs into the folder."""
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 700), (700, 700), (700, 0)):
        pen.lineTo(corner)
    pen.closePath()
    names = [".notdef", *(f"uni{ord(name):04X}" for name in dict.fromkeys(characters))]
    builder = FontBuilder(1000)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(name): f"uni{ord(name):04X}" for name in characters})
    builder.setupGlyf(dict.fromkeys(names, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (800, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(folder / f"{family}.ttf")


@pytest.mark.parametrize("is_installed", [False, True])
def test_the_picture_of_the_demo_says_whether_it_has_all_words(
    folder: Path, tmp_path: Path, is_installed: bool
) -> None:
    """Without a font a word is its number, and with one itself; no glyph is missing in either."""
    answer = "你好, hello."
    if is_installed:
        install(folder, WIDE_FONTS[0], answer)
    sound = np.sin(np.arange(24_000) / 9) * 9_000
    agent = sound.astype(np.int16)
    words = [
        WordTimestamp(word, 8_000 * k, 8_000 * (k + 1), 1.0)
        for k, word in enumerate(split_words(answer))
    ]
    turn = DemoTurn(
        "zh", answer, is_interrupted=True, context_id="a", words=words, committed=answer[:2]
    )
    utterance = Utterance("a", [(0, 14_000)], bytearray(agent.tobytes()[:28_000]))
    score = score_turn(turn, utterance, agent)
    assert draw([score], agent, agent, tmp_path / "demo.png") is is_installed
    assert (tmp_path / "demo.png").stat().st_size > 10_000

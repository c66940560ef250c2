"""Replaces what would end the process of espeak-ng 1.52."""

import itertools
import re
import unicodedata

_PHONEMES = re.compile(r"(\[\[.*?\]\])")
_INNER_DOT = re.compile(r"\.(?=\S)")
_MAX_INNER_DOTS = 20
_NEVER_READ = re.compile(r"[`\u2800-\u28ff]|(?<=--)-|(?<=[^\s\w-]|_)-(?=[^\W\d_])")
_SAME_LETTERS = {
    # Circled letters, of which espeak's emoji have only a capital: its name is looked up without
    # end in the small letter.
    **{code: unicodedata.normalize("NFKC", chr(code)) for code in range(0x24B6, 0x24EA)},
    ord("ॠ"): "ऋ",
    ord("ૠ"): "ઋ",
}
_REPLACED_BY_VOICE = {
    voice: _SAME_LETTERS | dict.fromkeys(map(ord, with_english_names), " ")
    for voice, with_english_names in (
        ("roa/pt", "©🤵🥌🥾"),
        ("gmw/de", "🆒🆓🆕🏂🏙🚼🛹🤠"),
        ("inc/hi", "☦"),
    )
}
"""What is replaced for the voices that have more of it than `_SAME_LETTERS`."""
_MANY_LETTERS = re.compile(r"([A-Za-z]{59})[A-Za-z]")
_WORD = re.compile(r"\S+")
_INDIC = re.compile(r"[\u0900-\u0dff]")
_LONG_WORD_CHARS = 100
_MARK = re.compile(r"[!-/:-@\\^-`{}~\x91\x92´ʻʼ‘’′]")
_MARKS_PER_WORD = 20


def readable(text: str, voice: str) -> str:
    """Return `text` with a space in place of each mark that `voice` may not be able to read.

    These are:

    - hyphens in words with letters of Devanagari, Bengali or a related script, which voices of
      other languages read by a second dictionary: `(-नक` makes espeak read memory that is not its
      own;
    - dots inside words, from the 21st: 83 times `.日 ` makes it write beyond a buffer;
    - backticks, and hyphens after two others: Vietnamese voices read neither `` ` `` nor `---c`;
    - every 60th Latin letter in a row: Danish ends after 83 times `ing`, Romanian after 250 `I`;
    - every 20th mark of a long word: 68 times `'s` does the same;
    - hyphens between another mark and a letter, `;-I` or `'-en`, which end Danish and Vietnamese;
    - patterns of braille, whose names are too long for Setswana and Tigrinya;
    - `©` and some emoji in Portuguese, German and Hindi: a name with a word that is read as
      English, such as `copyright`, leaves the wrong phonemes for other scripts.

    Letters that end some voices are replaced by the same letter: `m` for `ⓜ`, `ऋ` for `ॠ`. Names of
    phonemes in double brackets stay as they are.
    """
    replaced = _REPLACED_BY_VOICE.get(voice.partition("+")[0], _SAME_LETTERS)
    dots = itertools.count(1)
    parts = _PHONEMES.split(text)
    for place in range(0, len(parts), 2):
        part = parts[place].translate(replaced)
        part = _INNER_DOT.sub(lambda _: "." if next(dots) <= _MAX_INNER_DOTS else " ", part)
        part = _MANY_LETTERS.sub(r"\1 ", _NEVER_READ.sub(" ", part))
        parts[place] = _WORD.sub(_readable_word, part)
    return "".join(parts)


def _readable_word(match: re.Match[str]) -> str:
    word = match.group()
    if _INDIC.search(word):
        word = word.replace("-", " ")
    if len(word) < _LONG_WORD_CHARS:
        return word
    number = itertools.count(1)
    return _MARK.sub(lambda mark: mark.group() if next(number) % _MARKS_PER_WORD else " ", word)

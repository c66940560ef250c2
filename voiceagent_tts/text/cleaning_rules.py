r"""The rules of cleaner: which characters of a word a voice should speak, and the pauses around it.

LLMs write for screens. Skipped are control and format characters, lone surrogates, variation
selectors, emoji, decorative symbols, HTML-like tags, and the marks of markdown: emphasis, code
ticks, headings, quotes, list bullets, rules, table borders, link targets and URL schemes. Replaced
are:

- white space of every kind, and unspoken characters between words, by one space;
- a paragraph, heading, list-item or table-row border without punctuation by a full stop; another
  line break, a table's `|`, `•`, `--`, an arrow or the `>` of a path by a comma, so that each
  becomes a pause. A line break in the middle of wrapped prose is a space;
- an underscore inside a word by a space (`snake_case`), but not inside an address; `*` between
  numbers by `×`;
- typographic forms (full-width, mathematical, ligatures, subscripts, in circles, decomposed) by
  their plain letters and digits, and full-width signs next to numbers by theirs.

Everything else stays as written: "3.5", "$42.50", "C#", "#5", "a/b", "me@example.com". Markers are
handled without their partners, because the partner may be in another segment. `text/cleaning.py`
passes the rules one word at a time, with the unspoken characters before it.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

# Placeholders for a full stop, a comma and a gap. `plain_characters` removes them from the input.
STOP = "\u2029"
COMMA = "\u2028"
GAP = "\ufffc"


@dataclass(frozen=True, slots=True)
class Speakable:
    """Cleaned text.

    Attributes:
        offsets: index in the original text of each spoken character; non-decreasing.
    """

    spoken: str
    offsets: tuple[int, ...]


NOTHING = Speakable("", ())
"""The cleaned form of a text without letters and digits."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """Replaces every match by `before` and the match's group `kept`, if it has one.

    A match that ends with the group `address` stays as it is, and so does one that does not follow
    `after`, which matches the end of a text.
    """

    pattern: re.Pattern[str]
    before: str = ""
    after: re.Pattern[str] | None = None


def _rule(pattern: str, before: str = "") -> _Rule:
    return _Rule(re.compile(pattern, re.MULTILINE), before)


_COMPARISON = r"(?<=[^\W_]<)[A-Za-z0-9-]+[ \n][^<>=\"/]+>"
"""What is not a tag after a "<": "a<b and c>d"."""
_WORDS = (
    r"(?!(?:audio|button|details|dialog|fieldset|form|iframe|img|input|ol|option|script|select"
    r"|textarea|track|video) )[A-Za-z][\w'’-]*(?: [\w.,:'’-]+)+"
)
"""Words in the place of what is not known, as in "<your name>", and not "<details open>"."""
_TAG = rf"<(?!{_COMPARISON}|{_WORDS}>)/?[A-Za-z][A-Za-z0-9-]*+(?:[ \n/][^<>]*+)?>|<!--[^<>]*+>"
_TARGET = r"\((?:[^()\s]|\([^()\s]*\))*+(?: +\"[^\"\n]*\")? *\)"
_ADDRESS = (
    r"(?<![^\W_])(?<![.+-])(?P<address>(?:https?://\S*|[^\W_][\w.+-]{0,63}+@[\w.-]*"
    r"|[^\W_][\w-]{0,63}+(?:\.[\w-]{1,63}+){1,8}+/\S*)[^\W_])"
)
_WIDE = "ぁ-ヿ一-鿿가-힣"
_NAME = r"[*`_\"“'‘(\[]*[A-ZÀ-ÖØ-ÞЁА-Я][^\s.,;:!?>]*(?: [^\s.,;:!?>]+){0,2}"
_PATH_SIGN = rf"(?<=[^\W\d_]{{2}}|\S[*`_\"”'’\])]) > (?=[\"“'‘(\[]?[A-ZÀ-ÖØ-ÞЁА-Я{_WIDE}])"
"""What may stand between the names of menus: "Settings > Privacy", and not "a > b"."""
_SURE_PATH_SIGN = rf"{_PATH_SIGN}(?:(?<=[*`_\"”\]] > )|(?=[{_WIDE}]|{_NAME} > ))"
"""Such a sign between marked names, or before another one."""
_TO_MENUS = (
    r"(?:go(?:ing)? to|navigate to|open|click(?: on)?|tap|select|choose|press|under|in|via"
    r"|unter|öffne\w*|klick\w*(?: Sie)?(?: auf)?|wähl\w*|tipp\w*(?: Sie)?(?: auf)?|über|auf"
    r"|dans|sous|ouvr\w+|cliqu\w+ sur|sélectionn\w+|en|abr\w+|toca|seleccion\w+|apri\w*|tocca|sotto"
    r"|em|toque|clique|selecion\w+|onder|kies|откр\w+|выбер\w+|нажм\w+|в)"
    r"(?: Sie)?(?: (?:the|your|die|das|der|den|les?|la|el|los|las|il|de|het))?"
)
_MENUS = (
    "Settings|Preferences|Options|Menu|File|Edit|View|Tools|Home|Einstellungen|Datei|Bearbeiten"
    "|Paramètres|Réglages|Fichier|Ajustes|Configuración|Archivo|Impostazioni|Configurações"
    "|Instellingen|Настройки|Файл"
)
_IN_MENUS = re.compile(rf"(?:\b(?i:{_TO_MENUS}) {_NAME}|(?:> |{COMMA}){_NAME}|\b(?:{_MENUS}))\Z")
"""The end of a text after which a sign is one between menus: a cue and a name, or a usual menu."""
BEGUN_PATH = re.compile(rf" > {_NAME}(?: >)?")
"""A name after such a sign, which another sign may follow."""
_BLOCK_TAG = r"</?(?:br|p|div|li|ul|ol|tr|td|th|h[1-6])(?:[ /][^<>]*)?>"

# No pattern backtracks over the same characters from many starts: a run is matched whole
# (possessive `*+`, `++`), or ends at the character at which the next attempt begins.
_RULES = (
    # Lines
    _rule(r"^ *+(?:`{3,}|~{3,})[^\n`]*$", STOP),
    _rule(r"^ *+(?:(?:[-=] *+){3,}|(?:\* *+){3,}|(?:_ *+){3,})$", STOP),
    _rule(r"^ *+\|?+(?: *+:?-++:? *+\|)++ *+(?:-++:?)? *+$", STOP),
    _rule(r"^ *+(?:> ?)+"),
    _rule(r"^ *+#{1,6}(?: +|$)", STOP),
    _rule(rf"^ *+(?:[-*+•‣◦–—] +(?:\[[ xX]\] )?|\||{GAP})", STOP),
    _rule(r"^ *+(?P<kept>\d{1,3}[.)](?!\S))", STOP),
    _rule(r"\n *+\n", STOP),
    # Links and tags
    _rule(rf"!\[(?P<kept>[^\[\]]*+)\]{_TARGET}"),
    _rule(rf"\[(?P<kept>[^\[\]]*+)\]{_TARGET}"),
    _rule(r"\[\^[^\[\]\s]*+\]"),
    _rule(r"\[(?P<kept>[^\[\]]++)\]\[[^\[\]]*+\]"),
    _rule(rf"\]{_TARGET}"),
    _rule(_BLOCK_TAG, STOP),
    _rule(_TAG),
    _rule(rf"<(?!{_COMPARISON})(?P<kept>[^<>\s]++|{_WORDS})>"),
    # Marks
    _rule(r"\\(?=[^\w\s])"),
    _rule(r"(?:(?<=\d)|(?<=\d ))\*(?= ?\d)", "×"),
    _rule(r"`++|~{2,}+|\*++|#{2,}+"),
    _rule(rf"{_ADDRESS}|(?<=[^\W_])_++(?=[^\W_])", GAP),
    _rule(rf"{_ADDRESS}|_++"),
    _rule(r"(?<![-=])<?(?:-++|=++)>", COMMA),
    _rule(_SURE_PATH_SIGN, COMMA),
    _Rule(re.compile(_PATH_SIGN), COMMA, _IN_MENUS),
    _rule(r"-{2,}+|[|•‣◦]", COMMA),
    _rule(r"={2,}+|[\[\]{}\\]", GAP),
    _rule(r"(?<![^\W_])(?:https?://|mailto:)"),
)

UNSAID = re.compile(rf"{_TAG}|\]{_TARGET}")
"""Markup whose letters are not spoken."""


def apply_rules(plain: Speakable, before: str) -> Speakable:
    """Return a word as it is spoken, with placeholders for the pauses and gaps in it.

    `plain` also has all that stands between it and the word before it; `before` has the characters
    before that, and is empty at the start of the text.
    """
    draft = Speakable(before + plain.spoken, (-1,) * len(before) + plain.offsets)
    for rule in _RULES:
        draft = _apply(rule, draft, len(before))
    return Speakable(draft.spoken[len(before) :], draft.offsets[len(before) :])


def _apply(rule: _Rule, draft: Speakable, start: int) -> Speakable:
    parts: list[str] = []
    offsets: list[int] = []
    position = 0
    keeps = "kept" in rule.pattern.groupindex
    for match in rule.pattern.finditer(draft.spoken, start):
        if match.lastgroup == "address":
            continue
        if rule.after and not rule.after.search(draft.spoken, 0, match.start()):
            continue
        kept = match.span("kept") if keeps else (match.end(), match.end())
        parts += (draft.spoken[position : match.start()], rule.before, draft.spoken[slice(*kept)])
        offsets += draft.offsets[position : match.start()]
        offsets += [draft.offsets[match.start()]] * len(rule.before)
        offsets += draft.offsets[slice(*kept)]
        position = match.end()
    if not position:
        return draft
    parts.append(draft.spoken[position:])
    offsets += draft.offsets[position:]
    return Speakable("".join(parts), tuple(offsets))


def plain_characters(text: str, char_start: int) -> Speakable:
    """The characters of `text` as the rules expect them; offsets count from `char_start`."""
    plain: list[str] = []
    offsets: list[int] = []
    for offset, character in enumerate(text, char_start):
        for piece in _plain(character):
            if plain and _composes(plain[-1], piece):
                plain[-1] = unicodedata.normalize("NFC", plain[-1] + piece)
            else:
                plain.append(piece)
                offsets.append(offset)
    return Speakable("".join(plain), tuple(offsets))


def _composes(base: str, character: str) -> bool:
    """Whether both compose into one letter (a combining mark, a Hangul jamo)."""
    return character >= "\u0300" and len(unicodedata.normalize("NFC", base + character)) == 1


@lru_cache(maxsize=8192)
def _plain(character: str) -> str:
    """The character as the rules expect it; empty if it is skipped."""
    if character in "\n\v\f\x85\u2028\u2029":
        return "\n"
    if character.isspace():
        return " "
    category = unicodedata.category(character)
    if category in ("Cc", "Cf", "Cs") or _is_variation(character):
        return ""
    if category[0] in "LN" or character in "％＄￥＋－＝":
        return _plain_letter(character)
    if category[0] in "CS":
        return _plain_symbol(character, category)
    return character


def _is_variation(character: str) -> bool:
    return (
        "\ufe00" <= character <= "\ufe0f"
        or "\U000e0100" <= character <= "\U000e01ef"
        or character == "\u20e3"  # combining enclosing keycap, after a digit
    )


def _plain_letter(character: str) -> str:
    form = unicodedata.decomposition(character).partition(" ")[0]
    plain = unicodedata.normalize("NFKC", character)
    if form in ("<wide>", "<narrow>", "<font>", "<sub>") or (
        form == "<compat>" and plain.isascii()
    ):
        return plain
    if form == "<circle>" or "\u2776" <= character <= "\u2793":  # black circles have no plain form
        return plain if plain.isdecimal() or plain.isalpha() else str(_whole(character))
    return character


def _whole(character: str) -> int:
    return int(unicodedata.numeric(character))


def _plain_symbol(character: str, category: str) -> str:
    if "\u2190" <= character <= "\u21ff" or "\u2794" <= character <= "\u27be":
        return COMMA
    if category in ("Sc", "Sm") and not "\u25a0" <= character <= "\u27bf":
        return character
    if category == "Sk" and character < "\U0001f000":
        return character
    return character if _is_read_aloud(character) else GAP


def _is_read_aloud(character: str) -> bool:
    """Whether a symbol is read as a word: the degree sign, and those with letters (℃, ™, №)."""
    if character >= "\U0001f000":
        return False
    plain = unicodedata.normalize("NFKC", character)
    return character in "°©®" or any(part.isalnum() for part in plain)

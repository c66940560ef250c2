"""Times of day and lengths of time."""

import re

from voiceagent_tts.text.locales import Locale
from voiceagent_tts.text.rules.rule import START, Part, Rule

_CLOCK = re.compile(
    rf"{START}([01]?\d|2[0-4])(?::|(?<=\d)h|\.(?=\d\d ?(?:Uhr|uur)))([0-5]\d)"
    r"(?: ?(Uhr|[AaPp]\.?[Mm]\b\.?|uur|h\b))?(?![\w:])"
)
_DURATION = re.compile(
    r"(?<![\w.,])\d{1,4} ?(?:h|m|min)(?: ?\d{1,2} ?(?:m|min|s|sec)){1,2}(?![\w/²³])"
)
_SECONDS = re.compile(rf"{START}(\d{{1,2}}):([0-5]\d):([0-5]\d)(?![\w:]|[.,]\d)")


_ZONE = re.compile(r"(?<=\b(?:UTC|GMT))([-+−])(\d{1,2})(?::?([0-5]\d))?(?![\w:])")
"""How far a time zone is from Greenwich's."""


def _say_zone(match: re.Match[str], locale: Locale) -> list[Part]:
    sign = locale.symbols["+" if match[1] == "+" else "-"]
    minutes = f" {int(match[3])}" if int(match[3] or 0) else ""
    return [(f" {sign} {int(match[2])}{minutes}", 0)]


def _say_clock(match: re.Match[str], locale: Locale) -> list[Part] | None:
    hour, minute, end = int(match[1]), int(match[2]), match[3] or ""
    at = match.start(2) - match.start()
    last = match.start(3) - match.start() if end else at
    is_half_day = end[:1] in "AaPp" and bool(end)
    said_end = f" {end}" if is_half_day else ""
    if locale.language == "en":
        if not minute:
            return [(str(hour), 0), (said_end or (" o'clock" if hour <= 12 else " hundred"), last)]
        return [(str(hour), 0), (f" {_english_minute(minute)}", at), (said_end, last)]
    name = locale.words.hour.removesuffix("s") if hour < 2 else locale.words.hour
    said, word = locale.hour_of_day(hour), f" {name}" if name else ""
    if not minute:
        return [(said, 0), (word + said_end, last)]
    return [(f"{said}{word}", 0), (f" {minute}{locale.words.minute}{said_end}", last)]


def _english_minute(minute: int) -> str:
    return f"oh {minute}" if minute < 10 else str(minute)


def _say_duration(match: re.Match[str], locale: Locale) -> list[Part] | None:
    """A duration such as "1h 30m", in which "m" is minutes; later rules say its units."""
    places = [*re.finditer(r"(\d+) ?([hms])", match[0])]
    units = "".join(place[2] for place in places)
    if units not in "hms" and units != "hs":
        return None
    names = {"h": "h", "m": "min", "s": "s"}
    return [
        (f"{' ' if place.start() else ''}{place[1]} {names[place[2]]}", place.start())
        for place in places
    ]


def _say_seconds(match: re.Match[str], locale: Locale) -> list[Part]:
    minute, second = int(match[2]), int(match[3])
    is_english = locale.language == "en"
    return [
        (match[1], 0),
        (f" {_english_minute(minute) if is_english else minute}", match.start(2) - match.start()),
        (f" {_english_minute(second) if is_english else second}", match.start(3) - match.start()),
    ]


RULES = (
    Rule(_ZONE, _say_zone),
    Rule(_DURATION, _say_duration),
    Rule(_SECONDS, _say_seconds),
    Rule(_CLOCK, _say_clock),
)

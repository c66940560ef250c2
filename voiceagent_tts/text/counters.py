"""Numbers with words of their own before the counters of Chinese, Japanese and Korean."""

import re

_ONES = ["", *"한 두 세 네 다섯 여섯 일곱 여덟 아홉".split()]
_TENS = ["", *"열 스물 서른 마흔 쉰 예순 일흔 여든 아흔".split()]
_KOREAN = {str(number): _TENS[number // 10] + _ONES[number % 10] for number in range(1, 100)}
_THINGS = ["", *"ひと ふた みっ よっ いつ むっ なな やっ ここの".split()]
_DAYS = ["", *"ついたち ふつか みっか よっか いつか むいか なのか ようか ここのか とおか".split()]

COUNTED = {
    "zh": r"(?<![\d.第])2(?=小时|分钟|年(?!级)|次(?!方)|[个点位名天件杯张本条种岁周块])",
    "yue": r"(?<![\d.第])2(?=小時|分鐘|年(?!級)|次(?!方)|[個點位名件杯張本條種歲])",
    "ja": r"(?<![\d.,])(?:[12]人(?![前称])|[1-9]つ)|(?<=月)(?:[1-9]|10|20)日",
    "ko": r"(?<![\d.,제])(?:(?:[1-9]|1[0-2])(?= ?시(?:[^가-힣]|[반쯤에까부이]|$))|[1-9]\d?(?= ?살)"
    r"|(?:6|10)(?=월)|(?:[1-9]|1\d|20)"
    r"(?= ?(?:시간|명|개(?![월국년발선소교인념])|잔|마리|권|병|번째|가지|사람)))",
}
"""Patterns of the numbers, in Japanese with their counters."""


def counted(match: re.Match[str], language: str) -> str:
    """Return what is said for a match of `COUNTED`."""
    if language == "ko":
        if match.string.startswith("월", match.end()):
            return "유" if match[0] == "6" else "시"
        gap = "" if match.string.startswith(" ", match.end()) else " "
        return ("스무" if match[0] == "20" else _KOREAN[match[0]]) + gap
    if language != "ja":
        return "两" if language == "zh" else "兩"
    number, counter = int(match[0][:-1]), match[0][-1]
    if counter == "日":
        return "はつか" if number == 20 else _DAYS[number]
    return _THINGS[number] + ("り" if counter == "人" else "つ")

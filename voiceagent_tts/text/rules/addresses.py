"""Addresses of mails and of sites, with the names of their signs."""

import re

from voiceagent_tts.text.locales import Locale
from voiceagent_tts.text.rules.rule import Part, Rule

_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_SITE = re.compile(
    r"(?<![\w@.-])(?:www\.)?[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|io|ai|dev|app|gov|edu|eu|co\.uk|uk|de"
    r"|fr|es|it|pt|br|nl|ru|info|me)(?:/[\w./?=&%#~+-]*\w)?(?![\w.]\w|\w)"
)
_ADDRESS_SIGNS = {
    "en": "slash|underscore|hyphen", "de": "Schrägstrich|Unterstrich|Bindestrich",
    "fr": "slash|tiret bas|tiret", "es": "barra|guion bajo|guion",
    "it": "barra|trattino basso|trattino", "pt": "barra|sublinhado|hífen",
    "nl": "slash|underscore|streepje", "ru": "слэш|подчёркивание|дефис",
    "zh": "斜杠|下划线|横杠", "yue": "斜線|底線|橫線", "ja": "スラッシュ|アンダーバー|ハイフン",
    "ko": "슬래시|밑줄|하이픈",
}  # fmt: skip
"""What `/`, `_` and `-` are called in the address of a mail or site."""


def _say_address(match: re.Match[str], locale: Locale) -> list[Part]:
    signs = _ADDRESS_SIGNS[locale.language].split("|")
    names = {sign: locale.symbols[sign] for sign in "@."} | dict(zip("/_-", signs, strict=True))
    letters = len("www") if match[0].startswith("www.") else 0  # a network reads it as a word
    return [
        (f" {names[character]} " if character in names else character, index)
        if index >= letters
        else (f"{character} " if index < letters - 1 else character, index)
        for index, character in enumerate(match[0])
    ]


RULES = (Rule(_MAIL, _say_address), Rule(_SITE, _say_address))

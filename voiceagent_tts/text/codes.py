"""Which numbers are codes, of which people say the digits: what stands beside them tells.

This module knows no offsets, and not how digits are said.
"""

import re
from functools import lru_cache

CODE = r"\d{3,}(?:-\d+)*(?: \d{3}(?!\d))*"
"""Pattern of what may be a code."""

_WHAT = "order|account|confirmation|reference|ticket|case|invoice|booking|tracking|serial|policy"
_COMMANDE = "commande|dossier|compte|client|suivi|réservation|référence"
_PEDIDO = "pedido|cuenta|cliente|referencia|reserva|factura|seguimiento|conta|fatura"
_CUES = {
    "en": rf"code|pin|passcode|otp|zip|(?:{_WHAT})(?= ?#| (?:number|no\.|id))",
    "de": r"code|pin|tan|plz|postleitzahl|kennwort|passwort|-nr\."
    r"|(?:kunden|bestell|auftrags|artikel|konto|vorgangs|rechnungs|buchungs|karten)nummer",
    "fr": rf"code|pin|mot de passe|(?:numéro|n°) de (?:{_COMMANDE})"
    rf"|(?:{_COMMANDE})(?= (?:numéro|n°))",
    "es": rf"código|pin|clave|contraseña|número de (?:{_PEDIDO})",
    "it": r"codice|pin|cap|numero (?:di |d')(?:ordine|conto|pratica|prenotazione|cliente)",
    "pt": rf"código|pin|senha|cep|cpf|número d[aeo] (?:{_PEDIDO})",
    "nl": "code|pincode|postcode",
    "ru": "код|пароль",
    "zh": r"验证码|密码|邮编|代码|(?:订单|账|卡|工单|单)号",
    "yue": "驗證碼|密碼|號碼",
    "ja": r"コード|(?:暗証|郵便|注文|会員|予約)番号",
    "ko": r"번호|코드",
}
_ENDS = (
    r"end(?:s|ing) in|last four|endet auf|terminant par|se termine par|termina(?:d[ao])? (?:en|em)"
    r"|(?:termina|finisce) (?:con|in|per)|final|eindigt op|尾号|末尾|下4桁|끝자리"
)
"""What stands before the last digits of a card or an account."""
_LINKS = (
    r"is|was|number|no\.|id|code|digits|numéro|n°|ist|lautet|est|es|è|é|postale?|de \w+|di \w+"
    r"|是|为|係|は|が|는|은|가|이"
)
"""Words between a cue and its number."""
_CALL = (
    r"call|dial|text|notruf|wählen sie|llam\w+(?: al?)?|marc\w+(?: el)?|chiam\w+(?: il)?"
    r"|lig\w+(?: para)?(?: o)?|bel|拨打|撥打"
)
_SHORT = re.compile(r"\d11|11\d|12\d|19\d|999|988")
_STATE = re.compile(
    "(?:A[LKZR]|C[AOT]|D[CE]|FL|GA|HI|I[ADLN]|K[SY]|LA|M[ADEINOST]|N[CDEHJMVY]|O[HKR]|PA|RI|S[CD]"
    r"|T[NX]|UT|V[AT]|W[AIVY])(?<=\b..) $"
)
_FUNCTION_WORDS = (
    "and|or|to|for|then|when|is|was|has|as|on|at|in|from|with|by|if|but|now|please|und|oder|ist|hat"
    "|für|auf|wurde|et|ou|est|pour|y|o|es|está|para|fue|ed|e|è|per|en|voor|и|или"
)
_COUNTS = re.compile(
    rf" ?%| (?!(?:{_FUNCTION_WORDS})\b)[^\W\d_]|(?!です|[をでにとがはな입이을를으로])[^\W\d_]",
    re.IGNORECASE,
)
"""What follows a number that counts something: a noun or a counter."""
_MANY = re.compile(r" ?[^\W\d_\x00-\x7f]| (?:\w{3,}s|people|\w{4,}(?:[ei]|en))\b")
"""What is called in such a number."""


def is_code(number: str, before: str, after: str, language: str) -> bool:
    """Return whether people say the digits of a match of `CODE`, by what stands beside it."""
    if language == "en" and re.fullmatch(r"\d{5}(?:-\d{4})?", number) and _STATE.search(before):
        return True
    cue, end, call = _cues(language)
    if cue.search(before):
        return len(number) > 4 or not counts(after)
    if end.search(before):
        is_year = re.match("19|20", number) is not None
        return re.fullmatch(r"\d{3,4}", number) is not None and not is_year and not counts(after)
    is_call = _SHORT.fullmatch(number) is not None and call.search(before) is not None
    return is_call and not _MANY.match(after)


def counts(after: str) -> bool:
    """Return whether a number counts what follows it."""
    return _COUNTS.match(after) is not None


@lru_cache
def _cues(language: str) -> list[re.Pattern[str]]:
    start = "" if language in ("zh", "yue", "ja", "ko") else r"(?<!\w)"
    gap = r"[^\w.!?;。！？]"
    links = rf"(?:{gap}*(?:{_LINKS}))*{gap}{{0,3}}"
    patterns = (rf"(?:{_CUES[language]}){links}", rf"(?:{_ENDS}){links}", rf"(?:{_CALL}) ?")
    return [re.compile(f"{start}{pattern}$", re.IGNORECASE) for pattern in patterns]

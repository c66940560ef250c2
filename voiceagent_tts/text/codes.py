"""Which numbers are codes, of which people say the digits: what stands before them tells.

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
    "en": r"code|pin|passcode|otp|zip|end(?:s|ing) in|last four"
    rf"|(?:{_WHAT})(?= ?#| (?:number|no\.|id))",
    "de": r"code|pin|tan|plz|postleitzahl|kennwort|passwort|-nr\.|endet auf"
    r"|(?:kunden|bestell|auftrags|artikel|konto|vorgangs|rechnungs|buchungs|karten)nummer",
    "fr": rf"code|pin|mot de passe|(?:numéro|n°) de (?:{_COMMANDE})|terminant par|se termine par"
    rf"|(?:{_COMMANDE})(?= (?:numéro|n°))",
    "es": rf"código|pin|clave|contraseña|número de (?:{_PEDIDO})|termina(?:d[ao])? en",
    "it": r"codice|pin|cap|numero (?:di |d')(?:ordine|conto|pratica|prenotazione|cliente)"
    r"|(?:termina|finisce) (?:con|in|per)",
    "pt": rf"código|pin|senha|cep|cpf|número d[aeo] (?:{_PEDIDO})|terminad[ao] em|final",
    "nl": "code|pincode|postcode|eindigt op",
    "ru": "код|пароль",
    "zh": r"验证码|密码|邮编|尾号|代码|(?:订单|账|卡|工单|单)号",
    "yue": "驗證碼|密碼|號碼",
    "ja": r"コード|(?:暗証|郵便|注文|会員|予約)番号|末尾|下4桁",
    "ko": r"번호|코드|끝자리",
}
_LINKS = (
    r"is|was|number|no\.|id|code|digits|numéro|n°|ist|lautet|est|es|è|é|postale?|de \w+|di \w+"
    r"|是|为|係|は|が|는|은|가|이"
)
"""Words between a cue and its number."""
_CALL = (
    r"call|dial|text|notruf|unter|wählen sie|llam\w+(?: al?)?|marc\w+(?: el)?|chiam\w+(?: il)?"
    r"|lig\w+(?: para)?(?: o)?|bel|拨打|撥打"
)
_SHORT = re.compile(r"\d11|11\d|12\d|19\d|999|988")
_STATE = re.compile(
    "(?:A[LKZR]|C[AOT]|D[CE]|FL|GA|HI|I[ADLN]|K[SY]|LA|M[ADEINOST]|N[CDEHJMVY]|O[HKR]|PA|RI|S[CD]"
    r"|T[NX]|UT|V[AT]|W[AIVY])(?<=\b..) $"
)


def is_code(number: str, before: str, language: str) -> bool:
    """Return whether people say the digits of a match of `CODE`, by what stands before it."""
    if language == "en" and re.fullmatch(r"\d{5}(?:-\d{4})?", number) and _STATE.search(before):
        return True
    cue, call = _cues(language)
    return bool(cue.search(before) or (_SHORT.fullmatch(number) and call.search(before)))


@lru_cache
def _cues(language: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    start = "" if language in ("zh", "yue", "ja", "ko") else r"(?<!\w)"
    gap = r"[^\w.!?;。！？]"
    cue = rf"{start}(?:{_CUES[language]})(?:{gap}*(?:{_LINKS}))*{gap}{{0,3}}$"
    return re.compile(cue, re.IGNORECASE), re.compile(rf"{start}(?:{_CALL}) ?$", re.IGNORECASE)

"""Language names become codes, and a segment's language is detected or kept."""

import unicodedata

import pytest
from py3langid import langid

from testbed.sentences import SHORT_SENTENCES, TEXTS
from voiceagent_tts.errors import ErrorCode, InvalidRequestError
from voiceagent_tts.espeak.catalogue import LANGUAGES as ESPEAK_LANGUAGES
from voiceagent_tts.hibari.published import published_voices
from voiceagent_tts.model.prompt import LANGUAGE_CODES
from voiceagent_tts.plugins.pocket.published import LANGUAGE_MODELS, language_of
from voiceagent_tts.text.language import (
    CODES,
    LATIN,
    LATIN_MODEL,
    NAMES,
    detect_language,
    nearest_accent,
    normalize_language,
)
from voiceagent_tts.text.unserved import UNSERVED_LATIN, unserved_language, unspoken_language


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("English", "en"),
        (" FRENCH ", "fr"),
        ("中文", "zh"),
        ("EN_us", "en-us"),
        ("en-GB", "en-gb"),
        ("en-AU", "en-au"),
        ("es_Latn_MX", "es-mx"),
        ("en-GB-oxendict", "en"),
        ("zh-Hant", "zh"),
        ("zh-HK", "yue"),
    ],
)
def test_names_and_region_codes_become_codes(name: str, code: str) -> None:
    """A region is kept; scripts and variants are not."""
    assert normalize_language(name) == code


CORPUS = TEXTS | {
    "nl": (
        "Goedemiddag! Hoe kan ik u vandaag helpen?",
        "De dokter kan u morgen om half drie ontvangen, in de Hoofdstraat.",
        "Dat kost twaalf euro, dus iets minder dan vorige maand.",
    )
}
"""Texts by language."""
ESPEAK = ("en", "en-us", "en-gb", "en-029", "es", "es-es", "es-419", "pt", "pt-pt", "pt-br", "fr")


@pytest.mark.parametrize(
    ("wanted", "spoken", "accent", "is_wanted"),
    [
        ("es-mx", ESPEAK, "es-419", True),
        ("es-es", ESPEAK, "es-es", True),
        ("es", ESPEAK, "es", True),
        ("en-gb", ESPEAK, "en-gb", True),
        ("en-jm", ESPEAK, "en-029", True),
        ("en-au", ESPEAK, "en-gb", False),
        ("en-ca", ESPEAK, "en-us", False),
        ("pt-ao", ESPEAK, "pt-pt", False),
        ("fr-ca", ESPEAK, "fr", False),
        ("fr-fr", ESPEAK, "fr", True),
        ("nl-nl", ("nl",), "nl", True),
        ("nl-be", ("nl",), "nl", False),
        ("de-de", ESPEAK, None, True),
        ("en-us", ("en", "de"), "en", True),
        ("en-gb", ("en", "de"), "en", False),
        ("es-mx", ("es",), "es", False),
        ("pt-br", ("pt",), "pt", False),
    ],
)
def test_the_nearest_accent(
    wanted: str, spoken: tuple[str, ...], accent: str | None, is_wanted: bool
) -> None:
    """The accent itself, that of its area, a similar one, or the language's own."""
    found, is_found = nearest_accent(wanted, spoken)
    assert found == accent
    if found is not None:
        assert is_found == is_wanted


def test_every_code_and_alias_is_accepted() -> None:
    """Every listed name, in upper or lower case, becomes its code; codes stay as they are."""
    for code, aliases in NAMES.items():
        assert {normalize_language(name.upper()) for name in (code, *aliases)} == {code}


@pytest.mark.parametrize("name", ["", "klingon", "xx", "-", "e", "en glish", "x" * 10_000])
def test_an_unknown_language_is_refused_with_the_known_ones(name: str) -> None:
    """The error lists the known languages and does not repeat long input."""
    with pytest.raises(InvalidRequestError) as caught:
        normalize_language(name)
    assert caught.value.code is ErrorCode.INVALID_LANGUAGE
    assert all(code in caught.value.message for code in CODES)
    assert len(caught.value.message) < 250


def test_short_sentences_are_mostly_recognised() -> None:
    """At most 4 of 120 short Latin sentences are detected as another language."""
    wrong = [
        (language, text)
        for language, texts in SHORT_SENTENCES.items()
        for text in texts
        if detect_language(text, None) != language
    ]
    assert len(wrong) <= 4
    kept = [
        (language, text)
        for language, texts in SHORT_SENTENCES.items()
        for text in texts
        if detect_language(text, language) != language
    ]
    assert kept == []


def test_the_model_of_latin_text_answers_as_the_whole_one() -> None:
    """Sentences, letters and marks get the languages and probabilities of py3langid."""
    ours = langid.LanguageIdentifier.from_model_file(LATIN_MODEL, norm_probs=True)
    whole = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
    whole.set_languages([*LATIN, *UNSERVED_LATIN])
    sentences = [
        text
        for language in LATIN
        for text in (*CORPUS[language], *SHORT_SENTENCES.get(language, ()))
    ]
    letters = [chr(code) for code in range(0x20, 0x280)]
    for text in (*sentences, *letters, "".join(letters), "€ 5 – “so” … ™ ½ →"):
        assert ours.classify(text) == whole.classify(text)


@pytest.mark.parametrize("text", ["OK.", "Yes, 42.", "42", "$42.50", "", "🎉", "No.", "مرحبا"])
@pytest.mark.parametrize("previous", ["de", "zh", "pt-br"])
def test_an_uncertain_segment_keeps_the_language(text: str, previous: str) -> None:
    assert detect_language(text, previous) == previous
    assert detect_language(text, None) == "en"


@pytest.mark.parametrize(
    ("text", "rest", "language"),
    [
        ("Voilà!", " Your order is complete, and it ships today.", "en"),
        ("Bonjour!", " How can I help you today?", "en"),
        ("Gracias, Ana.", " Your table for four is booked, and we look forward to it.", "en"),
        ("OK.", " Je vous rappelle demain matin.", "fr"),
        ("Bonjour, comment allez-vous ?", " That is French, and it means hello.", "fr"),
        ("Guten Tag.", "", "de"),
        ("Guten Morgen!", "", "de"),
        ("Buenas tardes.", "", "es"),
    ],
)
def test_a_doubtful_first_segment_is_in_the_language_of_what_follows(
    text: str, rest: str, language: str
) -> None:
    """A greeting is not taken for a reply in its language; a certain segment decides alone."""
    assert detect_language(text, None, rest) == language


@pytest.mark.parametrize(
    ("text", "previous", "expected"),
    [
        ("你好", None, "zh"),
        ("東京駅", "ja", "ja"),
        ("你好", "yue", "yue"),
        ("你好", "en", "zh"),
        ("東京へ", "zh", "ja"),
        ("iPhone手机很好", None, "zh"),
        ("Python 안녕하세요", None, "ko"),
        ("The word こんにちは means hello there.", "ja", "en"),
        ("This is the colour that we want.", "en-gb", "en-gb"),
        ("Это хорошо, OK?", None, "ru"),
    ],
)
def test_scripts_decide_where_they_can(text: str, previous: str | None, expected: str) -> None:
    assert detect_language(text, previous) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Cześć, jak się dzisiaj czujesz?", "Polish"),
        ("Merhaba, bugün nasılsınız acaba?", "Turkish"),
        ("Xin chào, hôm nay bạn có khỏe không?", "Vietnamese"),
        ("Hej, hur mår du idag, min vän?", "Swedish"),
        ("Jó napot kívánok, miben segíthetek ma?", "Hungarian"),
        ("Hyvää päivää, kuinka voin auttaa teitä?", "Finnish"),
        ("Goddag, hvordan kan jeg hjælpe dig i dag?", "Danish"),
        ("Selamat siang, apa yang bisa saya bantu?", "Indonesian"),
        ("Доброго дня, чим я можу допомогти вам сьогодні?", "Ukrainian"),
        ("Добры дзень, чым я магу вам дапамагчы сёння, спадар Быкаў?", "Belarusian"),
        ("Добар дан, како могу да вам помогнем? Жељко је ту.", "Serbian"),
        ("Bon dia, com està vostè avui? Moltes gràcies per trucar.", "Catalan"),
        ("Dobar dan, kako ste danas? Hvala lijepo na pitanju.", "Croatian"),
        ("Dober dan, kako ste danes? Hvala lepa za vprašanje.", "Slovenian"),
        ("Dobrý deň, ako sa dnes máte? Ďakujem pekne.", "Slovak"),
        ("Bos días, como está vostede hoxe? Moitas grazas.", "Galician"),
        ("Egun on, zer moduz zaude gaur? Eskerrik asko.", "Basque"),
        ("Habari za asubuhi, hujambo leo? Asante sana.", "Swahili"),
        ("Goeie môre, hoe gaan dit vandag met jou?", "Afrikaans"),
        ("Bore da, sut ydych chi heddiw? Diolch yn fawr.", "Welsh"),
        ("Dia duit, conas atá tú inniu? Go raibh maith agat.", "Irish"),
        ("Góðan daginn, hvernig hefur þú það í dag?", "Icelandic"),
        ("Labrīt, kā jums šodien klājas?", "Latvian"),
        ("Labas rytas, kaip jums sekasi šiandien?", "Lithuanian"),
        ("Mirëmëngjes, si jeni sot? Faleminderit shumë.", "Albanian"),
        ("Tere hommikust, kuidas teil täna läheb?", "Estonian"),
        ("Hei, hvordan har du det i dag? Jeg heter Kari.", "Norwegian"),
        ("Magandang umaga, kumusta ka ngayong araw?", "Filipino"),
        ("Добрий день, прошу зачекати", "Ukrainian"),
        ("Здравейте, как сте? Много добре, благодаря.", "Bulgarian"),
        ("Бихте ли повторили въпроса?", "Bulgarian"),
        ("Добар дан, како сте данас?", "Serbian"),
        ("Здраво, како сте денес?", "Macedonian"),
        ("Сайн байна уу, та өнөөдөр ямар байна?", "Mongolian"),
        ("Слово «дякую» вы знаете?", None),
        ("Объясните, пожалуйста, объект и съёмку.", None),
        ("Dubrovnik, Zagreb, Split and Zadar", None),
        ("Jan Kowalski and Anna Nowak", None),
        ("Tengo una reserva para mañana", None),
        ("O senhor quer um copo de água?", None),
        ("Is dit de trein naar Utrecht?", None),
        ("Қайырлы күн, сізге қалай көмектесе аламын?", "Kazakh"),
        ("Καλημέρα σας, πώς μπορώ να βοηθήσω;", "Greek"),
        ("வணக்கம், எப்படி இருக்கிறீர்கள்?", "Tamil"),
        ("مرحبا كيف حالك", "Arabic"),
        ("สวัสดีครับ", "Thai"),
        ("નમસ્તે, તમે કેમ છો?", "Gujarati"),
        ("שלום מה שלומך", "Hebrew"),
        ("Kraków", None),
        ("42 %", None),
    ],
)
def test_a_language_that_no_voice_speaks_has_a_name(text: str, name: str | None) -> None:
    """Text of another script, and long enough text of other languages, is told apart."""
    assert unserved_language(text) == name


UNITS = (
    "5 µm.|20 µg.|10 µl|5 μm|4.7 kΩ|10 Ω.|10 \u2126.|5 µΩ|21 ℃|3 Å|3 \u212b|5 ℓ|3 \u212a|№ 5|10 ㎏"
)
QUANTITIES = "π|Δ|α|Σ|Φ|α, β, γ|ΔT|ΔΣ|2πr|TNF-α|β-carotene|λ = 5|χ²|ℝ|ℵ|ℏ|ℵ₀|xⁿ|x²|∂|𝛼|𝜋 r"
SIGNS = "™|©|®|ª|º|2.ª|1º|ʼ|ʻOkina|həˈloʊ|n˚ 5|(´Д｀)|(・ω・)|５|Ⅷ|①|Ⓗ|㈱|㍿|Peace be upon him ﷺ"
STYLED = "𝐇𝐞𝐥𝐥𝐨 𝐰𝐨𝐫𝐥𝐝|𝓗𝓮𝓵𝓵𝓸|𝙷𝚒|Ｈｅｌｌｏ ｗｏｒｌｄ|ＯＫ！|ＮＨＫ。|ＡＢＣ|ﬁsh|ﬀ|ʜᴇʟʟᴏ|ŉ"


@pytest.mark.parametrize("text", "|".join((UNITS, QUANTITIES, SIGNS, STYLED)).split("|"))
def test_signs_and_styled_letters_are_in_the_language_of_their_text(text: str) -> None:
    """Also alone, as a sentence may end before them."""
    assert unserved_language(text) is None
    for language in ("en", "de", "ru", "ja", "zh", "ko"):
        assert unspoken_language(text, language, [language]) is None, language


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Γειά", "Greek"),
        ("Ναι.", "Greek"),
        ("Γεια σου, τι κάνεις;", "Greek"),
        (unicodedata.normalize("NFD", "Όχι, ευχαριστώ."), "Greek"),
        ("5 µm. Καλημέρα σας!", "Greek"),
        ("Да.", "Russian"),
        ("Я не знаю.", "Russian"),
        ("好。", "Chinese"),
        ("ﾃｽﾄです", "Japanese"),
        ("ナ", "Japanese"),
        ("네", "Korean"),
        ("ﾡﾤ", "Korean"),
        ("नमस्ते", "Hindi"),
        ("مرحبا", "Arabic"),
        ("ﻣﺮﺣﺒﺎ", "Arabic"),
        ("שלום", "Hebrew"),
        ("สวัสดี", "Thai"),
        ("გამარჯობა", "Georgian"),
        ("Ｃｚｅść, Ａｎｎａ！", "Polish"),
    ],
)
def test_real_text_of_another_language_is_found(text: str, name: str) -> None:
    """However short, and also beside signs, in compatibility letters and in parts."""
    assert unspoken_language(text, "en", ["en"]) == name


SENTENCES = {
    "zh": "您好，请问今天有什么可以帮您？",
    "en": "Good morning, how can I help you today?",
    "ja": "おはようございます、ご用件は何でしょうか。",
    "ko": "안녕하세요, 무엇을 도와드릴까요?",
    "de": "Guten Morgen, was kann ich heute für Sie tun?",
    "fr": "Bonjour, que puis-je faire pour vous aujourd'hui ?",
    "ru": "Доброе утро, чем я могу вам помочь?",
    "pt": "Bom dia, em que posso ajudar você hoje?",
    "es": "Buenos días, ¿en qué puedo ayudarle hoy?",
    "it": "Buongiorno, come posso aiutarla oggi?",
    "nl": "Goedemorgen, waarmee kan ik u vandaag helpen?",
    "yue": "早晨，我可以點樣幫到你呀？你搵緊啲乜嘢？",
    "hi": "नमस्ते, मैं आज आपकी क्या मदद कर सकता हूँ?",
}


def test_every_language_of_every_engine_is_detected() -> None:
    """One sentence of each: what an engine speaks never falls back to another language."""
    pocket = {language_of(model) for model in LANGUAGE_MODELS}
    hibari = {"en", *(voice.language for voice in published_voices().values())}
    engines = {
        "espeak": ESPEAK_LANGUAGES,
        "hibari": hibari,
        "pocket": pocket,
        "qwen3": LANGUAGE_CODES,
        "another server": CODES,
    }
    for engine, languages in engines.items():
        for code in languages:
            base = normalize_language(code).partition("-")[0]
            sentence = SENTENCES[base]
            assert detect_language(sentence, None) == base, (engine, code)
            assert detect_language(sentence, "en" if base != "en" else "de") == base, code
            assert unserved_language(sentence) is None, (engine, code)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Dzień dobry", "Polish"),
        ("Cześć, Anna!", "Polish"),
        ("Merhaba", "Turkish"),
        ("Teşekkürler.", "Turkish"),
        ("Dobrý den", "Czech"),
        ("Jó napot!", "Hungarian"),
        ("Bună ziua", "Romanian"),
        ("Hej då!", "Swedish"),
        ("Takk!", "Norwegian"),
        ("Kiitos", "Finnish"),
        ("Hvala.", "Croatian"),
        ("Terima kasih", "Indonesian"),
        ("Xin chào", "Vietnamese"),
        ("Merhaba means hello", None),
        ("from Gdańsk", None),
        ("Łódź", None),
        ("Dvořák, please", None),
        ("Der Škoda ist da", None),
    ],
)
def test_a_greeting_of_a_language_that_no_voice_speaks(text: str, name: str | None) -> None:
    """A short text is told by its words: its letters may be those of a name."""
    assert unserved_language(text) == name


@pytest.mark.parametrize("language", CORPUS)
def test_no_served_language_is_called_unserved(language: str) -> None:
    """A warning that is wrong would be worse than none."""
    for text in (*CORPUS[language], *SHORT_SENTENCES.get(language, ())):
        assert unserved_language(text) is None, text

import logging
import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.texts import any_text
from voiceagent_tts.text import abbreviations, normalizer
from voiceagent_tts.text.locales import LANGUAGES, Locale, locale_of
from voiceagent_tts.text.normalizer import normalize
from voiceagent_tts.text.readings import Said, said
from voiceagent_tts.text.words import split_words


def _fail(match: re.Match[str]) -> tuple[int, bool]:
    raise IndexError(match[0])


def _raise(record: logging.LogRecord) -> bool:
    raise AssertionError(record.getMessage())


@pytest.fixture(autouse=True)
def no_rule_fails() -> Iterator[None]:
    """A rule that fails for a text leaves it as it is; here the test fails too."""
    logger = logging.getLogger(normalizer.__name__)
    logger.addFilter(_raise)
    yield
    logger.removeFilter(_raise)


def digits(text: str, language: str = "en") -> str:
    """What a voice is given that reads digits itself."""
    return normalize(said(text, 0, ()), language, reads_digits=True).text


def words(text: str, language: str = "en") -> str:
    """What a voice is given that reads letters only."""
    return normalize(said(text, 0, ()), language, reads_digits=False).text


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It is $3.50.", "It is 3 dollars and 50 cents."),
        ("$0.99 or -$5 or $2M", "99 cents or minus 5 dollars or 2 million dollars"),
        ("$5-$10", "5 dollars to 10 dollars"),
        ("£5, 25 €", "5 pounds, 25 euros"),
        ("the 1990s, '80s and 1984", "the nineteen nineties, eighties and nineteen eighty-four"),
        ("2026 users in 2026", "2026 users in twenty twenty-six"),
        ("2026-11-25", "November twenty-fifth, twenty twenty-six"),
        ("11/25/2026", "November twenty-fifth, twenty twenty-six"),
        ("Call (555) 123-4567.", "Call 5 5 5, 1 2 3, 4 5 6 7."),
        ("+49 30 1234567", "plus 4 9, 3 0, 1 2 3 4 5 6 7"),
        ("1/2, 3/4, 24/7", "one half, three quarters, 24 7"),
        ("12 km, 1 km, 60 mph", "12 kilometers, 1 kilometer, 60 miles per hour"),
        ("5 - 3 = 2, x = -2", "5 minus 3 = 2, x = minus 2"),
        ("-3°C", "minus 3 degrees Celsius"),
        ("3:05, 3:00 pm", "3 oh 5, 3 pm"),
        ("10-15 of 10:00-17:00", "10 to 15 of 10 o'clock to 17 hundred"),
        ("well-known, COVID-19, C#", "well-known, COVID-19, C#"),
        ("a 747-400, two 737s, 1-800-FLOWERS", "a 747-400, two 737s, 1-800-FLOWERS"),
        ("2½ cups, ¼, 24h, 3-2", "2 and one half cups, one quarter, 24 hours, 3 to 2"),
        ("5%-10%", "5% to 10%"),
        ("your code 4471 and 1,234.56", "your code 4 4 7 1 and 1,234.56"),
    ],
)
def test_english(written: str, spoken: str) -> None:
    """Money, years, dates, phone numbers, units and signs are said as people say them."""
    assert digits(written) == spoken


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        (
            "$5/month, £3/wk, $20/user/mo",
            "five dollars per month, three pounds per week, twenty dollars per user per month",
        ),
        ("$.50, $.5, €3,50", "fifty cents, zero point five dollars, three euros and fifty cents"),
        ("US$20, CA$5.50", "twenty dollars, five Canadian dollars and fifty cents"),
        ("25 EUR, CHF 25", "twenty-five euros, twenty-five Swiss francs"),
        ("$5-$10/month", "five dollars to ten dollars per month"),
        ("50¢, 1 ¢", "fifty cents, one cent"),
        ("2026/11/25", "November twenty-fifth, twenty twenty-six"),
        ("2026/1/5", "January fifth, twenty twenty-six"),
        ("Nov 25, 2026", "November twenty-fifth, twenty twenty-six"),
        ("mid-1990s", "mid-nineteen nineties"),
        ("9:30:15, 16:9", "nine thirty fifteen, sixteen to nine"),
        ("9am-5pm, 9-5pm", "nine A.M. to five P.M., nine to five P.M."),
        ("22:00-06:00", "twenty-two hundred to six o'clock"),
        ("~5, ≈ 10, ±5", "about five, about ten, plus or minus five"),
        (
            "≥ 5, ≤5, 5 ≠ 6",
            "greater than or equal to five, less than or equal to five, five not equal to six",
        ),
        ("5–3=2, 5−3", "five minus three equals two, five minus three"),
        ("f(x) = -x", "f(x) equals minus x"),
        (
            "10^6, 2², 10³, x⁴",
            "ten to the power of six, two squared, ten cubed, x to the power of four",
        ),
        ("⅛, 2⅝, 5‰", "one eighth, two and five eighths, five per thousand"),
        ("the 1,000th", "the one thousandth"),
        (
            "4111 1111 1111 1111",
            "four one one one, one one one one, one one one one, one one one one",
        ),
        ("10 sq ft, 2 hrs", "ten square feet, two hours"),
    ],
)
def test_english_signs(written: str, spoken: str) -> None:
    """Both kinds of voices get what they cannot read in words."""
    assert words(written) == spoken
    assert re.findall(r"[~^‰²³⁴⅛⅝¢/]|US", digits(written)) == []


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("de", "bis 14.30 Uhr, 24/7", "bis 14 Uhr 30, 24 7"),
        (
            "de",
            "am 25.11. um 5, der 3.5. und v 1.2.",
            "am fünfundzwanzigsten November um 5, der dritte Mai und v 1.2.",
        ),
        ("de", "Montag, 25.11.", "Montag, fünfundzwanzigsten November."),
        ("de", "5 – 3, 6 : 2, 2:1", "5 minus 3, 6 geteilt durch 2, 2 zu 1"),
        (
            "de",
            "5 Mio. €, 1 Mrd. und 2,5 Mio.",
            "5 Millionen Euro, eine Milliarde und 2,5 Millionen.",
        ),
        ("de", "DE89 3704 0044 0532 0130 00", "D E 8 9, 3 7 0 4, 0 0 4 4, 0 5 3 2, 0 1 3 0, 0 0"),
        ("de", "die 1990er, 90er", "die neunzehnhundertneunziger, neunziger"),
        ("de", "vom 1. bis 3. Mai, 3.50 €", "vom ersten bis dritten Mai, 3 Euro 50"),
        ("de", "1 h, 1 €/Monat", "eine Stunde, ein Euro pro Monat"),
        ("fr", "n° 5, N° 6, nº 7", "numéro 5, numéro 6, numéro 7"),
        ("fr", "06.12.34.56.78", "0 6, 1 2, 3 4, 5 6, 7 8"),
        ("fr", "8h-17h", "8 heures à 17 heures"),
        ("fr", "8h30-12h, 1h30", "8 heures 30 à 12 heures, une heure 30"),
        ("fr", "1 h, 21 h, 1 km", "une heure, vingt et une heures, un kilomètre"),
        ("es", "912 345 678, 600 123 456", "9 1 2, 3 4 5, 6 7 8, 6 0 0, 1 2 3, 4 5 6"),
        ("es", "n.º 5, nº 6", "número 5, número 6"),
        ("es", "MX$ 100, US$ 20", "100 pesos mexicanos, 20 dólares"),
        ("es", "1 €, 21 €, 31 h, 11 €", "un euro, veintiún euros, treinta y una horas, 11 euros"),
        ("it", "1 h, 1 km, 3/5", "una ora, un chilometro, 3 quinti"),
        ("pt", "1 h, 21 h, R$ 5", "uma hora, vinte e uma horas, 5 reais"),
        ("nl", "~5, 16:9, 10^6", "ongeveer 5, 16 op 9, 10 tot de macht 6"),
        ("ru", "~5 ‰", "около 5 промилле"),
    ],
)
def test_signs_of_other_languages(language: str, written: str, spoken: str) -> None:
    """Every voice is given them in words; a number that agrees with its noun is in words too."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("de", "3,50 €, -5 °C", "3 Euro 50, minus 5 Grad Celsius"),
        ("de", "am 25.11.2026", "am fünfundzwanzigsten November zweitausendsechsundzwanzig"),
        ("de", "um 14:30 Uhr", "um 14 Uhr 30"),
        ("fr", "12 km, 3,50 €", "12 kilomètres, 3 euros 50"),
        ("es", "5 - 3, 25/11/2026", "5 menos 3, 25 de noviembre de 2026"),
        ("it", "3,50 €", "3 euro e 50"),
        ("pt-br", "-3 °C", "menos 3 graus Celsius"),
        ("nl", "10-15 km", "10 tot 15 kilometer"),
        ("ru", "21 $, 5 $", "21 доллар, 5 долларов"),
        ("en-gb", "25/11/2026", "the twenty-fifth of November twenty twenty-six"),
    ],
)
def test_other_languages(language: str, written: str, spoken: str) -> None:
    """Every language has its own words and order."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("zh", "-5, x = -2", "负 5, x 等于 负 2"),
        ("zh", "温度-3°C", "温度负 3摄氏度"),
        ("zh", "5 - 3, -5%", "5减 3, 负 百分之 5"),
        ("zh", "$25, 25 €, ￥500, -$5", "25美元, 25欧元, 500元, 负 5美元"),
        ("zh", "3 km, 2 km, 60 km/h", "3公里, 两 公里, 每小时 60公里"),
        ("zh", "5kg的米, 50%, 50％", "5千克的米, 百分之 50, 百分之 50"),
        ("zh", "2026-11-25 14:30", "2026年十一月25日 14点 30分"),
        ("zh", "电话13812345678", "电话1 3 8 1 2 3 4 5 6 7 8"),
        ("zh", "10~15个, 3月-5月", "10到 15个, 3月 到 5月"),
        ("zh", "3/5, 45°, 3.14, 10²", "5分之3, 45度, 3点 1 4, 10的平方"),
        ("zh", "GPT-4, iPhone 15, 5+3", "GPT-4, iPhone 15, 5加 3"),
        ("yue", "-5, 25 €, 50%, 3 km", "負 5, 25歐元, 百分之 50, 3公里"),
        ("yue", "5 - 3, 3.5", "5減 3, 3點 5"),
        ("ja", "-5, 気温は-3°Cです", "マイナス 5, 気温はマイナス 3度です"),
        ("ja", "5 - 3, x = -2", "5引く 3, x イコール マイナス 2"),
        ("ja", "$25, 25 €, ¥500, $3.50", "25 ドル, 25 ユーロ, 500円, 3 ドル 50 セント"),
        ("ja", "3 km, 50%オフ", "3 キロメートル, 50 パーセントオフ"),
        ("ja", "2026-11-25, 14:30", "2026年11月25日, 14時 30分"),
        ("ja", "03-1234-5678, 10〜15", "0 3, 1 2 3 4, 5 6 7 8, 10 から 15"),
        ("ko", "-5, 기온은 -3°C입니다", "마이너스 5, 기온은 마이너스 3 도입니다"),
        ("ko", "5 - 3, 50%입니다", "5 빼기 3, 50 퍼센트입니다"),
        ("ko", "$25, 25 €, ¥500, ₩5,000", "25 달러, 25 유로, 500 엔, 5,000 원"),
        ("ko", "3 km, 2026-11-25", "3 킬로미터, 2026년 11월 25일"),
        ("ko", "오후 3:05, 14:30", "오후 세 시 5분, 14 시 30분"),
        ("ko", "010-1234-5678, 9시-5시", "0 1 0, 1 2 3 4, 5 6 7 8, 아홉 시 에서 다섯 시"),
    ],
)
def test_languages_that_write_numbers_beside_letters(
    language: str, written: str, spoken: str
) -> None:
    """Signs and units are said in the language and in its order, with letters beside them too."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        (
            "en",
            "It is –5 °C, or −5 °C.",
            "It is minus 5 degrees Celsius, or minus 5 degrees Celsius.",
        ),
        ("en", "$-5, €-3, US$-5", "minus 5 dollars, minus 3 euros, minus 5 dollars"),
        ("en", "–$5, $-.50, -$2M", "minus 5 dollars, minus 50 cents, minus 2 million dollars"),
        ("en", "x = –2, (–5), from -5 to –3", "x = minus 2, (minus 5), from minus 5 to minus 3"),
        ("en", "-½, -3/4, -.5", "minus one half, minus three quarters, minus .5"),
        ("en", "5 - -3, 5 × -3, -5-10", "5 minus minus 3, 5 × minus 3, minus 5 to 10"),
        ("en", "2^-3, 10⁻³", "2 to the power of minus 3, 10 to the power of minus 3"),
        ("en", "25 €-30 €, F-16, –1984", "25 euros to 30 euros, F-16, minus 1984"),
        ("de", "-1 €, -1 km, € -3", "minus ein Euro, minus ein Kilometer, minus 3 Euro"),
        (
            "fr",
            "-1 €, –5 °C, -5 M€",
            "moins un euro, moins 5 degrés Celsius, moins 5 millions d'euros",
        ),
        ("pt", "R$ -5, R$ 19,99, R$ 0,50", "menos 5 reais, 19 reais e 99, 50 centavos"),
        ("ru", "–5 °C", "минус 5 градусов Цельсия"),
    ],
)
def test_no_minus_is_lost(language: str, written: str, spoken: str) -> None:
    """Before a price, a unit or a fraction, behind a currency, and as an en dash."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("en", "2026-11-25T10:30:00Z", "November twenty-fifth, twenty twenty-six, 10 30 UTC"),
        (
            "en",
            "2026-11-25T10:30:15.1-05:00",
            "November twenty-fifth, twenty twenty-six, 10 30 15 UTC minus 5",
        ),
        ("en", "11-25-2026", "November twenty-fifth, twenty twenty-six"),
        ("en-gb", "25-11-2026", "the twenty-fifth of November twenty twenty-six"),
        ("nl", "25-11-2026", "25 november tweeduizendzesentwintig"),
        ("de", "25-11-2026", "fünfundzwanzigsten November zweitausendsechsundzwanzig"),
        ("es", "25-11-2026", "25 de noviembre de 2026"),
        ("en", "555 1234, room 555 2020", "5 5 5, 1 2 3 4, room 555 2020"),
        ("de", "(030) 1234567", "0 3 0, 1 2 3 4 5 6 7"),
        ("en", "1998-2003, 1998-99", "nineteen ninety-eight to 2003, nineteen ninety-eight to 99"),
        ("en", "45°, 1°, 45° C", "45 degrees, 1 degree, 45 degrees Celsius"),
        ("nl", "45°", "45 graden"),
        ("ru", "21°", "21 градус"),
    ],
)
def test_dates_telephones_and_degrees(language: str, written: str, spoken: str) -> None:
    """Dates with dashes and with a time, telephones with spaces, and angles."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("fr", "XXIe siècle", "vingt et unième siècle"),
        ("fr", "François Ier, la Ve République", "François premier, la cinquième République"),
        ("fr", "la 1re, le 2e étage", "la première, le deuxième étage"),
        ("es", "siglo XXI", "siglo 21"),
        ("pt", "século XXI", "século 21"),
        ("it", "XXI secolo", "ventunesimo secolo"),
        ("de", "im XX. Jahrhundert", "im zwanzigsten Jahrhundert"),
        ("de", "am 3. Mai, der 2. Platz", "am dritten Mai, der zweite Platz"),
        ("fr", "Le 5, la Vie, Le Mans", "Le 5, la Vie, Le Mans"),
    ],
)
def test_places_in_an_order(language: str, written: str, spoken: str) -> None:
    """Ordinals and Roman numerals are words: espeak reads `21e` and `21.` as other than people."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("fr", "5 M€, 1 M€", "5 millions d'euros, un million d'euros"),
        ("fr", "1,5 Md€, 3 k€", "1,5 milliard d'euros, 3 mille euros"),
        ("fr", "5 M$, $5M", "5 millions de dollars, 5 millions de dollars"),
        ("de", "5 M€, 5 Millionen €", "5 Millionen Euro, 5 Millionen Euro"),
        ("de", "1.000,50 €, 5 M", "1.000 Euro 50, 5 M"),
        ("es", "5 M€", "5 millones de euros"),
        (
            "it",
            "5 mln €, 5 mln, 1 mld di euro",
            "5 milioni di euro, 5 milioni, un miliardo di euro",
        ),
        ("pt", "5 M€, R$ 5 mi", "5 milhões de euros, 5 milhões de reais"),
        ("nl", "€ 5 mln, 5 mld euro", "5 miljoen euro, 5 miljard euro"),
        ("ru", "1 млн $, 5 тыс. человек", "1 миллион долларов, 5 тысяч человек"),
        ("en", "5 M€, $2 million. Then", "5 million euros, 2 million dollars. Then"),
        ("en", "in € or $, and $HOME", "in euros or dollars, and $HOME"),
        ("en", "£3/wk", "3 pounds per week"),
        ("de", "7 €/wk", "7 Euro pro wk"),
    ],
)
def test_large_sums(language: str, written: str, spoken: str) -> None:
    """Numbers that are written short before or after a currency; a sign alone is its name."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("en", "1,234.56", "one thousand two hundred thirty-four point five six"),
        ("en", "50% of B2B, the 21st", "fifty percent of B two B, the twenty-first"),
        ("en", "me@example.com", "me at example dot com"),
        ("en", "007", "zero zero seven"),
        ("en", "v2.0.1", "v two point zero point one"),
        ("de", "1.234,5", "eintausendzweihundertvierunddreißig Komma fünf"),
        ("en", "on Jan. 5, or 5 May", "on January fifth, or the fifth of May"),
        ("en", "Dr. Lee and Mrs. Day", "Doctor Lee and Missus Day"),
        ("en", "Mr. and Mrs. Day", "Mister and Missus Day"),
        ("en", "St. James St. is near.", "Saint James Street is near."),
        ("en", "He lives on Main St. Come in.", "He lives on Main Street. Come in."),
        ("en", "the 5th Ave., on Sat. at noon", "the fifth Avenue, on Saturday at noon"),
        ("en", "Henry VIII, Chapter IV, Rocky II", "Henry the eighth, Chapter four, Rocky II"),
        ("en", "World War II, I am, mix", "World War two, I am, mix"),
        ("en", "Super Bowl LVIII, XL", "Super Bowl fifty-eight, XL"),
        (
            "en",
            "Elizabeth I of England, or Mary I.",
            "Elizabeth the first of England, or Mary the first.",
        ),
        ("en", "Part I, World War I was", "Part one, World War one was"),
        ("en", "at 10:30 am, 5pm", "at ten thirty A.M., five P.M."),
        ("en", "2 - 3 days, 5 - 3 = 2", "two to three days, five minus three equals two"),
        ("en", "He is 5'6\" tall.", "He is five foot six tall."),
        ("en", "¾ full, e.g. now, etc.", "three quarters full, for example now, et cetera."),
        ("en", "www.example.com", "w w w dot example dot com"),
        (
            "en",
            "Tue., Sept. 8, or 9 Sept. 2021",
            "Tuesday, September eighth, or the ninth of September twenty twenty-one",
        ),
        ("en", "since Sept. we wait", "since September we wait"),
        ("en", "It was May. Then Jan. we met in Dec.", "It was May. Then January we met in Dec."),
        ("de", "www.beispiel.de", "w w w Punkt beispiel Punkt de"),
        ("en", "Acme™ works !", "Acme works!"),
        ("en", "No. Sat down. The Sun. Etc", "No. Sat down. The Sun. Etc"),
        ("de", "1.000.000, v2.0.1", "eine Million, v zwei Punkt null Punkt eins"),
        ("de", "1 km, 1 €, Nr. 1 ist", "ein Kilometer, ein Euro, Nummer eins ist"),
        ("de", "im 2. Weltkrieg, der 2. Platz", "im zweiten Weltkrieg, der zweite Platz"),
        (
            "de",
            "21. Jahrhundert, in der 2. Klasse",
            "einundzwanzigstes Jahrhundert, in der zweiten Klasse",
        ),
        ("de", "Ich habe 5. Dann ging ich.", "Ich habe fünf. Dann ging ich."),
        ("fr", "le 1er mai, la 1re, le 21e", "le premier mai, la première, le vingt et unième"),
        ("es", "1º, 2ª, 3er piso", "primero, segunda, tercer piso"),
        ("nl", "de 2e", "de tweede"),
        ("fr", "71 %", "soixante et onze pour cent"),
        ("ru", "Том & 5", "Том и пять"),
    ],
)
def test_voices_that_read_letters_only(language: str, written: str, spoken: str) -> None:
    """Numbers and symbols are words."""
    assert words(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "as_digits", "as_words"),
    [
        ("es-mx", "1,500 pesos", "1500 pesos", "mil quinientos pesos"),
        ("es-mx", "3.5, $1,234.56", "3 punto 5, 1234 dólares con 56", None),
        ("es", "1.500,5", "1.500,5", "mil quinientos coma cinco"),
        ("es-ar", "1.500,5", "1.500,5", "mil quinientos coma cinco"),
        ("de-ch", "CHF 1'234.50", "1234 Komma 50 Schweizer Franken", None),
        ("de-at", "1.500,5", "1.500,5", None),
        ("pt-pt", "1.500,5", "1.500,5", "mil e quinhentos vírgula cinco"),
        ("it-ch", "1'500", "1500", "millecinquecento"),
        ("it", "all'1:30", "all'una 30", "all'una trenta"),
        ("it", "dell'11/05/2026", "dell'11 maggio 2026", None),
        ("fr", "l'11:30", "l'11 heures 30", "l'onze heures trente"),
        ("fr", "7j/7, 24h/24", "7 jours sur 7, 24 heures sur 24", None),
        ("it", "24h/24", "24 ore su 24", "ventiquattro ore su ventiquattro"),
        ("pt", "12x de 5 €", "12 vezes de 5 euros", "doze vezes de cinco euros"),
        ("de", "3x täglich", "3 mal täglich", "drei mal täglich"),
        ("es", "3x más, 2x1, x5", "3 veces más, 2x1, x5", None),
        ("en", "the '98 class, '5:30'", "the '98 class, '5:30'", None),
    ],
)
def test_regions_elisions_and_times(
    language: str, written: str, as_digits: str, as_words: str | None
) -> None:
    """Marks of numbers are the region's; a number may follow an elision; "3x" counts."""
    assert digits(written, language) == as_digits
    assert as_words is None or words(written, language) == as_words


@pytest.mark.parametrize("say", [digits, words])
@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("en", "j_d-a@x.com", "j underscore d hyphen a at x dot com"),
        ("en", "a_b_c, x.com/a_b", "a b c, x dot com slash a underscore b"),
        ("de", "anna.li@web.com", "anna Punkt li at web Punkt com"),
        ("de", "j_d@c-d.de", "j Unterstrich d at c Bindestrich d Punkt de"),
        ("fr", "j_d@x.com", "j tiret bas d arobase x point com"),
        ("es", "www.x.es/a-b", "w w w punto x punto es barra a guion b"),
        ("it", "j_d@x.it", "j trattino basso d chiocciola x punto it"),
        ("pt", "j_d@x.br", "j sublinhado d arroba x ponto br"),
        ("zh", "j_d@x.com", "j 下划线 d 艾特 x 点 com"),
        ("ja", "j_d@x.com", "j アンダーバー d アットマーク x ドット com"),
    ],
)
def test_addresses(
    language: str, written: str, spoken: str, say: Callable[[str, str], str]
) -> None:
    """Every voice says the signs of mail addresses and sites."""
    assert say(written, language) == spoken


@pytest.mark.parametrize("say", [digits, words])
@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("en", "Main St, Oak Ave, Pine Rd", "Main Street, Oak Avenue, Pine Road"),
        ("en", "Sunset Blvd and Lake Pkwy", "Sunset Boulevard and Lake Parkway"),
        ("en", "the 42nd St. exit", "the forty-second Street exit"),
        ("en", "Mount St. Helens, Mt. Fuji", "Mount Saint Helens, Mount Fuji"),
        ("en", "Apt B, Ft. Worth, Ft Worth", "Apartment B, Fort Worth, Fort Worth"),
        ("en", "Ms. Lee vs. Sgt. Pepper", "Miz Lee versus Sergeant Pepper"),
        ("en", "Ask Dr. No. I like Main St. It is", "Ask Doctor No. I like Main Street. It is"),
        ("en", "Gen Z, the Dr said, Ave Maria, no. May", "Gen Z, the Dr said, Ave Maria, no. May"),
        ("de", "Dr. Li, Hr. und Fr. May", "Doktor Li, Herr und Frau May"),
        ("de", "vom Dr. Li bis Hr. May", "vom Doktor Li bis Herr May"),
        ("de", "bzw. ggf. usw.", "beziehungsweise gegebenenfalls und so weiter."),
        ("de", "Hauptstr. am 5. Jan. im Bad", "Hauptstraße am fünften Januar im Bad"),
        ("de", "Mo-Fr und Sa. bis So.", "Montag bis Freitag und Samstag bis Sonntag."),
        ("de", "Das ist so. Tel Aviv. Ich bin Jan. Er", "Das ist so. Tel Aviv. Ich bin Jan. Er"),
        ("fr", "M. et Mme Roy, Dr Li", "Monsieur et Madame Roy, Docteur Li"),
        ("fr", "J. M. Li, lun-ven, Me voici", "J. M. Li, lundi à vendredi, Me voici"),
        ("es", "el sr. Li y la Sra. Soto", "el señor Li y la Señora Soto"),
        ("it", "Sig. Li, Sig.ra Bo, dott.ssa Re", "Signor Li, Signora Bo, dottoressa Re"),
        ("pt", "Sr. Silva e Profa. Souza, p. ex.", "Senhor Silva e Professora Souza, por exemplo."),
        ("nl", "dhr. Jansen, bijv. hier", "de heer Jansen, bijvoorbeeld hier"),
    ],
)  # fmt: skip
def test_words_that_are_written_short(
    language: str, written: str, spoken: str, say: Callable[[str, str], str]
) -> None:
    """Every voice says titles, streets, days and other words in full."""
    assert say(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("en", "123 East 42nd St., 9 Elm Dr. Go", "123 East forty-second Street, 9 Elm Drive. Go"),
        ("en", "Apt. 4B, ext. 12, Ste 200", "Apartment 4B, extension 12, Suite 200"),
        ("en", "2 lbs. 3 oz. or 5 min. off", "2 pounds 3 ounces or 5 minutes off"),
        ("de", "1 Std. 30 Min. lang, Nr. 5", "eine Stunde 30 Minuten lang, Nummer 5"),
        ("fr", "le 3 janv. à 5 km", "le 3 janvier à 5 kilomètres"),
        ("es", "el 3 ene. a las 9, 5 mar. y", "el 3 enero a las 9, 5 marzo y"),
        ("en", "1 oz. of it, 5 ft. tall", "1 ounce of it, 5 feet tall"),
        ("it", "al n. 5, pag. 3", "al numero 5, pagina 3"),
        ("pt", "5 de jan. na pág. 3", "5 de janeiro na página 3"),
    ],
)
def test_words_that_are_written_short_beside_numbers(
    language: str, written: str, spoken: str
) -> None:
    """What stands before a number or behind one is said in full, too."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        (
            "en",
            "9:00 - 17:00, 2:00 - 4:00 PM, 9:00 AM - 5:00 PM",
            "9 o'clock to 17 hundred, 2 o'clock to 4 PM, 9 AM to 5 PM",
        ),
        (
            "en",
            "1,200 - 1,500 units, 1,500 - 1,200, open 9 – 5",
            "1,200 to 1,500 units, 1,500 minus 1,200, open 9 to 5",
        ),
        (
            "en",
            "$10 - $20, $20 - $5, $5 - $6 = -$1",
            "10 dollars to 20 dollars, 20 dollars minus 5 dollars, "
            "5 dollars minus 6 dollars = minus 1 dollar",
        ),
        (
            "en",
            "5% - 10%, 5 km - 10 km, 5km-10km",
            "5% to 10%, 5 kilometers to 10 kilometers, 5 kilometers to 10 kilometers",
        ),
        (
            "en",
            "3 - 5 = -2, 2 + 3 - 5, -5 - -3, 3-1, x = -2",
            "3 minus 5 = minus 2, 2 + 3 minus 5, minus 5 minus minus 3, 3 to 1, x = minus 2",
        ),
        (
            "en",
            "Jan 5 – Jan 7, Mon-Fri, Mon. - Fri., May - it was",
            "January fifth to January seventh, Monday to Friday, Monday to Friday, May - it was",
        ),
        (
            "de",
            "9 - 17 Uhr, 22 - 6 Uhr, 14.30-16.30 Uhr, Mo-Fr, 5 - 3",
            "9 bis 17 Uhr, 22 bis 6 Uhr, 14 Uhr 30 bis 16 Uhr 30, Montag bis Freitag, 5 minus 3",
        ),
        (
            "fr",
            "20h - 22h, lundi - vendredi, 5 € - 10 €",
            "20 heures à 22 heures, lundi à vendredi, 5 euros à 10 euros",
        ),
        (
            "es",
            "9:00 - 18:00, 5 de mayo - 7 de junio, -5 - 3",
            "9 a 18, 5 de mayo a 7 de junio, menos 5 menos 3",
        ),
        ("pt", "9h - 18h, segunda-feira", "9 horas a 18 horas, segunda-feira"),
        (
            "ja",
            "9:00〜18:00, 月〜金, 午前9時〜午後6時, ~5, 5 - 3",
            "9時 から 18時, 月 から 金, 午前9時 から 午後6時, 約 5, 5引く 3",
        ),
        (
            "zh",
            "9:00~18:00, 周一~周五, 上午9点~下午6点, -5",
            "9点 到 18点, 周一 到 周五, 上午9点 到 下午6点, 负 5",
        ),
        (
            "ko",
            "9시~18시, 오전 9시~오후 6시, 월~금, ₩5,000~₩10,000, ~5",
            "아홉 시 에서 18시, 오전 아홉 시 에서 오후 여섯 시, 월 에서 금, 5,000 원 에서 10,000 "
            "원, 약 5",
        ),
    ],
)
def test_ranges(language: str, written: str, spoken: str) -> None:
    """A dash with spaces, or a wave, between times, days and rising amounts is no minus."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        (
            "en",
            "Your code is 482913. Your PIN is: 1234, code 482 913",
            "Your code is 4 8 2, 9 1 3. Your PIN is: 1 2 3 4, code 4 8 2, 9 1 3",
        ),
        (
            "en",
            "Springfield, IL 62704, CA 90210-1234, EU 50000",
            "Springfield, IL 6 2 7 0 4, CA 9 0 2 1 0, 1 2 3 4, EU 50000",
        ),
        (
            "en",
            "Call 911, call 500 people, call 1200 users",
            "Call 9 1 1, call 500 people, call 1200 users",
        ),
        (
            "en",
            "a card ending in 4242, last four digits 4242",
            "a card ending in 4 2 4 2, last four digits 4 2 4 2",
        ),
        (
            "en",
            "5551234567, 1000000, $1234567, 1234567 km",
            "5 5 5, 1 2 3, 4 5 6 7, 1000000, 1234567 dollars, 1234567 kilometers",
        ),
        (
            "en",
            "The code is 123-456, 123-456 people, 737-800",
            "The code is 1 2 3, 4 5 6, 123 to 456 people, 737-800",
        ),
        (
            "en",
            "order #48213, order number 48213, order 1500 units, #12345",
            "order number 4 8 2 1 3, order number 4 8 2 1 3, order 1500 units, number 12345",
        ),
        (
            "en",
            "room 1204, What is the code? 1500 users, codec 1234",
            "room 1204, What is the code? 1500 users, codec 1234",
        ),
        (
            "de",
            "Ihr Code lautet 482913, Art.-Nr. 123-456, PLZ 10115, Notruf 112",
            "Ihr Code lautet 4 8 2, 9 1 3, Art.-Nummer 1 2 3, 4 5 6, PLZ 1 0 1 1 5, Notruf 1 1 2",
        ),
        (
            "fr",
            "Votre code est 482913, commande n° 12345, le 15",
            "Votre code est 4 8 2, 9 1 3, commande numéro 1 2 3 4 5, le 15",
        ),
        (
            "es",
            "Su código de verificación es 482913, llame al 911, termina en 4242",
            "Su código de verificación es 4 8 2, 9 1 3, llame al 9 1 1, termina en 4 2 4 2",
        ),
        (
            "it",
            "Il codice è 482913, 3451234567, CAP 20121",
            "Il codice è 4 8 2, 9 1 3, 3 4 5, 1 2 3, 4 5 6 7, CAP 2 0 1 2 1",
        ),
        (
            "pt",
            "CPF 123.456.789-00, 11 91234-5678, CEP 01310-100",
            "CPF 1 2 3, 4 5 6, 7 8 9, 0 0, 1 1, 9 1 2 3 4, 5 6 7 8, CEP 0 1 3 1 0, 1 0 0",
        ),
        (
            "zh",
            "验证码是482913，尾号4242, 拨打110, 12345678人",
            "验证码是4 8 2, 9 1 3，尾号4 2 4 2, 拨打1 1 0, 12345678人",
        ),
        (
            "ja",
            "認証コードは482913です, 郵便番号123-4567",
            "認証コードは4 8 2, 9 1 3です, 郵便番号1 2 3, 4 5 6 7",
        ),
        (
            "ko",
            "인증번호는 482913입니다, 주문번호 12345",
            "인증번호는 4 8 2, 9 1 3입니다, 주문번호 1 2 3 4 5",
        ),
    ],
)
def test_codes(language: str, written: str, spoken: str) -> None:
    """Digits are said one by one behind a word for a code, and where nobody counts so far."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        (
            "en",
            "Mon, Jan 5th, Dec 24, Jan. 5-7",
            "Monday, January fifth, December twenty-fourth, January fifth to seventh",
        ),
        (
            "en",
            "Mar 3 to 5 PM, Jan 2026, Sun, Aug 3",
            "March third to five P.M., January twenty twenty-six, Sunday, August third",
        ),
        (
            "en",
            "Mon-Fri 9am-5pm, Sat & Sun, Sun at 5 pm",
            "Monday to Friday nine A.M. to five P.M., Saturday and Sunday, Sunday at five P.M.",
        ),
        ("en", "See you Tue", "See you Tuesday"),
        ("en", "Mon. - Fri., by Thurs. Then", "Monday to Friday, by Thursday. Then"),
        (
            "en",
            "The Sun, Sat down. Mon ami. I sat 5 times. Frito Tue-x",
            "The Sun, Sat down. Mon ami. I sat five times. Frito Tue-x",
        ),
    ],
)
def test_days_written_short(language: str, written: str, spoken: str) -> None:
    """Days and months have no need of a dot."""
    assert words(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        (
            "en",
            "12/25/24, 5/13/24, 45/60/70, 10-12-24",
            "December twenty-fifth, twenty twenty-four, May thirteenth, twenty twenty-four, "
            "forty-five/sixty/seventy, ten-twelve-twenty-four",
        ),
        ("en-gb", "03/05/26", "the third of May twenty twenty-six"),
        (
            "de",
            "am 03.05.26, v 1.2.10",
            "am dritten Mai zweitausendsechsundzwanzig, v eins Punkt zwei Punkt zehn",
        ),
        ("es", "03/05/26", "tres de mayo de dos mil veintiséis"),
        (
            "en",
            "1h 30m, 2m 30s, 1h30m 10s, 5m, 5 m 10 mph",
            "one hour thirty minutes, two minutes thirty seconds, one hour thirty minutes ten "
            "seconds, five meters, five meters ten miles per hour",
        ),
        ("fr", "2h30min, 5 m, 10h30", "deux heures trente minutes, cinq mètres, dix heures trente"),
        (
            "de",
            "1h 30m, 3.14, v2.1, 3.5 %, 1.000, 2.05",
            "eine Stunde dreißig Minuten, drei Punkt vierzehn, v zwei Punkt eins, drei Punkt "
            "fünf Prozent, eintausend, zwei Punkt null fünf",
        ),
        ("fr", "v2.1", "v deux point un"),
        (
            "en",
            "I ran .5 miles, .25 mi, v2.1, 3.14, Node.js",
            "I ran point five miles, point two five miles, v two point one, three point one "
            "four, Node.js",
        ),
        ("ja", "1h30m", "一 時間 三十 分"),
    ],
)
def test_short_years_durations_and_dots(language: str, written: str, spoken: str) -> None:
    """Two digits are a year, m behind hours is minutes, and a dot between digits is said."""
    assert words(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        (
            "en",
            "on 3/4 at 2 PM, by 5/6, due 12/5, Monday, 5/3, 3/4 at 2:00",
            "on March fourth at 2 PM, by May sixth, due December fifth, Monday, May third, "
            "March fourth at 2 o'clock",
        ),
        (
            "en",
            "on 1/2 of it, by 1/2, before 1/2 cup, on 13/5, on 24/7, 5/6, 9/11",
            "on one half of it, by one half, before one half cup, on 13 5, on 24 7, 5 sixths, 9 11",
        ),
        ("en-gb", "on 3/4", "on the third of April"),
        (
            "ja",
            "5/3(土), 5/3 10:00, 5/3から, 4/3",
            "5月みっか(土), 5月みっか 10時, 5月みっかから, 3分の4",
        ),
        ("zh", "4/3, 24/7, 1/2", "3分之4, 24 7, 二分之一"),
        ("ko", "4/3, 5/3(토)", "3분의4, 5월 3일(토)"),
        (
            "fr",
            "du 5/3 au 7/3, le 1/3 des gens, 3/4",
            "du 5 mars au 7 mars, le un tiers des gens, trois quarts",
        ),
        ("es", "el 5/3, 3/5", "el 5 de marzo, 3 quintos"),
        ("pt", "dia 5/3", "dia 5 de março"),
    ],
)
def test_days_of_a_month(language: str, written: str, spoken: str) -> None:
    """A stroke is one of a date where a word before it, a day or a time behind it says so."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        (
            "de",
            "Heute ist der 3.5.2026, am 3.5.2026, 3.5.2026",
            "Heute ist der dritte Mai zweitausendsechsundzwanzig, am dritten Mai "
            "zweitausendsechsundzwanzig, dritten Mai zweitausendsechsundzwanzig",
        ),
        (
            "de",
            "Der 24.12.2026 ist",
            "Der vierundzwanzigste Dezember zweitausendsechsundzwanzig ist",
        ),
        (
            "de",
            "vom 1.-3. Mai, am 24. und 25. Dezember, vom 3. auf den 4. Mai",
            "vom ersten bis dritten Mai, am vierundzwanzigsten und fünfundzwanzigsten Dezember, "
            "vom dritten auf den vierten Mai",
        ),
        ("de", "1. bis 5. Juni", "ersten bis fünften Juni"),
        (
            "de",
            "3./4. Mai, am 3. Mai, der 3. Mai, Punkt 3. und 4. Haus",
            "dritten und vierten Mai, am dritten Mai, der dritte Mai, Punkt 3. und 4. Haus",
        ),
    ],
)
def test_german_days(language: str, written: str, spoken: str) -> None:
    """Days in a row are ordinals, and 'der' has the first case."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        (
            "ja",
            "14：30, １，９８０円, 9：00～18：00, ３．５％, 10%-15%, -5%",
            "14時 30分, 1,980円, 9時 から 18時, 3点 5 パーセント, 10 パーセント から 15 "
            "パーセント, マイナス 5 パーセント",
        ),
        ("zh", "1，2，3, 10%-15%, -5%", "1，2，3, 百分之 10到 百分之 15, 负 百分之 5"),
        ("ko", "2026.05.03, 2026. 5. 3., 3.5", "2026년 5월 3일, 2026년 5월 3일, 3 점 5"),
        ("ja", "2026.5.3", "2026年5月みっか"),
    ],
)
def test_full_width_marks_and_dotted_dates(language: str, written: str, spoken: str) -> None:
    """Marks between digits are those of ASCII, and a year with dots behind it begins a date."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        (
            "it",
            "1° maggio, al 5° piano, 1° posto, fa 30° oggi, 45°",
            "primo maggio, al quinto piano, primo posto, fa 30 gradi oggi, 45 gradi",
        ),
        (
            "es",
            "el 1° de mayo, 1° piso, 45°, 20° C",
            "el primero de mayo, primer piso, 45 grados, 20 grados Celsius",
        ),
        (
            "pt",
            "1° lugar, no 2° andar, 30° hoje",
            "primeiro lugar, no segundo andar, 30 graus hoje",
        ),
        (
            "fr",
            "Louis XIV, Louis XIVe, taille XXL, La Vie",
            "Louis 14, Louis quatorzième, taille XXL, La Vie",
        ),
    ],
)
def test_ordinals_with_a_degree_sign_and_kings(language: str, written: str, spoken: str) -> None:
    """A degree sign behind an article is the mark of an ordinal; a name has a number."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        (
            "en",
            "the 80s, in her 20s, mid-80s, 30s, 2m 30s",
            "the eighties, in her twenties, mid-eighties, 30s, 2 minutes 30 seconds",
        ),
        (
            "en",
            'a 55" TV, 3" long, 6\' tall, 5\'6" tall',
            "a 55 inch TV, 3 inches long, 6 feet tall, 5 foot 6 tall",
        ),
        ("en", '"Room 55" is open, the \'80s', '"Room 55" is open, the eighties'),
        (
            "en",
            "a $50 gift card, a $5M round, your $20 credit, a 5 km run",
            "a 50 dollar gift card, a 5 million dollar round, your 20 dollar credit, a 5 "
            "kilometer run",
        ),
        (
            "en",
            "the $50 you paid, $50 gift, $5 million, $3 trillion",
            "the 50 dollars you paid, 50 dollars gift, 5 million dollars, 3 trillion dollars",
        ),
        (
            "pt",
            "R$ 5 milhões, R$ 1 milhão, R$ 3 mil, 5 milhões de pessoas",
            "5 milhões de reais, um milhão de reais, 3 mil reais, 5 milhões de pessoas",
        ),
        (
            "es",
            "$5 millones, $5 mil, 5 millones",
            "5 millones de dólares, 5 mil dólares, 5 millones",
        ),
        ("de", "€5 Millionen, 1 Milliarde €", "5 Millionen Euro, eine Milliarde Euro"),
        ("fr", "5 millions €", "5 millions d'euros"),
        ("it", "5 milioni €", "5 milioni di euro"),
    ],
)
def test_decades_lengths_and_sums(language: str, written: str, spoken: str) -> None:
    """Decades without an apostrophe, one mark of a length, an amount before a noun, and sums."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        (
            "es",
            "1 hora, a la 1:00, 200 personas, 31 días, 1 vez",
            "una hora, a la una, doscientas personas, treinta y un días, una vez",
        ),
        (
            "es",
            "2 horas, 1,5 horas, 1 de enero, opción 1 funciona, 200 €",
            "2 horas, 1,5 horas, 1 de enero, opción 1 funciona, 200 euros",
        ),
        ("it", "1 ora, alle 1:00, 1 minuto, 2 ore", "una ora, alle una, un minuto, 2 ore"),
        (
            "pt",
            "2 horas, 1 dia, às 2:00, 200 pessoas, 2 dias",
            "duas horas, um dia, às duas, duzentas pessoas, 2 dias",
        ),
        (
            "fr",
            "1 heure, 21 jours, 1 an, 1 000 heures",
            "une heure, vingt et un jours, un an, 1 000 heures",
        ),
        ("de", "1 Nachricht, 1 Uhr, 1 Tag, 21 Tage", "eine Nachricht, ein Uhr, ein Tag, 21 Tage"),
        (
            "zh",
            "2点, 2个, 2小时, 12点, 第2个, 2月, 2年级, 3.2个",
            "两点, 两个, 两小时, 12点, 第2个, 2月, 2年级, 3点 2个",
        ),
        ("yue", "2點, 2個", "兩點, 兩個"),
        (
            "ko",
            "2시, 1시 30분, 3명, 20살, 35살, 6월, 10월, 14시, 3개월",
            "두 시, 한 시 30분, 세 명, 스무 살, 서른다섯 살, 유월, 시월, 14시, 3개월",
        ),
        (
            "ja",
            "1人, 1つ, 5月3日, 2人前, 11人, 12月20日",
            "ひとり, ひとつ, 5月みっか, 2人前, 11人, 12月はつか",
        ),
    ],
)
def test_numbers_that_agree(language: str, written: str, spoken: str) -> None:
    """A number agrees with a common noun or counter behind it, and with no other word."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("en", "It ends in 2026.", "It ends in twenty twenty-six."),
        ("en", "Call 911 immediately.", "Call 9 1 1 immediately."),
        ("en", "1234567 + 1 = 1234568", "1234567 + 1 = 1234568"),
        ("en", "The est. cost", "The estimated cost"),
        ("en", "on 1/2 acre, until 3/4 full", "on one half acre, until three quarters full"),
        ("en", "Since 9/11 we", "Since 9 11 we"),
        ("fr", "Taille XXL, espace VIP, Louis XIV", "Taille XXL, espace VIP, Louis 14"),
        ("es", "La mínima es de 1° y", "La mínima es de un grado y"),
        ("it", "Il 3/4 della casa", "Il tre quarti della casa"),
        ("de", "Es geht so-so. Mo-Fr", "Es geht so-so. Montag bis Freitag"),
        ("ja", "定休日 - 日曜日、月-金", "定休日 - 日曜日、月 から 金"),
        ("ko", "할 일 - 일정, 월~금, 3시에", "할 일 - 일정, 월 에서 금, 세 시에"),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_code_or_a_day(language: str, written: str, spoken: str) -> None:
    """What is counted, and a word beside a dash, is read as before."""
    assert digits(written, language) == spoken


@pytest.mark.parametrize(
    ("language", "written"),
    [
        ("en", "The trial ends in 120 minutes. Call 120 people. The code is 250 lines long."),
        ("en", "The population is 8336817 people. Thanks, Max. Hi. It is apt. It is."),
        ("de", "Das kostet unter 120 Euro. Der Code ist 250 Zeilen lang. Hallo Max."),
        ("de", "Es sind 1234567 Einwohner. Am Fr. Passt das?"),
        ("fr", "Bonjour Max. La taille M. Elle vous ira. En 52 av. J.-C."),
        ("es", "Termina en 100 días. Marcó 119 goles. Junto al mar. 2 veces."),
        ("it", "Finisce in 120 minuti. Finisce con 250 clienti. Ciao Max."),
        ("pt", "O preço final é 250 reais. No final 350 casas. Ligaram para 190 pessoas."),
        ("nl", "De code is 250 regels lang. Ik bel 120 klanten. Hallo Max. Dag."),
        ("ja", "コードは500行です。"),
        ("zh", "代码是500行。拨打120次。"),
        ("ko", "코드가 500줄. 3 개발자. 1 시작. 2 개선. 3개국. 제3권."),
    ],
)  # fmt: skip
def test_amounts_are_no_codes(language: str, written: str) -> None:
    """What counts something is a number, whatever stands before it, and a name is a name."""
    assert digits(written, language) == written


@pytest.mark.parametrize(
    "written",
    [
        "I met Mary Lou today.",
        "George Lucas",
        "Charles Ives",
        "William Levy",
        "Class Lists",
        "Act Vancouver",
        "Section L",
        "Part IIII",
        "Charles V. Smith",
        "Thanks George I will",
        "Mary I think so",
        "George I'll come",
        "Class I've had",
        "Book I love",
    ],
)
def test_a_name_is_no_roman_numeral(written: str) -> None:
    """Names that begin as a numeral does, initials and the pronoun stay."""
    assert words(written) == digits(written) == written


def test_a_match_of_which_a_rule_fails_is_said_as_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No turn ends with an error of a rule; the log counts, and does not repeat the text."""
    monkeypatch.setattr(abbreviations, "numeral", _fail)
    logging.getLogger(normalizer.__name__).removeFilter(_raise)
    assert words("Henry VIII ate 5%.") == "Henry VIII ate five percent."
    assert caplog.messages == ["10 characters are said as written: IndexError"]


NUMBERS = "0 7 21 80 99 100 101 1000 1984 2026 12345 007 3.5 0.25 1,234.56 1,000,000 -5 +3".split()
SIGNS = """
3.50 €|0.99 €|25 €|$5|$3.50|£12.99|¥500|100 $|50 %|12.5 %|5-10 %
12 km|1 km|3.5 kg|60 km/h|25 °C|-3 °C|100 GB|250 ml|16 GB
14:30|9:05|0:00|10:00-17:00|2026-11-25|25/11/2026|5/6/2026
+49 30 1234567|(555) 123-4567|0171 2345678|1/2|3/4|24/7|2½|¾
10-15|5 - 3 = 2|2 + 2|3 × 4|6 ÷ 2|a & b|x < 5|me@example.com|www.example.com|v2.0.1
~5|≈5|±5|≤ 5|≥ 5|5 ≠ 6|5 ‰|√2|10^6|2²|10³|⅛|2⅝|16:9|9:30:15|US$20|25 EUR|$5/h|50¢|5-3=2|5−3
"""
ENGLISH = """
Dr. Smith|Mr. and Mrs. Jones|Prof. Lee|Sgt. Pepper|St. James St. is near.|5th Ave.|vs. them
Jan. 5|Mar 5, 2020|5 May|on Sat. at noon|May 3rd|the 1990s|the '80s|in 2026
Chapter IV|Henry VIII|World War II|Part III|10:30 am|5pm|7:05 p.m.|10:00 am
$3.2 billion|$2M|$5-$10|-$5|5'6"|the 21st|No. 5|#12345|pages 10–20|2 - 3 days
e.g. this|i.e. that|etc.|approx. 5|Q&A|AT&T|B2B|COVID-19
"""
UNREAD = re.compile(r"[\d%€$£¥¢°=+×÷@<>½¾⅛±≤≥≠≈‰√^~²³]")


def inputs(locale: Locale) -> list[str]:
    """Numbers and signs with the marks of a language, and abbreviations of English."""
    marks = str.maketrans({".": locale.decimal, ",": locale.group})
    written = NUMBERS + re.split(r"[|\n]", SIGNS.strip())
    for place, each in enumerate(written):
        if re.search(r"\d[.,]\d", each) and not re.search(r"[a-z]\d|/|@", each):
            written[place] = each.translate(marks)
    return written + (re.split(r"[|\n]", ENGLISH.strip()) if locale.language == "en" else [])


WORDED = [
    language for language in LANGUAGES if (locale := locale_of(language)) and locale.writes_numbers
]
"""Languages with words for numbers; voices of the others read digits."""


@pytest.mark.parametrize("language", WORDED)
def test_nothing_is_left_that_a_voice_cannot_read(language: str) -> None:
    """Every one of sixty inputs or more is given in words to a voice that reads letters only."""
    locale = locale_of(language)
    assert locale is not None
    written = set(inputs(locale))
    assert len(written) >= 60
    assert [each for each in written if UNREAD.search(words(each, language))] == []


def spoken_by_word(text: str, language: str = "en") -> list[str]:
    """What is said for each of the client's words."""
    spoken = normalize(said(text, 100, ()), language, reads_digits=False)
    return [
        "".join(
            character
            for character, offset in zip(spoken.text, spoken.offsets, strict=True)
            if word.char_start <= offset < word.char_end
        ).strip()
        for word in split_words(text, 100)
    ]


def test_offsets_are_those_of_what_is_said() -> None:
    """Each word of the client is spoken by the characters that have its offsets."""
    assert spoken_by_word("Pay $42.50 by 2026-11-25 at 5 km.") == [
        "Pay",
        "forty-two dollars and fifty cents",
        "by",
        "November twenty-fifth, twenty twenty-six",
        "at",
        "five",
        "kilometers.",
    ]
    assert spoken_by_word("Louis XIV paid CA$5.50 / month, 16:9.") == [
        "Louis",
        "the fourteenth",
        "paid",
        "five Canadian dollars and fifty cents per",
        "month,",
        "sixteen to nine.",
    ]
    assert spoken_by_word("At 2026-11-25T10:30Z it cost $-5M.") == [
        "At",
        "November twenty-fifth, twenty twenty-six, ten thirty UTC",
        "it",
        "cost",
        "minus five million dollars.",
    ]
    assert spoken_by_word("-3°C, $5", "ja") == ["マイナス 三 度,", "五 ドル"]
    assert spoken_by_word("am 25.11. um 14.30 Uhr", "de") == [
        "am",
        "fünfundzwanzigsten November",
        "um",
        "vierzehn Uhr",
        "dreißig",
    ]


def test_pronunciations_stay() -> None:
    """Text with a pronunciation in IPA is not changed, and its place moves with the text."""
    given = Said("$5 1990s $5", tuple(range(11)), ((range(3, 8), "a"),))
    spoken = normalize(given, "en", reads_digits=True)
    assert spoken.text == "5 dollars 1990s 5 dollars"
    assert spoken.ipa == ((range(10, 15), "a"),)


NUMERIC = st.text(st.sampled_from("0123456789 -−–.,:/$€%°CkmhsUr()+@#&=xTe'’½"), max_size=40)


WRITTEN = """
George Mary Louis Part Class Super Bowl World War Lou Ives Levy Lists I I'm V. L XIV LVIII XL IV
Dr. St. Ave. Jan. Mar May Sept. Sun. Nr. No. n° § ~ ± ≥ ^ = / - – : . , ' ’ ° % ‰ € $ US$ £ ¢
um am Uhr h km m² ½ ⅛ ² er º st th s x 0 1 5 9 10 12 16 25 50 345 678 1990 2026 1,000 3.50 3,50
Mio. M Hr. Mo - Fr. dott.ssa Sig. Std. Av. n. Dr EUR USD janvier Mai noviembre www.x.de a@b.c
"""
GROUPS = st.builds(
    "{}{}".format,
    st.sampled_from(("", "$", "am ", "+", "(")),
    st.builds(
        str.join,
        st.sampled_from("-/.: –,"),
        st.lists(st.from_regex(r"\d{1,4}", fullmatch=True), min_size=2, max_size=4),
    ),
)
NUMERALS = st.builds(
    "{} {}".format,
    st.sampled_from(("Mary", "George", "Part", "Bowl", "Class")),
    st.from_regex(r"[IVXLC]{1,3}[a-z.'’]{0,3}", fullmatch=True),
)
PHRASES = st.lists(
    st.sampled_from(WRITTEN.split()).flatmap(lambda each: st.sampled_from([each, f"{each} "])),
    max_size=12,
).map("".join)


@given(
    NUMERIC | GROUPS | NUMERALS | PHRASES | any_text(),
    st.sampled_from((*LANGUAGES, "de-ch", "es-mx")),
    st.booleans(),
)
def test_any_text(text: str, language: str, reads_digits: bool) -> None:
    """No rule fails; offsets never decrease and stay inside; letters-only text has no digits."""
    cleaned = said(text, 7, ())
    spoken = normalize(cleaned, language, reads_digits=reads_digits)
    assert len(spoken.offsets) == len(spoken.text)
    assert list(spoken.offsets) == sorted(spoken.offsets)
    assert set(spoken.offsets) <= set(cleaned.offsets)
    if not reads_digits and language in WORDED:
        assert not set(spoken.text) & set("0123456789")

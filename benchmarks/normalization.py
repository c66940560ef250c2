"""What is each engine given for numbers, signs and abbreviations, in each language?

Sixty inputs, whose marks are those of the language (decimals, groups, dates), and forty of English
besides. espeak-ng reads digits itself, and so does Kokoro in the languages that espeak reads for
it; Pocket TTS, hibari and Kokoro's English get words. Qwen3-TTS gets what is written. A digit or a
sign that is left for a voice that reads none is counted.

Usage: python -m benchmarks.normalization [--languages en,de] [--text]
"""

import argparse
import re
from collections.abc import Iterator

from benchmarks.common.report import provenance, publish
from voiceagent_tts.text.locales import LANGUAGES, Locale, locale_of
from voiceagent_tts.text.normalizer import normalize
from voiceagent_tts.text.readings import said

_NUMBERS = "0 7 21 80 99 100 101 1000 1984 2026 12345 007 3.5 0.25 1,234.56 1,000,000 -5 +3".split()
_OTHERS = """
3.50 €|0.99 €|25 €|$5|$3.50|£12.99|¥500|100 $
50 %|12.5 %|5-10 %
12 km|1 km|3.5 kg|60 km/h|25 °C|-3 °C|100 GB|250 ml|16 GB
14:30|9:05|0:00|10:00-17:00|2026-11-25|25/11/2026|5/6/2026
+49 30 1234567|(555) 123-4567|0171 2345678
1/2|3/4|24/7|2½|¾
10-15|5 - 3 = 2|2 + 2|3 × 4|6 ÷ 2|a & b|x < 5
me@example.com|www.example.com|v2.0.1
"""
_ENGLISH = """
Dr. Smith|Mr. and Mrs. Jones|Prof. Lee|Sgt. Pepper|St. James St. is near.|5th Ave.|vs. them
Jan. 5|Mar 5, 2020|5 May|on Sat. at noon|May 3rd|the 1990s|the '80s|in 2026
Chapter IV|Henry VIII|World War II|Part III
10:30 am|5pm|7:05 p.m.|10:00 am
$3.2 billion|$2M|$5-$10|-$5
5'6"|the 21st|No. 5|#12345|pages 10–20|2 - 3 days
e.g. this|i.e. that|etc.|approx. 5|Q&A|AT&T|B2B|COVID-19
"""
_UNREAD = re.compile(r"[\d%€$£¥°=+×÷@<>½¾]")


def main() -> None:
    """Print the table, and the counts as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--languages", default=",".join(LANGUAGES), help="codes, with commas")
    parser.add_argument("--text", action="store_true", help="print every input")
    arguments = parser.parse_args()
    results = {}
    for language in arguments.languages.split(","):
        table = list(rows(language))
        if arguments.text:
            print(f"\n{language:24} | {'espeak-ng':40} | Pocket TTS, hibari, Kokoro's English")
            for written, digits, words in table:
                print(f"{written:24} | {digits:40} | {words}")
        unread = [written for written, _, words in table if _UNREAD.search(words)]
        changed = sum(written != words for written, _, words in table)
        results[language] = {"inputs": len(table), "in_words": changed, "unread": unread}
    publish({"languages": results, **provenance()})


def rows(language: str) -> Iterator[tuple[str, str, str]]:
    """Each input, what a voice is given that reads digits, and what one is that does not."""
    locale = locale_of(language)
    assert locale is not None, language
    for written in inputs(locale):
        given = said(written, 0, ())
        digits, words = (
            normalize(given, language, reads_digits=reads_digits).text
            for reads_digits in (True, False)
        )
        yield written, digits, words


def inputs(locale: Locale) -> Iterator[str]:
    """The inputs of a language, with its marks in numbers."""
    marks = str.maketrans({".": locale.decimal, ",": locale.group})
    others = [each for line in _OTHERS.split("\n") for each in line.split("|") if each]
    for each in (*_NUMBERS, *others):
        is_decimal = re.search(r"\d[.,]\d", each) and not re.search(r"[a-z]\d|/|@", each)
        yield each.translate(marks) if is_decimal else each
    if locale.language == "en":
        yield from (each for line in _ENGLISH.split("\n") for each in line.split("|") if each)


if __name__ == "__main__":
    main()

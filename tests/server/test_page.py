"""The page at `/` in a real browser: what sounds, what lights, and what an interruption leaves."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from testbed.browser import (
    PageLog,
    chromium,
    headless,
    lit_words,
    onsets,
    opened,
    recorded_samples,
)
from testbed.server_process import ServerProcess, serving
from voiceagent_tts.core import SAMPLE_RATE_HZ

pytestmark = [
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(chromium() is None, reason="needs Debian's package `chromium`"),
]

OUT = Path(__file__).parents[2] / "out"
WORDS = ["Mellow.", "Raven.", "Lima.", "Venom.", "Yellow.", "Marina."]
"""Each is a sentence, so that a pause shows where the next one begins to sound."""
TWO_FRAMES_S = 0.034
DESKTOP = {"width": 1280, "height": 1000}
PHONE = {"width": 390, "height": 844}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all tests of the module."""
    async with headless() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="module")
async def opening(browser: Browser, served: ServerProcess) -> AsyncIterator[tuple[Page, PageLog]]:
    """The page in a tab of its own, with its voices loaded."""
    async with opened(browser, served.url, viewport=DESKTOP) as (page, log):
        await expect(page.get_by_label("Hear default")).to_be_visible()
        yield page, log
        assert log.errors == []


async def speak(page: Page, text: str) -> None:
    """Type a text and press Speak."""
    await page.get_by_label("Text to speak").fill(text)
    await page.get_by_role("button", name="Speak", exact=True).click()


async def spoken_to_the_end(page: Page) -> None:
    """Wait until the last sample has left the loudspeaker."""
    await expect(page.get_by_text("Spoken to the end.")).to_be_visible(timeout=20_000)


async def interrupt_within(page: Page, word: str, after_ms: int) -> None:
    """Press Interrupt, from within the page, some time after `word` has lit."""
    await page.evaluate(
        """([word, afterMs]) => {
            const click = () => document.getElementById("interrupt").click();
            window.whenLit = { word, act: () => setTimeout(click, afterMs) };
        }""",
        [word, after_ms],
    )


def message(lines: list[str], kind: str) -> dict[str, Any]:
    """The one message of a type among those of a socket."""
    messages = [json.loads(line) for line in lines if line.startswith("{")]
    (found,) = [each for each in messages if each["type"] == kind]
    return found


async def test_words_light_when_they_sound(opening: tuple[Page, PageLog]) -> None:
    """Each word lights within 50 ms of its sound, as the samples show that the page played.

    A word that should light while the machine stalls the browser for more than two animation
    frames says nothing about the page; most words are not of this kind.
    """
    page, _ = opening
    await speak(page, " ".join(WORDS))
    await spoken_to_the_end(page)
    first, samples = await recorded_samples(page)
    lit = await lit_words(page)
    assert [each.word for each in lit] == WORDS
    heard = [first + onset for onset in onsets(samples)]
    assert len(heard) == len(WORDS)
    late_s = [
        (each.frame - frame) / SAMPLE_RATE_HZ
        for each, frame in zip(lit, heard, strict=True)
        if each.gap_s < TWO_FRAMES_S
    ]
    assert len(late_s) >= len(WORDS) // 2
    assert all(abs(late) <= 0.05 for late in late_s), late_s


@pytest.mark.parametrize(
    ("rest", "answer"),
    [
        pytest.param(", and nobody will listen to the end of it." * 6, "cancelled", id="cancel"),
        pytest.param(", and all of it was sent.", "cut", id="cut"),
    ],
)
async def test_an_interruption_shows_what_the_server_reports(
    opening: tuple[Page, PageLog], rest: str, answer: str
) -> None:
    """In mid-word: heard and unheard text are the server's, and `played_ms` is what sounded.

    A short reply has been sent in full by then: the page asks for a cut instead.
    """
    page, log = opening
    text = f"This reply is extraordinarily long{rest}"
    await interrupt_within(page, "extraordinarily", 150)
    await speak(page, text)
    await expect(page.locator("#history")).to_be_visible(timeout=20_000)
    reported = message(log.received, answer)
    assert reported["partial"] and reported["text_spoken"].endswith("extraordinarily")
    assert await page.locator("#heard").text_content() == reported["text_spoken"]
    assert await page.locator("#unheard").text_content() == reported["text_remaining"]
    assert await page.locator("#sent").text_content() == text
    assert (await lit_words(page))[-1].word == "extraordinarily"
    _, samples = await recorded_samples(page)
    sounding = samples.nonzero()[0]
    audible = sounding[-1] - sounding[0]
    asked = message(log.sent, "cancel" if answer == "cancelled" else "cut")
    assert abs(audible - asked["played_ms"] * SAMPLE_RATE_HZ / 1000) < 0.01 * SAMPLE_RATE_HZ
    await page.screenshot(path=OUT / f"page-{answer}.png", full_page=True)


async def test_the_space_bar_interrupts_a_scripted_llm(opening: tuple[Page, PageLog]) -> None:
    """The reply is not written to its end, and the whole of it is shown as what others commit."""
    page, log = opening
    await page.get_by_text("A scripted LLM").click()
    await page.get_by_role("button", name="Speak", exact=True).click()
    await expect(page.locator(".word.heard").nth(4)).to_be_visible(timeout=20_000)
    await page.screenshot(path=OUT / "page-speaking.png")
    await page.keyboard.press("Space")
    await expect(page.locator("#history")).to_be_visible()
    heard, sent, whole = [
        str(await page.locator(each).text_content()) for each in ("#heard", "#sent", "#whole")
    ]
    assert heard and len(heard) < len(sent) < len(whole)
    assert whole.startswith(sent) and sent.startswith(heard)
    assert sent == "".join(json.loads(line)["text"] for line in log.sent if '"type":"text"' in line)


async def test_the_page_loads_nothing_from_elsewhere(opening: tuple[Page, PageLog]) -> None:
    """All that the pages load, and every socket, is this server's."""
    page, log = opening
    own = urlsplit(page.url).netloc
    await page.goto(f"{page.url}docs")
    await expect(page.get_by_text("/v1/audio/speech", exact=True)).to_be_visible()
    assert {urlsplit(url).netloc for url in log.urls} == {own}
    await page.locator("summary").first.click()
    await page.screenshot(path=OUT / "page-api.png", full_page=True)


async def test_a_server_with_keys_asks_for_one(browser: Browser) -> None:
    """A wrong key is asked for again; the right one is kept for the tab."""
    with serving(api_keys="page-key") as server:
        async with opened(browser, server.url, viewport=DESKTOP) as (page, _):
            dialog = page.get_by_role("dialog")
            await expect(dialog).to_be_visible()
            await page.screenshot(path=OUT / "page-key.png")
            await dialog.get_by_label("API key").fill("wrong")
            await dialog.get_by_label("API key").press("Enter")
            await expect(dialog.get_by_role("alert")).to_contain_text("does not know this key")
            await dialog.get_by_label("API key").fill("page-key")
            await dialog.get_by_label("API key").press("Enter")
            await expect(page.get_by_label("Hear default")).to_be_visible()
            await speak(page, "The key is right.")
            await spoken_to_the_end(page)
            await page.reload()
            await expect(page.get_by_label("Hear default")).to_be_visible()
            await expect(dialog).not_to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_fits_a_phone(browser: Browser, served: ServerProcess, scheme: str) -> None:
    """Nothing is wider than the screen, and both buttons stay in reach while it speaks."""
    options = {"viewport": PHONE, "color_scheme": scheme, "is_mobile": True, "has_touch": True}
    async with opened(browser, served.url, **options) as (page, log):
        await expect(page.get_by_label("Hear default")).to_be_attached()
        await speak(page, "Your table for four is booked for Friday at half past seven.")
        await expect(page.locator(".word.heard").nth(5)).to_be_visible(timeout=20_000)
        await expect(page.get_by_role("button", name="Interrupt")).to_be_in_viewport()
        await page.screenshot(path=OUT / f"page-phone-{scheme}.png")
        await page.get_by_role("button", name="Interrupt").tap()
        await expect(page.locator("#history")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        await page.screenshot(path=OUT / f"page-phone-{scheme}-cut.png", full_page=True)
        assert log.errors == []

"""The page at `/` in a real browser: what sounds, what lights, and what an interruption leaves."""

import contextlib
import json
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from testbed.browser import PageLog, headless, lit_words, onsets, opened, recorded_samples
from testbed.server_process import ServerProcess, serving
from voiceagent_tts.core import SAMPLE_RATE_HZ

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

OUT = Path(__file__).parents[3] / "out"
WORDS = ["Mellow.", "Raven.", "Lima.", "Venom.", "Yellow.", "Marina."]
"""Each is a sentence, so that a pause shows where the next one begins to sound."""
REFERENCE = Path(__file__).parents[2] / "reference"
DOCS = Path(__file__).parents[3] / "docs"
OTHER_NAME = "tts.test"
"""A name of this machine that a browser takes for another one."""
STALL_S = 0.045
"""Time between animation frames above which the machine has stalled the browser."""
DESKTOP = {"width": 1280, "height": 1000}
PHONE = {"width": 390, "height": 844}
KEY = "a-key-for-the-page"


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


@contextlib.asynccontextmanager
async def page_of(
    browser: Browser, **settings: Any
) -> AsyncIterator[tuple[ServerProcess, Page, PageLog]]:
    """A server of its own with these settings, and its page, with its voices loaded."""
    with serving(**settings) as server:
        async with opened(browser, server.url, viewport=DESKTOP) as (page, log):
            await expect(page.get_by_label("Hear default")).to_be_visible()
            yield server, page, log


@pytest.fixture(scope="module")
def locked() -> Iterator[ServerProcess]:
    """A server that needs a key."""
    with serving(api_keys=KEY) as server:
        yield server


async def give_key(page: Page, key: str = KEY) -> None:
    """Write a key into the dialog, and press Enter."""
    field = page.get_by_label("API key", exact=True)
    await field.fill(key)
    await field.press("Enter")


async def speak(page: Page, text: str) -> None:
    """Type a text and press Speak."""
    await page.get_by_label("Text to speak").fill(text)
    await page.get_by_role("button", name="Speak", exact=True).click()


async def spoken_to_the_end(page: Page) -> None:
    """Wait until the last sample has left the loudspeaker."""
    await expect(page.get_by_text("Spoken to the end.")).to_be_visible(timeout=20_000)


async def interrupt_at(page: Page, word: str) -> None:
    """Press Interrupt, from within the page, as soon as `word` lights."""
    await page.evaluate(
        """(word) => {
            const act = () => document.getElementById("interrupt").click();
            window.whenLit = { word, act };
        }""",
        word,
    )


def sounding_samples(samples: np.ndarray[Any, Any]) -> int:
    """From the first sample to the last one that sound: a word may be cut within its silence."""
    sounding = samples.nonzero()[0]
    return int(sounding[-1] - sounding[0])


def message(lines: list[str], kind: str) -> dict[str, Any]:
    """The one message of a type among those of a socket."""
    messages = [json.loads(line) for line in lines if line.startswith("{")]
    (found,) = [each for each in messages if each["type"] == kind]
    return found


async def test_words_light_when_they_sound(opening: tuple[Page, PageLog]) -> None:
    """Each word lights within 50 ms of its sound, as the samples show that the page played."""
    page, _ = opening
    late_s = await measured_delays_s(page)
    assert all(abs(late) <= 0.05 for late in late_s), late_s


async def test_words_light_when_they_sound_after_underruns(browser: Browser) -> None:
    """An engine slower than speech leaves gaps, which the page counts; words light after them."""
    async with page_of(browser, throttle='{"rtf": 1.2}') as (_, page, _):
        late_s = await measured_delays_s(page)
        assert all(abs(late) <= 0.05 for late in late_s), late_s
        assert int(str(await page.locator("#underruns").text_content())) > 3


async def measured_delays_s(page: Page) -> list[float]:
    """Speak `WORDS`; return the times from the sound of a word to its light.

    A word that should light while the machine stalls the browser says nothing about the page. The
    words are spoken again until enough are not of this kind; also if an underrun was as long as a
    pause, so that the sounds cannot be told apart.
    """
    late_s: list[float] = []
    for _ in range(6):
        await page.evaluate("Object.assign(recorded, { blocks: [], lit: [] })")
        await speak(page, " ".join(WORDS))
        await expect(page.get_by_text("Speaking.", exact=True)).to_be_visible(timeout=20_000)
        await spoken_to_the_end(page)
        first, samples = await recorded_samples(page)
        heard = [first + onset for onset in onsets(samples)]
        lit = await lit_words(page)
        words = [each.word for each in lit]
        assert words == [word for word in WORDS if word in words], "words light once, in order"
        if len(heard) == len(WORDS):
            sound = dict(zip(WORDS, heard, strict=True))
            late_s += [
                (each.frame - sound[each.word]) / SAMPLE_RATE_HZ
                for each in lit
                if each.gap_s < STALL_S
            ]
        if len(late_s) >= 4:
            return late_s
    raise AssertionError(f"the machine stalls the browser all the time: {lit}, {heard}")


@pytest.mark.parametrize(
    ("rest", "answer"),
    [
        pytest.param(", and nobody will listen" * 12 + " to it.", "cancelled", id="cancel"),
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
    await interrupt_at(page, "extraordinarily")
    await speak(page, text)
    await expect(page.locator("#history")).to_be_visible(timeout=20_000)
    reported = message(log.received, answer)
    assert reported["partial"] and reported["text_spoken"].endswith("extraordinarily")
    assert await page.locator("#heard").text_content() == reported["text_spoken"]
    assert await page.locator("#unheard").text_content() == reported["text_remaining"]
    assert await page.locator("#sent").text_content() == text
    assert (await lit_words(page))[-1].word == "extraordinarily"
    _, samples = await recorded_samples(page)
    asked = message(log.sent, "cancel" if answer == "cancelled" else "cut")
    sent = np.frombuffer(log.pcm, np.int16)[: asked["played_ms"] * SAMPLE_RATE_HZ // 1000]
    assert abs(sounding_samples(samples) - sounding_samples(sent)) < 0.01 * SAMPLE_RATE_HZ
    await page.screenshot(path=OUT / f"page-{answer}.png", full_page=True)


async def test_a_lexicon_and_tags_are_sent(opening: tuple[Page, PageLog]) -> None:
    """Lines of the lexicon, and the box for tags; words stay those of the text."""
    page, log = opening
    await page.get_by_text("Say it right").click()
    await page.get_by_label("Words and how they are said").fill("nginx = engine x\n\nUS=/juː ɛs/")
    await page.get_by_label("Tags in the text").check()
    await speak(page, 'Use nginx <break time="100ms"/> now.')
    await spoken_to_the_end(page)
    opened = message(log.sent, "context.open")
    assert opened["lexicon"] == {"nginx": "engine x", "US": "/juː ɛs/"}
    assert opened["markup"] is True
    await expect(page.get_by_role("alert")).to_be_hidden()


async def test_the_space_bar_interrupts_a_scripted_llm(opening: tuple[Page, PageLog]) -> None:
    """The reply is not written to its end, and the whole of it is shown as what others commit."""
    page, log = opening
    await page.get_by_text("A scripted LLM").click()
    await page.get_by_role("button", name="Speak", exact=True).click()
    await expect(page.locator(".word.heard").nth(4)).to_be_visible(timeout=20_000)
    await page.keyboard.press("Space")
    await expect(page.locator("#history")).to_be_visible()
    heard, sent, whole = [
        str(await page.locator(each).text_content()) for each in ("#heard", "#sent", "#whole")
    ]
    assert heard and len(heard) < len(sent) < len(whole)
    assert whole.startswith(sent) and sent.startswith(heard)
    assert sent == "".join(json.loads(line)["text"] for line in log.sent if '"type":"text"' in line)


async def test_an_error_stays_and_the_state_says_so(opening: tuple[Page, PageLog]) -> None:
    """The first error is shown, whatever follows from it, until the next speech."""
    page, _ = opening
    await page.evaluate(
        """() => {
            const send = WebSocket.prototype.send;
            WebSocket.prototype.send = function (data) {
                WebSocket.prototype.send = send;
                this.addEventListener("message", ({ data: answer }) => {
                    const { type, context_id } = JSON.parse(answer);
                    const late = JSON.stringify({ type: "text", context_id, text: "x" });
                    if (type === "error") send.call(this, late);
                }, { once: true });
                send.call(this, data.replace('"voice":"default"', '"voice":"nobody"'));
            };
        }"""
    )
    await speak(page, "One.")
    await expect(page.get_by_text("Ended by an error.")).to_be_visible(timeout=20_000)
    await expect(page.get_by_role("alert")).to_contain_text("got 'nobody'")
    await speak(page, "Two.")
    await expect(page.get_by_role("alert")).to_be_hidden()
    await spoken_to_the_end(page)


async def test_a_lost_server_is_found_again(browser: Browser, free_port: int) -> None:
    """The page says that it looks for it; then it has its name and voices, and speaks."""
    async with page_of(browser, port=str(free_port)) as (server, page, _):
        named = str(await page.locator("#server").text_content())
        await lose(server, page)
        await speak(page, "Nobody is there.")
        await expect(page.get_by_text("Not spoken.")).to_be_visible(timeout=20_000)
        with serving(port=str(free_port)):
            await expect(page.locator("#server")).to_have_text(named, timeout=30_000)
            await expect(page.get_by_role("alert")).to_be_hidden()
            await speak(page, "There it is.")
            await spoken_to_the_end(page)


async def lose(server: ServerProcess, page: Page) -> None:
    """End the server of a page, which notices."""
    server.process.terminate()
    server.process.wait()
    await expect(page.locator("#server")).to_contain_text("looking for the server")


async def test_the_keyboard_passes_the_voices_quickly(opening: tuple[Page, PageLog]) -> None:
    """Of all the buttons that let a voice be heard, Tab stops at that of the chosen voice."""
    page, _ = opening
    stops = page.locator("#voices button:not([tabindex='-1'])")
    await expect(stops).to_have_count(1)
    await page.get_by_role("radio", name="nova", exact=False).first.check()
    await expect(stops).to_have_count(1)
    await expect(stops).to_have_attribute("aria-label", "Hear nova")


@pytest.mark.parametrize("focused", ["#speed", "input[value=nova]", "#change-key"])
async def test_the_space_bar_interrupts_wherever_the_focus_is(
    opening: tuple[Page, PageLog], focused: str
) -> None:
    """Sliders and radios have no use of their own for it, and buttons have Enter.

    Neither a key that was pressed before the speech began nor Escape within an input method does.
    """
    page, _ = opening
    await speak(page, "This reply is long, and nobody will listen to the end of it. " * 4)
    await expect(page.locator(".word.heard").nth(1)).to_be_visible(timeout=20_000)
    await page.evaluate("document.getElementById('change-key').hidden = false")
    await page.locator(focused).focus()
    for key in ({"key": " ", "repeat": True}, {"key": "Escape", "isComposing": True}):
        await page.evaluate(
            """(key) => document.body.dispatchEvent(
                new KeyboardEvent("keydown", { ...key, bubbles: true }))""",
            key,
        )
        await expect(page.locator("#interrupt")).to_be_enabled()
    await page.keyboard.press("Space")
    await expect(page.locator("#history")).to_be_visible()


async def test_a_paused_replay_goes_on_as_a_replay(opening: tuple[Page, PageLog]) -> None:
    """The state is that of before the pause."""
    page, _ = opening
    await speak(page, "One, two, three, four.")
    await spoken_to_the_end(page)
    await page.get_by_role("button", name="Play again").click()
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_text("Paused.")).to_be_visible()
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_text("Playing again.")).to_be_visible()
    await expect(page.get_by_text("Played again.")).to_be_visible(timeout=20_000)


async def test_a_server_that_does_not_answer_is_named_and_can_be_left(browser: Browser) -> None:
    """Escape ends the wait, and the next speech is heard."""
    with contextlib.ExitStack() as going_on:
        async with page_of(browser) as (server, page, _):
            await speak(page, "One.")
            await spoken_to_the_end(page)
            await page.clock.install()
            server.process.send_signal(signal.SIGSTOP)
            going_on.callback(server.process.send_signal, signal.SIGCONT)
            await speak(page, "Two.")
            await expect(page.get_by_text("Waiting for the server.")).to_be_visible()
            await page.clock.run_for(9_000)
            await expect(page.get_by_role("alert")).to_have_text("The server does not answer.")
            await page.keyboard.press("Escape")
            await page.clock.run_for(3_000)
            await expect(page.get_by_role("button", name="Speak", exact=True)).to_be_enabled()
            going_on.close()
            await page.clock.resume()
            await speak(page, "Three.")
            await spoken_to_the_end(page)


async def test_sound_is_paused_made_quieter_and_sought(opening: tuple[Page, PageLog]) -> None:
    """A pause loses nothing; half the volume is half the level; a replay begins where asked."""
    page, _ = opening
    await speak(page, "One, two, three, four.")
    await expect(page.locator(".word.heard").first).to_be_visible(timeout=20_000)
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_text("Paused.")).to_be_visible()
    await page.get_by_role("button", name="Resume").click()
    await spoken_to_the_end(page)
    _, whole = await recorded_samples(page)
    assert len(await page.locator(".word.heard").all()) == 4
    await page.evaluate("recorded.blocks = []")
    await page.get_by_label("Volume").fill("0.5")
    length = int(await page.locator("#seek").get_attribute("max") or 0)
    await page.locator("#seek").fill(str(length // 2 // 2400 * 2400))
    await page.locator("#seek").dispatch_event("change")
    await expect(page.get_by_text("Played again.")).to_be_visible(timeout=20_000)
    _, rest = await recorded_samples(page)
    sought = [np.trim_zeros(samples) for samples in (whole, rest)]
    assert 0.3 < len(sought[1]) / len(sought[0]) < 0.6
    half = sought[0][-len(sought[1]) :] / 2
    assert np.abs(half - sought[1]).max() < 0.01


async def test_the_page_loads_nothing_from_elsewhere(opening: tuple[Page, PageLog]) -> None:
    """All that the pages load, and every socket, is this server's."""
    page, log = opening
    own = urlsplit(page.url).netloc
    await page.goto(f"{page.url}docs")
    await expect(page.get_by_text("/v1/audio/speech", exact=True)).to_be_visible()
    assert {urlsplit(url).netloc for url in log.urls} == {own}


async def test_a_server_with_keys_asks_for_one(browser: Browser, locked: ServerProcess) -> None:
    """A wrong key is asked for again; the right one is kept for the tab."""
    async with opened(browser, locked.url, viewport=DESKTOP) as (page, _):
        dialog = page.get_by_role("dialog")
        await give_key(page, "wrong")
        await expect(dialog.get_by_role("alert")).to_contain_text("does not know this key")
        await give_key(page)
        await expect(page.get_by_label("Hear default")).to_be_visible()
        await speak(page, "The key is right.")
        await spoken_to_the_end(page)
        await page.reload()
        await expect(page.get_by_label("Hear default")).to_be_visible()
        await expect(dialog).not_to_be_visible()


async def test_the_dialog_of_the_key_can_be_left(browser: Browser, locked: ServerProcess) -> None:
    """Escape keeps the key of before, whatever is half typed, and the page offers to ask again."""
    async with opened(browser, locked.url, viewport=DESKTOP) as (page, _):
        dialog = page.get_by_role("dialog")
        field = dialog.get_by_label("API key")
        stored = "Object.values(sessionStorage)"
        await field.fill("a-key-f")
        await field.press("Escape")
        await expect(page.get_by_role("alert")).to_contain_text("needs an API key")
        await expect(dialog).not_to_be_visible()
        assert await page.evaluate(stored) == []
        await page.get_by_role("button", name="API key").click()
        await expect(field).to_have_value("")
        await give_key(page)
        await expect(page.get_by_label("Hear default")).to_be_visible()
        await page.get_by_role("button", name="API key").click()
        await field.fill("another")
        await field.press("Escape")
        await expect(dialog).not_to_be_visible()
        assert await page.evaluate(stored) == [KEY]
        await speak(page, "The key is as before.")
        await spoken_to_the_end(page)


async def test_the_page_fits_a_phone(browser: Browser, served: ServerProcess) -> None:
    """Nothing is wider than the screen, and both buttons stay in reach while it speaks."""
    options = {"viewport": PHONE, "color_scheme": "dark", "is_mobile": True, "has_touch": True}
    async with opened(browser, served.url, **options) as (page, log):
        await expect(page.get_by_label("Hear default")).to_be_attached()
        await speak(page, "Your table for four is booked for Friday at half past seven.")
        await expect(page.locator(".word.heard").nth(5)).to_be_visible(timeout=20_000)
        await expect(page.get_by_role("button", name="Interrupt")).to_be_in_viewport()
        await page.screenshot(path=OUT / "page-phone-dark.png")
        await page.get_by_role("button", name="Interrupt").tap()
        await expect(page.locator("#history")).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert log.errors == []


async def test_a_voice_is_cloned_and_designed_on_the_page(browser: Browser, tmp_path: Path) -> None:
    """The microphone is recorded; an uploaded file becomes a voice, is listed, heard, removed."""
    models = ",".join(str(REFERENCE / name) for name in ("base-0b6", "voice_design-1b7"))
    settings = {"threads": "1", "aligner": "off", "voices_folder": str(tmp_path)}
    with serving(engine="qwen3", models=models, **settings) as server:
        async with opened(browser, server.url, viewport=DESKTOP) as (page, log):
            await expect(page.get_by_label("Hear designed")).to_be_visible()
            await expect(page.get_by_label("Describe the voice")).to_be_visible()
            await page.get_by_text("Clone a voice").click()
            await page.get_by_text("Design a voice").click()
            form = page.locator("#clone")
            await form.get_by_role("button", name="Record").click()
            await expect(form.get_by_role("status")).to_have_text(re.compile(r"Recording: [1-9]"))
            await form.get_by_role("button", name="Stop recording").click()
            await expect(form.get_by_role("status")).to_have_text(re.compile(r"Recorded \d"))
            await form.get_by_label("Name").fill("Anna")
            await form.get_by_label("3 to 30 s").set_input_files(REFERENCE / "reference.wav")
            await form.get_by_label("What is said in it").fill("quick brown fox")
            clone = form.get_by_role("button", name="Clone")
            await clone.click()
            assert not log.sent_requests("POST"), "without consent nothing is sent"
            await form.get_by_label("has agreed to this clone").check()
            await clone.click()
            await expect(form.get_by_role("status")).to_have_text(
                re.compile(r"Cloning the voice: [1-9]\d* s")
            )
            await expect(form.get_by_role("status")).to_contain_text(
                "The voice anna is ready.", timeout=100_000
            )
            await expect(page.get_by_role("radio", name="anna clone")).to_be_checked()
            async with page.expect_download() as saving:
                await page.get_by_label("Save anna as a file").click()
            assert (await saving.value).suggested_filename == "anna.safetensors"
            await page.get_by_label("Hear anna").click()
            await expect(page.locator("#first-audio")).to_contain_text("ms", timeout=60_000)
            page.on("dialog", lambda dialog: dialog.accept())
            await page.get_by_label("Remove anna").click()
            await expect(page.get_by_label("Hear anna")).not_to_be_attached()
            assert log.errors == []


@pytest_asyncio.fixture(loop_scope="module")
async def designing(opening: tuple[Page, PageLog]) -> tuple[Page, PageLog]:
    """The page of a server that, as it says, can clone and design voices; it sounds as espeak."""
    page, log = opening

    async def list_voices(route: Route) -> None:
        answer = await (await route.fetch()).json()
        answer["voices"][0]["needs_instruct"] = True
        await route.fulfill(json={**answer, "can_clone": True, "can_design": True})

    await page.route("**/v1/audio/voices", list_voices)
    await page.reload()
    await page.get_by_text("Clone a voice").click()
    await page.get_by_text("Design a voice").click()
    return page, log


WATCH_MICROPHONE = """() => {
    const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
    window.allowed = Promise.withResolvers();
    window.tracks = [];
    navigator.mediaDevices.getUserMedia = async (options) => {
        await allowed.promise;
        const stream = await ask(options);
        tracks.push(...stream.getTracks());
        return stream;
    };
}"""
"""The microphone as the page gets it, after the answer to a question for permission."""
TRACK_STATES = "tracks.map(({ readyState }) => readyState)"


async def test_the_microphone_is_off_after_the_recording(designing: tuple[Page, PageLog]) -> None:
    """A second click while the browser asks for permission starts no second recording."""
    page, _ = designing
    await page.evaluate(WATCH_MICROPHONE)
    status = page.locator("#clone-result")
    await page.get_by_role("button", name="Record").click()
    await page.get_by_role("button", name="Record").click()
    await page.evaluate("allowed.resolve()")
    await expect(status).to_have_text(re.compile(r"Recording: \d"))
    await page.get_by_role("button", name="Stop recording").click()
    await expect(status).to_have_text(re.compile(r"Recorded \d"))
    assert await page.evaluate(TRACK_STATES) == ["ended"]


async def test_the_microphone_is_off_where_a_recording_cannot_start(
    designing: tuple[Page, PageLog],
) -> None:
    """The recorder does not load, as the server is away: a sentence says so."""
    page, _ = designing
    await page.evaluate(WATCH_MICROPHONE)
    await page.evaluate("allowed.resolve()")
    await page.evaluate(
        "() => void (AudioWorklet.prototype.addModule = () => Promise.reject(Error('not loaded')))"
    )
    await page.get_by_role("button", name="Record").click()
    await expect(page.locator("#clone-result")).to_have_text(
        "The recording cannot start: not loaded"
    )
    assert await page.evaluate(TRACK_STATES) == ["ended"]


async def test_the_designed_voice_that_was_heard_is_kept(designing: tuple[Page, PageLog]) -> None:
    """Not one that did not sound, as another speech did, nor one of another description."""
    page, log = designing
    asked: list[Any] = []

    async def keep(route: Route) -> None:
        asked.append(route.request.post_data_json)
        await route.fulfill(json={"id": "nova", "warnings": []})

    await page.route("**/v1/audio/voices/design", keep)
    hear = page.get_by_role("button", name="Hear such a voice")
    clone = page.get_by_role("button", name="Clone the design")
    status = page.locator("#design-result")
    await page.get_by_label("Keep the last one").fill("Anna")
    await clone.click()
    await expect(status).to_contain_text("Hear this voice first")
    await page.get_by_label("Sample text").fill("Good evening.")
    await hear.click()
    await spoken_to_the_end(page)
    seed = message(log.sent, "context.open")["seed"]
    await speak(page, "Another speech, which is long enough. " * 4)
    await expect(page.get_by_text("Speaking.", exact=True)).to_be_visible(timeout=20_000)
    await hear.click()
    await page.keyboard.press("Escape")
    await expect(page.locator("#history")).to_be_visible()
    await clone.click()
    await expect(status).to_contain_text("is ready")
    assert [each["seed"] for each in asked] == [seed]
    await page.get_by_label("Describe it").fill("An old man.")
    await clone.click()
    await expect(status).to_contain_text("Hear this voice first")
    assert len(asked) == 1


async def test_boxes_of_words_stand_where_their_sound_is(opening: tuple[Page, PageLog]) -> None:
    """Also far into a text: the box of a word begins at the playhead of its first sample."""
    page, _ = opening
    box, playhead = await page.evaluate(
        """async () => {
            const { Waveform } = await import("/static/waveform.js");
            const drawn = {};
            for (const name of ["roundRect", "fillRect"]) {
                CanvasRenderingContext2D.prototype[name] = (x) => (drawn[name] = x);
            }
            const waveform = new Waveform(document.getElementById("waveform"));
            waveform.addSamples(new Float32Array(60 * 24000));
            waveform.addWords([{ text: "word", startMs: 55_000, endMs: 56_000 }]);
            waveform.moveTo(55 * 24000);
            return [drawn.roundRect, drawn.fillRect + 1];
        }"""
    )
    assert abs(box - playhead) < 0.01


async def test_a_long_text_is_sent_as_the_server_has_room(browser: Browser) -> None:
    """Text beyond `max_text_chars` waits in the page, and all of it is spoken."""
    async with page_of(browser, max_text_chars="300") as (_, page, log):
        await page.locator("#speed").fill("4")
        text = "These words are many, and each of them is spoken in its turn. " * 10
        await speak(page, text)
        await expect(page.get_by_text("Spoken to the end.")).to_be_visible(timeout=60_000)
        await expect(page.get_by_role("alert")).to_be_hidden()
        sent = [json.loads(line) for line in log.sent]
        pieces = [each["text"] for each in sent if each["type"] == "text"]
        assert "".join(pieces) == text and max(map(len, pieces)) <= 75


async def test_an_interruption_while_the_sound_starts_sends_nothing(
    opening: tuple[Page, PageLog],
) -> None:
    """The page has what it needs, and the loudspeaker is about to start."""
    page, log = opening
    await page.evaluate(
        """async () => {
            const { Player } = await import("/static/player.js");
            const start = Player.prototype.start;
            Player.prototype.start = async function (...rest) {
                const playback = await start.apply(this, rest);
                document.getElementById("interrupt").click();
                return playback;
            };
        }"""
    )
    await speak(page, "Nobody hears this.")
    await expect(page.get_by_text("Not spoken.")).to_be_visible(timeout=20_000)
    assert [line for line in log.sent if '"context.open"' in line] == []


async def test_a_text_without_speech_is_named(opening: tuple[Page, PageLog]) -> None:
    """Nothing sounds for a picture alone, and the page does not say that it was spoken."""
    page, _ = opening
    await speak(page, "😀")
    await expect(page.get_by_text("There was nothing to speak")).to_be_visible(timeout=20_000)


async def test_a_dialog_keeps_its_keys(opening: tuple[Page, PageLog]) -> None:
    """Ctrl+Enter there does not speak."""
    page, _ = opening
    await page.evaluate("document.getElementById('change-key').hidden = false")
    await page.get_by_role("button", name="API key").click()
    await page.get_by_role("dialog").get_by_label("API key").press("Control+Enter")
    await expect(page.locator("#speak")).to_be_enabled()
    await expect(page.get_by_text("Ready.")).to_be_visible()


async def test_the_focus_on_pause_goes_to_speak_at_the_end(opening: tuple[Page, PageLog]) -> None:
    """A button that is disabled keeps no focus: the next key would act nowhere."""
    page, _ = opening
    await speak(page, "One.")
    await page.locator("#pause").focus()
    await spoken_to_the_end(page)
    await expect(page.locator("#speak")).to_be_focused()


async def test_the_focus_on_interrupt_goes_to_speak(opening: tuple[Page, PageLog]) -> None:
    """A key that interrupts acts on Speak next, also where the server takes its time to answer."""
    page, _ = opening
    await page.evaluate(
        """() => {
            const { send } = WebSocket.prototype;
            WebSocket.prototype.send = function (data) {
                const isCancel = typeof data === "string" && data.includes('"cancel"');
                setTimeout(() => send.call(this, data), isCancel ? 200 : 0);
            };
        }"""
    )
    await speak(page, "Mellow. " * 8)
    await expect(page.get_by_text("Speaking.")).to_be_visible()
    await page.locator("#interrupt").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#speak")).to_be_focused()


async def test_an_insecure_page_says_what_to_do(browser: Browser, locked: ServerProcess) -> None:
    """Over HTTP from another machine there is no sound, and the page names the option."""
    url = locked.url.replace("127.0.0.1", OTHER_NAME)
    async with opened(browser, url, viewport=DESKTOP) as (page, _):
        await give_key(page)
        await expect(page.get_by_label("Hear default")).to_be_visible()
        await expect(page.locator("#alert")).to_contain_text("--ssl-self-signed")
        await speak(page, "Nobody hears this.")
        await expect(page.locator("#alert")).to_contain_text("--ssl-self-signed")


async def test_a_self_signed_page_speaks(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over HTTPS from another machine it sounds, once the browser accepts the certificate."""
    monkeypatch.setenv("HOME", str(tmp_path))
    with serving(api_keys=KEY, ssl_self_signed="true") as server:
        url = server.url.replace("127.0.0.1", OTHER_NAME)
        options = {"viewport": DESKTOP, "ignore_https_errors": True}
        async with opened(browser, url, **options) as (page, _):
            await give_key(page)
            await expect(page.get_by_label("Hear default")).to_be_visible()
            await speak(page, "This is heard.")
            await spoken_to_the_end(page)


async def test_what_was_heard_is_saved(opening: tuple[Page, PageLog]) -> None:
    """WAV and SRT end where the reply was interrupted, and MP3 holds the text until there."""
    page, log = opening
    await interrupt_at(page, "three.")
    await speak(page, "One, two, three. And here comes a long rest that nobody hears. " * 3)
    await expect(page.locator("#history")).to_be_visible(timeout=20_000)
    files: dict[str, bytes] = {}
    for name in ("WAV", "MP3", "SRT"):
        async with page.expect_download() as saving:
            await page.get_by_role("button", name=name).click()
        files[name] = Path(await (await saving.value).path()).read_bytes()
    played_ms = message(log.sent, "cancel")["played_ms"]
    assert abs(len(files["WAV"]) - 44 - played_ms * 48) < 100
    assert files["MP3"][:3] == b"ID3" or files["MP3"][0] == 0xFF
    assert b"three." in files["SRT"] and b"rest" not in files["SRT"]
    (request,) = log.sent_requests("POST")
    assert request.endswith("/v1/audio/speech")


async def add_example(page: Page) -> None:
    """Add the functions `speak` and `interrupt` of docs/browser.md to the page."""
    (code,) = re.findall(r"```js\n(.*?)```", (DOCS / "browser.md").read_text(), re.DOTALL)
    code = code.replace("export ", "") + "Object.assign(window, { speak, interrupt });"
    await page.add_script_tag(type="module", content=code)
    await page.wait_for_function("typeof speak === 'function'")


@pytest.mark.parametrize(
    ("rest", "answer"),
    [
        pytest.param(" And nobody hears the rest." * 9, "cancelled", id="cancel"),
        pytest.param(" And nobody hears the rest.", "cut", id="cut"),
    ],
)
async def test_the_example_of_the_documentation_speaks(
    opening: tuple[Page, PageLog], rest: str, answer: str
) -> None:
    """The code in docs/browser.md speaks, names the sounding word, and says what was heard.

    A short reply has been sent in full by then.
    """
    page, log = opening
    await add_example(page)
    await page.evaluate("(text) => void speak(text)", f"One, two, three.{rest}")
    await page.wait_for_function("document.title === 'three.'")
    async with page.expect_console_message(timeout=5_000) as printed:
        await page.evaluate("interrupt()")
    assert (await printed.value).text == "heard: One, two, three."
    assert message(log.received, answer)["text_spoken"] == "One, two, three."


async def test_a_context_is_forgotten_when_the_server_no_longer_answers(
    opening: tuple[Page, PageLog],
) -> None:
    """For 120 s after `done` a `cut` is answered; then the listener and what it holds are free."""
    page, _ = opening
    await page.clock.install()
    await page.evaluate(
        """async () => {
            const { TtsSocket } = await import("/static/socket.js");
            window.tts = await TtsSocket.connect(new URL("/v1/tts/ws", location.href), null);
            window.sound = { done: Promise.withResolvers(), cut: Promise.withResolvers() };
            const listener = {
                audio: () => {},
                done: (message) => sound.done.resolve(message),
                cut: (message) => sound.cut.resolve(message.text_spoken),
            };
            window.kept = new WeakRef(listener);
            window.context = tts.open({}, listener);
            context.text("One.");
            context.end();
        }"""
    )
    assert (await page.evaluate("sound.done.promise"))["reason"] == "complete"
    await page.clock.run_for(115_000)
    assert await page.evaluate("context.cut(9000), sound.cut.promise") == "One."
    await page.clock.run_for(6_000)
    assert await page.evaluate("context.isReachable") is False
    await page.evaluate("delete window.context")
    await page.request_gc()
    assert await page.evaluate("kept.deref() === undefined")

"""Open the server's page in headless Chromium; record what it plays, and when its words light."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from playwright.async_api import Browser, ConsoleMessage, Page, Request, WebSocket, async_playwright

from testbed.missing import require_program
from voiceagent_tts.core import SAMPLE_RATE_HZ
from voiceagent_tts.protocol.messages import AUDIO_HEADER

_ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--autoplay-policy=no-user-gesture-required", "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    # A name for this machine that browsers do not treat as this machine.
    "--host-resolver-rules=MAP tts.test 127.0.0.1",
)  # fmt: skip

# Beside every worklet that the page connects to the loudspeaker, a second one copies its samples
# with their frame. A word is recorded when it lights, with the output's clock at that moment.
_RECORDER = """
const recorder = `
  class Recorder extends AudioWorkletProcessor {
    process([[samples]]) {
      if (samples) this.port.postMessage({ frame: currentFrame, samples: samples.slice() });
      return true;
    }
  }
  registerProcessor("recorder", Recorder);
`;
window.recorded = { blocks: [], lit: [], frames: [] };
let context = null;
const addModule = AudioWorklet.prototype.addModule;
AudioWorklet.prototype.addModule = async function (url) {
  await addModule.call(this, url);
  const module = new Blob([recorder], { type: "text/javascript" });
  await addModule.call(this, URL.createObjectURL(module));
};
const connect = AudioNode.prototype.connect;
AudioNode.prototype.connect = function (target, ...rest) {
  if (this instanceof AudioWorkletNode && target === this.context.destination) {
    context = this.context;
    const node = new AudioWorkletNode(context, "recorder");
    node.port.onmessage = ({ data }) =>
      recorded.blocks.push([data.frame, Array.from(data.samples)]);
    connect.call(this, node);
    connect.call(node, target);
  }
  return connect.call(this, target, ...rest);
};
const observer = new MutationObserver((changes) => {
  for (const { target, oldValue } of changes) {
    const isNew = !(oldValue ?? "").includes("sounding");
    if (!isNew || !target.classList.contains("sounding")) continue;
    const { contextTime, performanceTime } = context.getOutputTimestamp();
    const elapsed = contextTime + (performance.now() - performanceTime) / 1000;
    const heardAt = Math.min(elapsed, context.currentTime); // later samples are not computed yet
    const recent = [...recorded.frames.slice(-4), performance.now()];
    const gapMs = Math.max(...recent.slice(1).map((at, i) => at - recent[i]));
    const frame = heardAt * context.sampleRate;
    recorded.lit.push({ word: target.textContent, frame, gapMs });
    if (window.whenLit?.word === target.textContent) window.whenLit.act();
  }
});
addEventListener("DOMContentLoaded", () => {
  const transcript = document.getElementById("transcript") ?? document.body;
  const attributes = { attributes: true, attributeFilter: ["class"], attributeOldValue: true };
  observer.observe(transcript, { subtree: true, ...attributes });
  // Not the frame's own timestamp, which is early where the machine runs the callback late.
  const tick = () => { recorded.frames.push(performance.now()); requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
});
"""


@dataclass(frozen=True, slots=True)
class LitWord:
    """A word that lit.

    Attributes:
        word: its text.
        frame: frame of the AudioContext that was audible at that moment.
        gap_s: longest time between the last animation frames: where the machine stalls the browser.
    """

    word: str
    frame: float
    gap_s: float


@dataclass  # without slots: Playwright adds attributes to the owner of a handler
class PageLog:
    """What a page did: its requests, its errors, and the messages of its WebSockets.

    Attributes:
        pcm: the samples that its WebSockets received, in order.
    """

    urls: list[str] = field(default_factory=list[str])
    requests: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    errors: list[str] = field(default_factory=list[str])
    sent: list[str] = field(default_factory=list[str])
    received: list[str] = field(default_factory=list[str])
    pcm: bytearray = field(default_factory=bytearray)

    def watch(self, page: Page) -> None:
        page.on("request", self._on_request)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._on_console)
        page.on("websocket", self._watch_socket)

    def sent_requests(self, method: str) -> list[str]:
        return [url for each, url in self.requests if each == method]

    def _on_request(self, request: Request) -> None:
        self.urls.append(request.url)
        self.requests.append((request.method, request.url))

    def _on_console(self, line: ConsoleMessage) -> None:
        if line.type == "error":
            self.errors.append(line.text)

    def _watch_socket(self, socket: WebSocket) -> None:
        self.urls.append(socket.url)
        socket.on("framesent", lambda data: self.sent.append(str(data)))
        socket.on("framereceived", self._on_message)

    def _on_message(self, data: str | bytes) -> None:
        if isinstance(data, bytes):
            self.pcm += data[AUDIO_HEADER.size :]
        else:
            self.received.append(data)


@contextlib.asynccontextmanager
async def headless() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=require_program("chromium"), args=_ARGUMENTS
        )
        yield browser
        await browser.close()


@contextlib.asynccontextmanager
async def opened(browser: Browser, url: str, **options: Any) -> AsyncIterator[tuple[Page, PageLog]]:
    """Open `url` in a browser context of its own; `options` are those of `new_context`."""
    # The recorder's worklet comes from a blob, which the page's security policy refuses.
    context = await browser.new_context(bypass_csp=True, **options)
    try:
        await context.add_init_script(_RECORDER)
        page, log = await context.new_page(), PageLog()
        log.watch(page)
        await page.goto(url)
        yield page, log
    finally:
        await context.close()


async def lit_words(page: Page) -> list[LitWord]:
    lit = await page.evaluate("recorded.lit")
    return [LitWord(each["word"], each["frame"], each["gapMs"] / 1000) for each in lit]


async def recorded_samples(page: Page) -> tuple[int, npt.NDArray[np.float32]]:
    """Return what the page has played: the frame of the first sample, and the samples."""
    blocks = await page.evaluate("recorded.blocks")
    first = blocks[0][0]
    samples = np.zeros(blocks[-1][0] + len(blocks[-1][1]) - first, np.float32)
    for frame, block in blocks:
        samples[frame - first : frame - first + len(block)] = block
    return first, samples


def onsets(samples: npt.NDArray[np.float32]) -> list[int]:
    """Return the samples at which sound begins after at least 0.2 s of silence."""
    window = SAMPLE_RATE_HZ // 400  # 2.5 ms
    levels = np.abs(samples[: len(samples) // window * window]).reshape(-1, window).max(axis=1)
    is_loud = levels > 0.02
    found: list[int] = []
    quiet = round(0.2 * SAMPLE_RATE_HZ / window)
    last_loud = -quiet
    for index in np.flatnonzero(is_loud):
        if index - last_loud >= quiet:
            found.append(int(index) * window)
        last_loud = int(index)
    return found

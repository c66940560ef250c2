// What is spoken: its words, its waveform and its measurements, on every animation frame.

import { SAMPLE_RATE_HZ } from "./player.js";
import { Transcript } from "./transcript.js";
import { Waveform } from "./waveform.js";

// What an animation frame draws is seen at the next refresh of the screen.
const UNTIL_SEEN_MS = 16;

const $ = (id) => document.getElementById(id);

export class Stage {
  #waveform = new Waveform($("waveform"));
  #transcript = null;
  #playback = null;

  // Empties the stage for another utterance.
  clear() {
    this.#transcript = new Transcript($("transcript"));
    this.#transcript.reset();
    this.#waveform.clear();
    for (const meter of $("meters").querySelectorAll("dd")) meter.textContent = "–";
  }

  // Makes every word unlit, to play the same utterance again.
  rewind() {
    this.#transcript.reset();
    this.#waveform.rewind();
  }

  text(piece) {
    this.#transcript.append(piece);
  }

  words(words) {
    this.#transcript.addWords(words);
    this.#waveform.addWords(words);
  }

  samples(samples) {
    this.#waveform.addSamples(samples);
  }

  firstAudio(ms) {
    $("first-audio").textContent = `${ms.toFixed(0)} ms`;
  }

  // Shows what the server warns of; the speech goes on.
  warning(sentence) {
    $("alert").hidden = false;
    $("alert").textContent = sentence;
  }

  // Lights the words of a playback until it is over or another one is followed.
  follow(playback) {
    this.#playback = playback;
    const draw = () => {
      if (this.#playback !== playback) return;
      this.#draw(playback);
      if (!playback.isOver) requestAnimationFrame(draw);
    };
    requestAnimationFrame(draw);
  }

  // Shows that nothing after this sample will be heard.
  cut(sample) {
    this.#transcript.light(sample);
    this.#transcript.cut();
    this.#waveform.moveTo(sample);
    this.#waveform.cut();
  }

  #draw(playback) {
    const sample = playback.audibleSample(performance.now() + UNTIL_SEEN_MS);
    this.#transcript.light(sample);
    this.#waveform.moveTo(sample);
    $("lead").textContent = `${((playback.received - sample) / SAMPLE_RATE_HZ).toFixed(1)} s`;
    $("underruns").textContent = playback.underruns;
    $("played").textContent = `${(sample / SAMPLE_RATE_HZ).toFixed(1)} s`;
  }
}

// The text of an utterance, whose words light while they sound.

import { SAMPLE_RATE_HZ } from "./player.js";

const SAMPLES_PER_MS = SAMPLE_RATE_HZ / 1000;

export class Transcript {
  #element;
  #codePoints = []; // the text: offsets of the protocol count code points, strings count UTF-16 units
  #words = []; // {element, start, end}, in samples; `end` is that of the next word where unknown
  #rest = span("rest", ""); // text after the last word whose time is known
  #restStart = 0;
  #lit = 0; // words whose start has been reached

  constructor(element) {
    this.#element = element;
    element.replaceChildren(this.#rest);
  }

  append(text) {
    this.#codePoints.push(...text);
    this.#rest.textContent += text;
  }

  addWords(words) {
    for (const word of words) {
      const element = span("word", this.#slice(word.charStart, word.charEnd));
      const piece = span("piece", this.#slice(this.#restStart, word.charStart));
      piece.append(element);
      this.#rest.before(piece);
      this.#restStart = word.charEnd;
      const start = word.startMs * SAMPLES_PER_MS;
      const last = this.#words.at(-1);
      if (last && last.end === null) last.end = start;
      const end = word.endMs === null ? null : word.endMs * SAMPLES_PER_MS;
      this.#words.push({ element, start, end });
    }
    this.#rest.textContent = this.#slice(this.#restStart);
  }

  // Lights the words up to a sample; the one that sounds differs from those that have sounded.
  light(sample) {
    while (this.#lit < this.#words.length && this.#words[this.#lit].start < sample) {
      this.#words[this.#lit - 1]?.element.classList.remove("sounding");
      const { element } = this.#words[this.#lit];
      element.classList.add("heard", "sounding");
      this.#keepVisible(element);
      this.#lit += 1;
    }
    const last = this.#words[this.#lit - 1];
    if (last && last.end !== null && sample >= last.end) last.element.classList.remove("sounding");
  }

  // Makes every word unlit, to be played again.
  reset() {
    for (const { element } of this.#words) element.classList.remove("heard", "sounding");
    this.#element.classList.remove("cut");
    this.#lit = 0;
  }

  // Shows that nothing after the lit words will be heard.
  cut() {
    this.#words[this.#lit - 1]?.element.classList.remove("sounding");
    this.#element.classList.add("cut");
  }

  // Scrolls the transcript alone: `scrollIntoView` would move the page under the reader.
  #keepVisible(element) {
    const below = element.offsetTop + element.offsetHeight - this.#element.clientHeight;
    if (below > this.#element.scrollTop) this.#element.scrollTop = below + element.offsetHeight;
    if (element.offsetTop < this.#element.scrollTop) this.#element.scrollTop = element.offsetTop;
  }

  #slice(start, end) {
    return this.#codePoints.slice(start, end).join("");
  }
}

function span(className, textContent) {
  return Object.assign(document.createElement("span"), { className, textContent });
}

// The waveform of an utterance with a box for each word. It scrolls along with the playback, and by
// hand afterwards.

import { SAMPLE_RATE_HZ } from "./player.js";

const SAMPLES_PER_COLUMN = 171; // about 140 columns a second
const LABEL_HEIGHT = 22;
const PLAYHEAD_AT = 0.6; // share of the width that shows what has been heard

export class Waveform {
  #box;
  #canvas;
  #spacer;
  #peaks = []; // loudest sample of each column
  #inColumn = 0;
  #words = [];
  #sample = 0;
  #isCut = false;

  constructor(box) {
    this.#box = box;
    this.#canvas = box.querySelector("canvas");
    this.#spacer = box.querySelector(".spacer");
    box.addEventListener("scroll", () => this.#draw());
    new ResizeObserver(() => this.#draw()).observe(box);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  clear() {
    this.#peaks = [];
    this.#inColumn = 0;
    this.#words = [];
    this.#spacer.style.width = "0";
    this.rewind();
  }

  rewind() {
    this.#sample = 0;
    this.#isCut = false;
    this.#box.scrollLeft = 0;
    this.#draw();
  }

  addSamples(samples) {
    for (const sample of samples) {
      if (this.#inColumn === 0) this.#peaks.push(0);
      const last = this.#peaks.length - 1;
      this.#peaks[last] = Math.max(this.#peaks[last], Math.abs(sample));
      this.#inColumn = (this.#inColumn + 1) % SAMPLES_PER_COLUMN;
    }
    this.#spacer.style.width = `${this.#peaks.length}px`;
  }

  addWords(words) {
    const toColumn = (ms) => (ms * SAMPLE_RATE_HZ) / 1000 / SAMPLES_PER_COLUMN;
    for (const { text, startMs, endMs } of words) {
      const last = this.#words.at(-1);
      if (last && last.end === null) last.end = toColumn(startMs);
      this.#words.push({ text, start: toColumn(startMs), end: endMs === null ? null : toColumn(endMs) });
    }
  }

  moveTo(sample) {
    this.#sample = sample;
    const column = sample / SAMPLES_PER_COLUMN;
    this.#box.scrollLeft = Math.max(0, column - this.#box.clientWidth * PLAYHEAD_AT);
    this.#draw();
  }

  // Shows that nothing after the playhead will be heard.
  cut() {
    this.#isCut = true;
    this.#draw();
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.#box;
    const scale = devicePixelRatio;
    if (this.#canvas.width !== width * scale || this.#canvas.height !== height * scale) {
      this.#canvas.width = width * scale;
      this.#canvas.height = height * scale;
    }
    const pen = this.#canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(this.#box);
    const color = (name) => style.getPropertyValue(`--${name}`);
    const left = this.#box.scrollLeft;
    const playhead = this.#sample / SAMPLES_PER_COLUMN;
    this.#drawBoxes(pen, left, width, height, playhead, color);
    this.#drawPeaks(pen, left, width, height, playhead, color);
    if (this.#peaks.length > 0) {
      pen.fillStyle = color(this.#isCut ? "accent" : "ink");
      pen.fillRect(playhead - left - 1, 0, 2, height);
    }
  }

  #drawBoxes(pen, left, width, height, playhead, color) {
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.textBaseline = "middle";
    for (const { text, start, end } of this.#words) {
      const right = end ?? this.#peaks.length;
      if (right < left || start > left + width) continue;
      const isSounding = start < playhead && playhead < right && !this.#isCut;
      const [x, boxWidth] = [start - left, Math.max(2, right - start - 2)];
      pen.fillStyle = color(isSounding ? "sounding" : "box");
      pen.beginPath();
      pen.roundRect(x, 0, boxWidth, height, 4);
      pen.fill();
      pen.save();
      pen.clip();
      pen.fillStyle = color(isSounding ? "on-sounding" : start < playhead ? "ink" : "muted");
      pen.fillText(text, x + 4, LABEL_HEIGHT / 2);
      pen.restore();
    }
  }

  #drawPeaks(pen, left, width, height, playhead, color) {
    const middle = LABEL_HEIGHT + (height - LABEL_HEIGHT) / 2;
    const loudest = (height - LABEL_HEIGHT) / 2 - 4;
    const first = Math.floor(left);
    for (let column = first; column < Math.min(first + width, this.#peaks.length); column++) {
      const size = Math.max(0.5, Math.sqrt(this.#peaks[column]) * loudest);
      pen.fillStyle = color(column < playhead ? "wave-heard" : "wave");
      pen.fillRect(column - left, middle - size, 1, 2 * size);
    }
  }
}

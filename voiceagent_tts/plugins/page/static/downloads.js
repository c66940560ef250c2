// Files of what was heard: WAV and SRT are made here.

import { SAMPLE_RATE_HZ } from "./player.js";

const MAX_CUE_CHARS = 42; // one line of a television subtitle
const MAX_CUE_MS = 6000;
const UNKNOWN_END_MS = 300;
const SENTENCE_END = /[.!?。！？]$/;

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// A mono PCM16 WAV file; `chunks` are Float32Arrays in [-1, 1].
export function wavOf(chunks, rateHz = SAMPLE_RATE_HZ) {
  const samples = chunks.reduce((sum, chunk) => sum + chunk.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * samples));
  const write = (offset, text) => {
    for (let i = 0; i < text.length; i++) view.setUint8(offset + i, text.charCodeAt(i));
  };
  write(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples, true);
  write(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true); // PCM
  view.setUint16(22, 1, true); // mono
  view.setUint32(24, rateHz, true);
  view.setUint32(28, rateHz * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  write(36, "data");
  view.setUint32(40, 2 * samples, true);
  let offset = 44;
  for (const chunk of chunks) {
    for (const sample of chunk) {
      const clipped = Math.max(-1, Math.min(1, sample));
      view.setInt16(offset, Math.min(32767, Math.round(clipped * 32768)), true);
      offset += 2;
    }
  }
  return new Blob([view], { type: "audio/wav" });
}

export function srtOf(words) {
  const blocks = cuesOf(words).map(
    (cue, i) => `${i + 1}\n${time(cue.startMs)} --> ${time(cue.endMs)}\n${cue.text}\n`,
  );
  return new Blob([blocks.join("\n")], { type: "application/x-subrip" });
}

function cuesOf(words) {
  const cues = [];
  let cue = [];
  const finish = () => {
    if (cue.length > 0) cues.push(cueOf(cue));
    cue = [];
  };
  for (const word of words) {
    const { text, startMs, endMs } = cueOf([...cue, word]);
    if (text.length > MAX_CUE_CHARS || endMs - startMs > MAX_CUE_MS) finish();
    cue.push(word);
    if (SENTENCE_END.test(word.text)) finish();
  }
  finish();
  return cues;
}

function cueOf(words) {
  let text = "";
  words.forEach((word, i) => {
    // Chinese and Japanese words follow each other directly; others have white space between.
    const touches = i === 0 || words[i - 1].charEnd === word.charStart;
    text += touches ? word.text : ` ${word.text}`;
  });
  const last = words.at(-1);
  const endMs = last.endMs ?? last.startMs + UNKNOWN_END_MS;
  return { text: text.replace(/\s+/g, " "), startMs: words[0].startMs, endMs };
}

function time(ms) {
  const pad = (number, digits = 2) => String(number).padStart(digits, "0");
  const seconds = Math.floor(ms / 1000);
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return `${pad(hours)}:${pad(minutes)}:${pad(seconds % 60)},${pad(ms % 1000, 3)}`;
}

// One utterance: its context on the server, its playback, and what is known of both.

import { SAMPLE_RATE_HZ } from "./player.js";

const CUT_MS = 2000; // longest wait for the server's answer what was heard
const PIECE_CHARS = 2000; // of one message
const ROOM_MS = 5000; // without a word, after which more is sent: punctuation alone yields no words

const State = Object.freeze({
  SPEAKING: "speaking",
  INTERRUPTING: "interrupting", // the sound has stopped, and the server's answer has not come
  INTERRUPTED: "interrupted",
  COMPLETE: "complete",
});

export class Utterance {
  #context;
  #playback;
  #view;
  #sentAt = null; // performance.now() of the first text
  #cut = Promise.withResolvers(); // the server's answer to cancel or cut
  #stoppedAtMs = null; // what was heard, when it is interrupted
  #audioMs = Infinity; // length of the audio, when all text is spoken
  #begun = Promise.withResolvers();
  #over = Promise.withResolvers();
  #state = State.SPEAKING;
  #words = [];
  #maxWaitingChars; // sent, without their words yet; the server counts until their audio has left
  #hasRoom = Promise.withResolvers(); // until more words come, or the end
  #chunks = []; // Float32Arrays of the received audio
  text = ""; // sent so far
  heardText = null; // when it is over
  played = null; // samples that were heard, when it is over
  error = null;

  // `view` has text(piece), words(list), samples(chunk), firstAudio(ms) and warning(sentence), called
  // as they come.
  constructor(socket, playback, options, view) {
    this.#playback = playback;
    this.#view = view;
    this.#maxWaitingChars = Math.floor(socket.ready.limits.max_text_chars / 2);
    this.#context = socket.open(options, {
      words: ({ words }) => this.#onWords(words),
      audio: (samples) => this.#onAudio(samples),
      cancelled: (message) => this.#cut.resolve(message),
      cut: (message) => this.#cut.resolve(message),
      warning: ({ message }) => this.#view.warning(message),
      error: ({ message }) => this.#onError(message),
      done: (message) => this.#onDone(message),
      lost: () => this.#answerCut(),
    });
  }

  get isInterrupted() {
    return this.#state === State.INTERRUPTED;
  }

  // The audio that was heard.
  heardChunks() {
    let start = 0;
    return this.#chunks.map((chunk) => {
      const heard = chunk.subarray(0, Math.max(0, this.played - start));
      start += chunk.length;
      return heard;
    });
  }

  // The words that were heard, with their times.
  get heardWords() {
    return this.#words.filter(({ startMs }) => startMs < msOf(this.played));
  }

  write(piece) {
    if (this.#context.isDone || this.#state !== State.SPEAKING) return;
    this.#sentAt ??= performance.now();
    this.text += piece;
    this.#context.text(piece);
    this.#view.text(piece);
  }

  // Writes a text of any length, as the server has room for it, and ends it.
  async writeAll(text) {
    const codePoints = [...text];
    const length = Math.ceil(Math.min(PIECE_CHARS, this.#maxWaitingChars / 2));
    for (let start = 0; start < codePoints.length; start += length) {
      await this.#roomAfter(start);
      this.write(codePoints.slice(start, start + length).join(""));
    }
    this.end();
  }

  end() {
    if (!this.#context.isDone && this.#state === State.SPEAKING) this.#context.end();
  }

  // Resolves when the first audio has come, if any does.
  async begun() {
    await this.#begun.promise;
  }

  // Resolves when the last sample has left the loudspeaker, or the utterance was interrupted.
  async finished() {
    await this.#over.promise;
  }

  // Stops the sound, then the server. Returns {heard, unheard, playedMs}, as the server reports; or
  // as the words that have come say, if it does not answer.
  async interrupt() {
    this.#state = State.INTERRUPTING;
    this.#hasRoom.resolve();
    const played = await this.#playback.stop();
    const playedMs = Math.round(msOf(played));
    this.#stoppedAtMs = playedMs;
    if (this.#context.isDone) this.#askForCut();
    else this.#context.cancel(playedMs);
    setTimeout(() => this.#answerCut(), CUT_MS);
    const { text_spoken: heard, text_remaining: unheard } = await this.#cut.promise;
    await this.#playback.finished();
    this.#finish(State.INTERRUPTED, played, heard);
    return { heard, unheard, playedMs };
  }

  async #roomAfter(sentChars) {
    const mustWait = () => sentChars - (this.#words.at(-1)?.charEnd ?? 0) > this.#maxWaitingChars;
    while (!this.#context.isDone && this.#state === State.SPEAKING && mustWait()) {
      this.#hasRoom = Promise.withResolvers();
      const timer = setTimeout(() => this.#hasRoom.resolve("late"), ROOM_MS);
      const answer = await this.#hasRoom.promise;
      clearTimeout(timer);
      if (answer === "late") return;
    }
  }

  #onWords(words) {
    const last = this.#words.at(-1);
    if (last && last.endMs === null) last.endMs = words[0].startMs;
    this.#words.push(...words);
    this.#hasRoom.resolve();
    this.#view.words(words);
  }

  #onAudio(samples) {
    if (this.#state !== State.SPEAKING) return;
    if (this.#chunks.length === 0) {
      this.#begun.resolve();
      this.#view.firstAudio(performance.now() - this.#sentAt);
    }
    this.#chunks.push(samples.slice());
    this.#view.samples(samples);
    this.#playback.push(samples); // takes the buffer
  }

  #onError(message) {
    this.error ??= message; // those after it follow from it
    this.#answerCut();
  }

  async #onDone({ reason, words_final, audio_ms }) {
    this.#hasRoom.resolve();
    if (reason === "complete" || reason === "idle") this.#audioMs = audio_ms;
    if (this.#state === State.INTERRUPTING) {
      // A cancel that crosses the end of its context is not answered, but a cut is.
      if (this.#stoppedAtMs !== null && reason !== "cancelled") this.#askForCut();
      return;
    }
    if (words_final) this.#refine(words_final);
    this.#playback.complete();
    const played = await this.#playback.finished();
    if (this.#state === State.SPEAKING) this.#finish(State.COMPLETE, played, this.text);
  }

  #askForCut() {
    if (this.#context.isReachable) this.#context.cut(this.#stoppedAtMs);
    else this.#answerCut();
  }

  // Answers an interruption for a server that no longer does, by the word times that have arrived.
  #answerCut() {
    if (this.#stoppedAtMs !== null) this.#cut.resolve(this.#computeCut());
  }

  #computeCut() {
    if (this.#stoppedAtMs >= this.#audioMs) return { text_spoken: this.text, text_remaining: "" };
    const last = this.#words.findLast(({ startMs }) => startMs < this.#stoppedAtMs);
    const codePoints = [...this.text];
    const heard = codePoints.slice(0, last?.charEnd ?? 0).join("");
    return { text_spoken: heard, text_remaining: this.text.slice(heard.length) };
  }

  // Final times, for the subtitles: the transcript has used those that came in time.
  #refine({ start_ms, end_ms }) {
    this.#words.forEach((word, i) => {
      [word.startMs, word.endMs] = [start_ms[i], end_ms[i]];
    });
  }

  #finish(state, played, heardText) {
    this.#state = state;
    this.played = played;
    this.heardText = heardText;
    this.#context.forget();
    this.#over.resolve();
  }
}

function msOf(samples) {
  return (1000 * samples) / SAMPLE_RATE_HZ;
}

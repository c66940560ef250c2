// The client's end of tts.v1 (docs/protocol.md): contexts over one WebSocket.

import { answered } from "./answered.js";

const PROTOCOL = "tts.v1";
const HEADER_BYTES = 16;
const AUDIO = 1;
const PING_MS = 4000;
const MEMORY_MS = 120_000; // how long the server answers `cut` after `done`

export class TtsSocket {
  #socket;
  #contexts = new Map(); // id -> Context
  #handles = new Map(); // handle -> Context
  #opened = 0;
  #owesAnswer = false;
  #isSilent = false;
  acceptsContexts = false;
  onLost = null; // called once when the server has closed the connection
  onSilence = null; // called with whether the server leaves pings without an answer

  // Connects, and resolves when the server is ready. `url` is the address of tts.v1; `key` is null
  // for servers without keys.
  static async connect(url, key) {
    const protocols = key === null ? [PROTOCOL] : [PROTOCOL, `bearer.${key}`];
    const tts = new TtsSocket();
    const ready = Promise.withResolvers();
    tts.#socket = new WebSocket(String(url).replace(/^http/, "ws"), protocols);
    tts.#socket.binaryType = "arraybuffer";
    tts.#socket.onmessage = ({ data }) => {
      tts.#onAnswer();
      if (typeof data !== "string") return tts.#onAudio(data);
      const message = JSON.parse(data);
      if (message.type === "ready") {
        tts.acceptsContexts = true;
        ready.resolve(message);
      }
      tts.#onMessage(message);
    };
    tts.#socket.onclose = ({ code, reason }) => {
      const error = new Error(reason || `the server closed the connection (${code})`);
      ready.reject(error);
      tts.#onClose(error);
    };
    try {
      tts.ready = await answered(ready.promise);
    } catch (error) {
      tts.#socket.close();
      throw error;
    }
    return tts;
  }

  // Pings the server until `signal` is aborted; `onSilence` is told of pings that stay unanswered.
  watch(signal) {
    this.#owesAnswer = this.#isSilent = false;
    const timer = setInterval(() => this.#ping(), PING_MS);
    signal.addEventListener("abort", () => clearInterval(timer), { once: true });
  }

  #ping() {
    if (!this.isOpen) return;
    if (this.#owesAnswer && !this.#isSilent) this.onSilence?.((this.#isSilent = true));
    this.#owesAnswer = true;
    this.send({ type: "ping", t: Math.round(performance.now()) });
  }

  #onAnswer() {
    this.#owesAnswer = false;
    if (this.#isSilent) this.onSilence?.((this.#isSilent = false));
  }

  // Opens a context. `options` are the fields of context.open; `listener` has methods named
  // after what comes: words, audio, warning, cancelled, cut, done, error; and `lost`, for a context
  // that was done when the connection was lost. The context and its listener are forgotten when the
  // server no longer answers `cut`, or at `forget`.
  open(options, listener) {
    const context = new Context(`page-${++this.#opened}`, this, listener);
    this.#contexts.set(context.id, context);
    this.send({ type: "context.open", context_id: context.id, ...options });
    return context;
  }

  get isOpen() {
    return this.#socket.readyState === WebSocket.OPEN;
  }

  send(message) {
    this.#socket.send(JSON.stringify(message));
  }

  close() {
    this.onLost = null;
    this.acceptsContexts = false;
    this.#socket.close(1000);
  }

  // Passes nothing more to the listener of a context.
  forget(context) {
    clearTimeout(context.forgetting);
    this.#contexts.delete(context.id);
    this.#handles.delete(context.handle);
  }

  knows(context) {
    return this.#contexts.has(context.id);
  }

  #onAudio(data) {
    const header = new DataView(data, 0, HEADER_BYTES);
    if (header.getUint8(0) !== AUDIO) return;
    const context = this.#handles.get(header.getUint16(2, true));
    context?.listener.audio(toFloat(data, HEADER_BYTES));
  }

  #onMessage(message) {
    const context = this.#contexts.get(message.context_id);
    if (!context) {
      if (message.type === "draining") this.acceptsContexts = false;
      return;
    }
    if (message.type === "context.opened") {
      context.handle = message.handle;
      this.#handles.set(message.handle, context);
    }
    if (message.type === "done") {
      context.isDone = true;
      context.forgetting = setTimeout(() => this.forget(context), MEMORY_MS);
    }
    if (message.type === "words") message = wordsOf(message);
    context.listener[message.type]?.(message);
  }

  #onClose(error) {
    this.acceptsContexts = false;
    for (const context of this.#contexts.values()) {
      this.forget(context);
      if (context.isDone) {
        context.listener.lost?.();
        continue;
      }
      context.isDone = true;
      context.listener.error({ message: error.message });
      context.listener.done({ reason: "error" });
    }
    this.onLost?.();
  }
}

class Context {
  #socket;
  handle = null; // its number in audio messages
  isDone = false;
  forgetting = null; // the timer that ends its memory

  constructor(id, socket, listener) {
    this.id = id;
    this.#socket = socket;
    this.listener = listener;
  }

  // Whether the server can still answer.
  get isReachable() {
    return this.#socket.isOpen && this.#socket.knows(this);
  }

  text(text) {
    this.#send({ type: "text", text });
  }

  end() {
    this.#send({ type: "end" });
  }

  cancel(played_ms) {
    this.#send({ type: "cancel", played_ms });
  }

  cut(played_ms) {
    this.#send({ type: "cut", played_ms });
  }

  // Says that nothing more will be asked, so that what its listener holds is free.
  forget() {
    this.#socket.forget(this);
  }

  #send(fields) {
    this.#socket.send({ context_id: this.id, ...fields });
  }
}

function toFloat(data, start) {
  const pcm = new DataView(data, start);
  const samples = new Float32Array(pcm.byteLength / 2);
  for (let i = 0; i < samples.length; i++) samples[i] = pcm.getInt16(2 * i, true) / 32768;
  return samples;
}

// A `words` message as a list of words, instead of parallel lists.
function wordsOf({ type, words, start_ms, end_ms, char_start, char_end, exact }) {
  const list = words.map((text, i) => ({
    text,
    startMs: start_ms[i],
    endMs: end_ms[i],
    charStart: char_start[i],
    charEnd: char_end[i],
    isExact: exact[i],
  }));
  return { type, words: list };
}

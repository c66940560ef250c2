// Plays utterances through an AudioWorklet, and tells which sample leaves the loudspeaker now.

export const SAMPLE_RATE_HZ = 24000;

// Why this page cannot play, and what to do; null if it can.
export function obstacle() {
  if (window.isSecureContext) return null;
  return (
    `A browser plays this server's audio only on a secure page, and ${location.origin} is not ` +
    "one. Start the server with --ssl-self-signed and open it with https://, or forward its port " +
    `(ssh -L ${location.port}:localhost:${location.port} HOST) and open ` +
    `http://localhost:${location.port}.`
  );
}

export class Player {
  #context;

  // Returns a player; call it from a click or a key press, or the browser keeps the audio silent.
  static async create() {
    if (obstacle()) throw new Error(obstacle());
    const player = new Player();
    // At the rate of the server the browser resamples once, at its output, and a frame is a sample.
    player.#context = new AudioContext({ sampleRate: SAMPLE_RATE_HZ, latencyHint: "interactive" });
    await player.#context.audioWorklet.addModule(new URL("player-worklet.js", import.meta.url));
    return player;
  }

  async start() {
    if (this.#context.state !== "running") await this.#context.resume();
    return new Playback(this.#context);
  }
}

export class Playback {
  #context;
  #node;
  #stretches = []; // {frame, sample, end}: sound without a gap, in frames of the AudioContext
  #ended = Promise.withResolvers();
  received = 0; // samples
  underruns = 0;
  isOver = false; // whether the last sample has left the loudspeaker

  constructor(context) {
    this.#context = context;
    this.#node = new AudioWorkletNode(context, "player", {
      numberOfInputs: 0,
      outputChannelCount: [1],
    });
    this.#node.port.onmessage = ({ data }) => this.#onReport(data);
    this.#node.connect(context.destination);
  }

  push(samples) {
    this.received += samples.length;
    this.#node.port.postMessage({ type: "samples", samples }, [samples.buffer]);
  }

  // No more samples will come: what has been pushed is played to its end.
  complete() {
    this.#node.port.postMessage({ type: "complete" });
  }

  // Stops at once. Returns the number of samples that were, or still will be, audible.
  async stop() {
    this.#node.port.postMessage({ type: "stop" });
    return this.#ended.promise;
  }

  // Resolves with the number of samples played, when the last one has left the loudspeaker.
  async finished() {
    const played = await this.#ended.promise;
    while (this.audibleSample(performance.now()) < played) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    this.isOver = true;
    return played;
  }

  // The number of samples that have left the loudspeaker at a time of performance.now().
  audibleSample(atMs) {
    const frame = this.#audibleFrame(atMs);
    const stretch = this.#stretches.findLast((each) => each.frame <= frame);
    if (!stretch) return 0;
    return stretch.sample + Math.min(frame, stretch.end) - stretch.frame;
  }

  #audibleFrame(atMs) {
    // The output's own clock: `currentTime` is ahead of the loudspeaker by the output latency.
    const { contextTime, performanceTime } = this.#context.getOutputTimestamp();
    const seconds = contextTime + (atMs - performanceTime) / 1000;
    return Math.min(seconds, this.#context.currentTime) * SAMPLE_RATE_HZ;
  }

  #onReport({ type, frame, sample }) {
    if (type === "started") {
      this.#stretches.push({ frame, sample, end: Infinity });
      return;
    }
    const last = this.#stretches.at(-1);
    if (last) last.end = Math.min(last.end, frame);
    if (type === "ran_dry") this.underruns += 1;
    if (type === "ended") {
      this.#node.disconnect();
      this.#ended.resolve(sample);
    }
  }
}

// Plays utterances through an AudioWorklet, and tells which sample leaves the loudspeaker now.

import { answered } from "./answered.js";

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
  #playback = null;
  #volume = 1;

  // Returns a player; call it from a click or a key press, or the browser keeps the audio silent.
  static async create() {
    if (obstacle()) throw new Error(obstacle());
    const player = new Player();
    // At the rate of the server the browser resamples once, at its output, and a frame is a sample.
    player.#context = new AudioContext({ sampleRate: SAMPLE_RATE_HZ, latencyHint: "interactive" });
    const worklet = new URL("player-worklet.js", import.meta.url);
    try {
      await answered(player.#context.audioWorklet.addModule(worklet));
    } catch (error) {
      player.#context.close();
      throw error;
    }
    return player;
  }

  // Starts the playback of an utterance; its first sample has the number `firstSample`.
  async start(firstSample = 0) {
    await this.resume();
    this.#playback = new Playback(this.#context, firstSample);
    this.#playback.setVolume(this.#volume);
    return this.#playback;
  }

  get isPaused() {
    return this.#context.state === "suspended";
  }

  // Stops the loudspeaker where it is, until `resume`.
  async pause() {
    await this.#context.suspend();
  }

  async resume() {
    if (this.#context.state !== "running") await this.#context.resume();
  }

  // 0 is silence, 1 is as loud as the server's audio.
  setVolume(volume) {
    this.#volume = volume;
    this.#playback?.setVolume(volume);
  }
}

export class Playback {
  #context;
  #node;
  #stretches = []; // {frame, sample, end}: sound without a gap, in frames of the AudioContext
  #ended = Promise.withResolvers();
  #firstSample;
  received; // samples, with those before the first one
  underruns = 0;
  isOver = false; // whether the last sample has left the loudspeaker

  constructor(context, firstSample) {
    this.#context = context;
    this.#firstSample = this.received = firstSample;
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

  setVolume(volume) {
    this.#node.port.postMessage({ type: "volume", volume });
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
    if (!stretch) return this.#firstSample;
    return stretch.sample + Math.min(frame, stretch.end) - stretch.frame;
  }

  #audibleFrame(atMs) {
    // The output's own clock: `currentTime` is ahead of the loudspeaker by the output latency.
    const { contextTime, performanceTime } = this.#context.getOutputTimestamp();
    const seconds = contextTime + (atMs - performanceTime) / 1000;
    return Math.min(seconds, this.#context.currentTime) * SAMPLE_RATE_HZ;
  }

  #onReport({ type, frame, sample: played }) {
    const sample = this.#firstSample + played;
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

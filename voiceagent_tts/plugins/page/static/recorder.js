// Records the microphone as a WAV file.

import { wavOf } from "./downloads.js";

// Why this page cannot record, and what to do; null if it can.
export function obstacle() {
  if (!window.isSecureContext) {
    return (
      `Browsers give the microphone to secure pages only, and ${location.origin} is not one. ` +
      "Start the server with --ssl-self-signed and open it with https://, forward its port to " +
      "this machine and open http://localhost, or upload a file."
    );
  }
  return navigator.mediaDevices ? null : "This browser cannot record; upload a file instead.";
}

export class Recording {
  #context;
  #stream;
  #chunks = [];

  // Starts to record. Throws an Error with a sentence where the microphone is not available.
  static async start() {
    const recording = new Recording();
    recording.#stream = await microphone();
    recording.#context = new AudioContext();
    try {
      await recording.#record();
    } catch (error) {
      await recording.#release();
      throw new Error(`The recording cannot start: ${error.message}`);
    }
    return recording;
  }

  async #record() {
    const module = new URL("recorder-worklet.js", import.meta.url);
    await this.#context.audioWorklet.addModule(module);
    const node = new AudioWorkletNode(this.#context, "recorder");
    node.port.onmessage = ({ data }) => this.#chunks.push(data);
    this.#context.createMediaStreamSource(this.#stream).connect(node);
  }

  get seconds() {
    const samples = this.#chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    return samples / this.#context.sampleRate;
  }

  async stop() {
    await this.#release();
    return wavOf(this.#chunks, this.#context.sampleRate);
  }

  async #release() {
    for (const track of this.#stream.getTracks()) track.stop();
    await this.#context.close();
  }
}

async function microphone() {
  const problem = obstacle();
  if (problem) throw new Error(problem);
  try {
    // The processing for calls distorts the timbre, which is what a clone keeps.
    return await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
  } catch (error) {
    throw new Error(
      error.name === "NotAllowedError"
        ? "The browser does not let this page use the microphone. Allow it beside the address " +
          "bar, then try again."
        : "There is no microphone that can be used; connect one, or upload a file.",
    );
  }
}

// The player of browser.html: plays the audio frames of one context, and knows how much of it has been heard.
export class Player {
  #audio = new AudioContext({ sampleRate: 24000 });
  #stretches = []; // without a gap: when each starts and ends, in seconds of the audio's clock

  // A frame from the server: a header of 16 bytes, then samples.
  play(frame) {
    const samples = new Int16Array(frame, 16);
    const buffer = this.#audio.createBuffer(1, samples.length, 24000);
    buffer.getChannelData(0).set(Float32Array.from(samples, (sample) => sample / 32768));
    const source = new AudioBufferSourceNode(this.#audio, { buffer });
    source.connect(this.#audio.destination);
    if (!(this.#stretches.at(-1)?.end > this.#audio.currentTime)) {
      const start = this.#audio.currentTime + 0.05; // the first sound, or the first after an underrun
      this.#stretches.push({ start, end: start });
    }
    const stretch = this.#stretches.at(-1);
    source.start(stretch.end);
    stretch.end += buffer.duration;
  }

  // Milliseconds of the context that have left the loudspeaker; underruns are silence, and no part of it.
  playedMs() {
    const heard = this.#audio.currentTime - this.#audio.outputLatency;
    const seconds = this.#stretches.map(({ start, end }) => Math.max(0, Math.min(heard, end) - start));
    return 1000 * seconds.reduce((sum, each) => sum + each, 0);
  }

  close() {
    this.#audio.close();
  }
}

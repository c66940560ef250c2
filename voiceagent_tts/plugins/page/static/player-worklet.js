// Plays the samples of one utterance, and reports at which frame of the AudioContext each stretch
// of them starts and ends. Positions are whole samples, so the page knows what is heard exactly.

class PlayerProcessor extends AudioWorkletProcessor {
  #chunks = []; // Float32Arrays that are not played yet
  #offset = 0; // samples of the first chunk that are played
  #played = 0; // samples of the utterance that are played
  #isPlaying = false;
  #isComplete = false; // no more samples will come
  #isStopping = false;
  #volume = 1;

  constructor() {
    super();
    this.port.onmessage = ({ data }) => {
      if (data.type === "samples") this.#chunks.push(data.samples);
      if (data.type === "complete") this.#isComplete = true;
      if (data.type === "stop") this.#isStopping = true;
      if (data.type === "volume") this.#volume = data.volume;
    };
  }

  process(_inputs, [[output]]) {
    const filled = this.#fill(output);
    if (this.#volume !== 1) for (let i = 0; i < filled; i++) output[i] *= this.#volume;
    if (filled > 0 && !this.#isPlaying) {
      this.#isPlaying = true;
      this.#report("started", currentFrame);
    }
    this.#played += filled;
    if (this.#isStopping) return this.#end(output, filled);
    if (filled === output.length) return true;
    if (this.#isComplete) return this.#end(output, filled);
    if (this.#isPlaying) {
      this.#isPlaying = false;
      this.#report("ran_dry", currentFrame + filled);
    }
    return true;
  }

  #fill(output) {
    let filled = 0;
    while (filled < output.length && this.#chunks.length > 0) {
      const rest = this.#chunks[0].subarray(this.#offset);
      const piece = rest.subarray(0, output.length - filled);
      output.set(piece, filled);
      filled += piece.length;
      this.#offset += piece.length;
      if (piece.length === rest.length) {
        this.#chunks.shift();
        this.#offset = 0;
      }
    }
    return filled;
  }

  #end(output, filled) {
    if (this.#isStopping) {
      for (let i = 0; i < filled; i++) output[i] *= 1 - i / filled; // no click
    }
    this.#report("ended", currentFrame + filled);
    return false;
  }

  #report(type, frame) {
    this.port.postMessage({ type, frame, sample: this.#played });
  }
}

registerProcessor("player", PlayerProcessor);

// Passes the samples of the microphone to the page.

class RecorderProcessor extends AudioWorkletProcessor {
  process([[samples]]) {
    if (samples) this.port.postMessage(samples.slice());
    return true;
  }
}

registerProcessor("recorder", RecorderProcessor);

// Voices of one's own: cloned from a recording or a voice file, designed, saved and removed.

import { save } from "./downloads.js";
import { Recording, obstacle } from "./recorder.js";
import { postJson, request } from "./server.js";

const VOICES = "/v1/audio/voices";
const VOICE_FILE = ".safetensors";
const TICK_MS = 200;

const $ = (id) => document.getElementById(id);
let recording = null;
let recorded = null; // a WAV file, or null
let toggling = null; // the start or the end of a recording, on its way
let heardDesign = null; // {instruct, text, seed} of the last designed voice that was heard

// Shows what the server can do. `onChange` is called when a voice was added or removed, with its
// id; `onHear(text, instruct, seed)` when a description is to be heard, and resolves with whether it
// was.
export function showOwnVoices({ can_clone, can_design }, onChange, onHear) {
  $("clone").hidden = $("cannot-clone").hidden = !can_clone;
  $("cannot-clone").hidden = can_clone;
  $("design").hidden = !can_design;
  $("cannot-design").hidden = can_design || !can_clone;
  $("keep-design").hidden = !can_clone;
  const problem = obstacle();
  $("record").disabled = problem !== null;
  $("record-problem").textContent = problem ?? "";
  $("record").onclick = () => report("clone-result", "", toggleOnce);
  $("clone-file").onchange = () => (recorded = null);
  $("clone").onsubmit = (event) => {
    event.preventDefault();
    report("clone-result", "Cloning the voice", () => clone(onChange));
  };
  $("hear-design").onclick = async () => {
    const seed = crypto.getRandomValues(new Uint32Array(1))[0];
    const design = { ...describedVoice(), seed };
    if (await onHear(design.text, design.instruct, seed)) heardDesign = design;
  };
  $("design").onsubmit = (event) => {
    event.preventDefault();
    report("design-result", "Designing the voice", () => design(onChange));
  };
}

export async function saveVoice(id) {
  const response = await request(`${VOICES}/${encodeURIComponent(id)}`);
  save(await response.blob(), `${id}${VOICE_FILE}`);
}

export async function removeVoice(id) {
  await request(`${VOICES}/${encodeURIComponent(id)}`, { method: "DELETE" });
}

function describedVoice() {
  return { instruct: $("design-instruct").value, text: $("design-text").value };
}

// Runs a step, and shows what it does and for how long, then its sentence or its error.
async function report(id, doing, step) {
  const began = performance.now();
  const show = (sentence, className) => Object.assign($(id), { textContent: sentence, className });
  const tick = () => show(`${doing}: ${Math.round((performance.now() - began) / 1000)} s …`, "hint");
  const ticking = doing && setInterval(tick, 1000);
  if (doing) tick();
  try {
    show((await step()) ?? "", "hint");
  } catch (error) {
    show(error.message, "problem");
  } finally {
    clearInterval(ticking);
  }
}

// Starts or ends a recording, once for all clicks while the browser asks for the microphone.
async function toggleOnce() {
  toggling ??= toggleRecording().finally(() => (toggling = null));
  return toggling;
}

async function toggleRecording() {
  if (recording) {
    recorded = await recording.stop();
    const { seconds } = recording;
    recording = null;
    $("record").textContent = "Record again";
    $("clone-file").value = "";
    return `Recorded ${seconds.toFixed(1)} s.`;
  }
  recording = await Recording.start();
  $("record").textContent = "Stop recording";
  const tick = setInterval(() => {
    if (!recording) clearInterval(tick);
    else $("clone-result").textContent = `Recording: ${recording.seconds.toFixed(1)} s`;
  }, TICK_MS);
  return "Recording.";
}

async function clone(onChange) {
  const file = recorded ?? $("clone-file").files[0];
  if (!file) throw new Error("Choose a file or record one first.");
  const form = new FormData();
  form.append("name", $("clone-name").value);
  form.append("consent", $("clone-consent").closest("label").textContent.trim().replace(/\s+/g, " "));
  if (file.name?.endsWith(VOICE_FILE)) {
    form.append("voice_file", file);
  } else {
    form.append("audio_sample", file, file.name ?? "recording.wav");
    form.append("ref_text", $("clone-text").value);
  }
  return add($("clone"), () => request(VOICES, { method: "POST", body: form }), onChange);
}

async function design(onChange) {
  const { instruct, text } = describedVoice();
  if (heardDesign?.instruct !== instruct || heardDesign.text !== text) {
    throw new Error("Hear this voice first: each hearing of a description gives another voice.");
  }
  const body = { name: $("design-name").value, ...heardDesign };
  return add($("design"), () => postJson(`${VOICES}/design`, body), onChange);
}

async function add(form, send, onChange) {
  const button = form.querySelector("[type=submit]");
  button.disabled = true;
  form.setAttribute("aria-busy", "true");
  try {
    const { id, warnings } = await (await send()).json();
    await onChange(id);
    return [`The voice ${id} is ready.`, ...warnings.map((each) => `Note: ${each}.`)].join(" ");
  } finally {
    button.disabled = false;
    form.removeAttribute("aria-busy");
  }
}

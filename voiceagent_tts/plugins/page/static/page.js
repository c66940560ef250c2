// Speaks what is typed or what the scripted LLM writes, and interrupts it.

import { NO_ANSWER } from "./answered.js";
import { save, srtOf, wavOf } from "./downloads.js";
import { hideHistory, showHistory, wordCount } from "./history.js";
import { NoKeyError, askForKey, ensureKey } from "./key-dialog.js";
import { removeVoice, saveVoice, showOwnVoices } from "./own-voices.js";
import { Player, obstacle } from "./player.js";
import { SCRIPT, writeTokens } from "./scripted-llm.js";
import { postJson, storedKey } from "./server.js";
import { TtsSocket } from "./socket.js";
import { Stage } from "./stage.js";
import { Utterance } from "./utterance.js";
import { chosenLanguage, chosenVoice, loadVoices } from "./voice-picker.js";

const $ = (id) => document.getElementById(id);
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;
const stage = new Stage();
let player = null;
let socket = null;
let connecting = null;
let searching = null; // the attempt to find a lost server; null while it is there
let preparing = null; // the player and the connection, on their way for a speech
let active = null; // what sounds, or will: its `interrupt()` and its state in words; null in silence
let spoken = null; // the last utterance: {utterance, whole, options}

// Connects, once for all that ask meanwhile; returns at once where there is a connection.
async function connect() {
  connecting ??= openSocket().finally(() => (connecting = null));
  await connecting;
}

async function openSocket() {
  if (socket?.acceptsContexts) return;
  await ensureKey();
  $("change-key").hidden = storedKey() === null;
  socket = await TtsSocket.connect(new URL("/v1/tts/ws", location.href), storedKey());
  socket.onLost = findServer;
  socket.onSilence = (isSilent) => showAlert(isSilent ? NO_ANSWER : null);
  $("server").textContent = `${socket.ready.model} · ${socket.ready.sample_rate / 1000} kHz`;
}

// What follows an attempt to connect that failed: it is repeated, unless a person has to act first.
function onNotConnected(error) {
  if (!(error instanceof NoKeyError)) return findServer();
  $("server").textContent = "not connected: an API key is needed";
  $("change-key").hidden = false;
}

// Tries to reach the server until it answers, and shows its voices then.
function findServer() {
  $("server").textContent = "not connected: looking for the server…";
  searching ??= (async () => {
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
      await new Promise((resolve) => setTimeout(resolve, waitMs));
      try {
        await connect();
        await showVoices();
        if (!active) showAlert(obstacle());
        break;
      } catch (error) {
        if (!(error instanceof NoKeyError)) continue; // it is not there yet
        onNotConnected(error);
        break;
      }
    }
    searching = null;
  })();
}

// Speaks what `write(utterance, signal)` writes; `whole` is all that it would write. Resolves with
// whether something was heard.
async function speak(whole, options, write) {
  if (active) return false;
  showAlert(null);
  const llm = new AbortController();
  const over = new AbortController();
  setActive({ interrupt: () => llm.abort(), state: "Waiting for the server." });
  let utterance = null;
  try {
    const playback = await startPlayback(llm.signal);
    stage.clear();
    hideHistory();
    utterance = new Utterance(socket, playback, options, stage);
    spoken = { utterance, whole, options };
    active.interrupt = () => (llm.abort(), interruptUtterance(spoken));
    utterance.begun().then(() => setState("Speaking."));
    socket.watch(over.signal);
    stage.follow(playback);
    write(utterance, llm.signal);
    await utterance.finished();
    if (utterance.error) showAlert(utterance.error);
    if (!utterance.isInterrupted) say(endOf(utterance));
  } catch (error) {
    if (!llm.signal.aborted) showAlert(error.message);
    say("Not spoken.");
    if (!socket?.acceptsContexts) onNotConnected(error);
  }
  over.abort();
  setActive(null);
  return utterance?.played > 0;
}

function endOf({ error, played }) {
  if (error) return "Ended by an error.";
  return played ? "Spoken to the end." : "There was nothing to speak in this text.";
}

// Gets ready to play, unless it is interrupted meanwhile.
async function startPlayback(signal) {
  await unlessAborted(prepare(), signal);
  const playback = await player.start();
  if (signal.aborted) playback.stop();
  signal.throwIfAborted();
  return playback;
}

// Gets what a speech needs, once for all that ask meanwhile.
async function prepare() {
  preparing ??= (async () => {
    player ??= await Player.create();
    player.setVolume(Number($("volume").value));
    await player.resume();
    await connect();
  })().finally(() => (preparing = null));
  await preparing;
}

async function unlessAborted(promise, signal) {
  const aborted = Promise.withResolvers();
  signal.addEventListener("abort", () => aborted.reject(signal.reason), { once: true });
  await Promise.race([promise, aborted.promise]);
}

async function interruptUtterance({ utterance, whole }) {
  await player.resume(); // a paused loudspeaker would never come to its end
  const sent = utterance.text;
  const { heard, unheard, playedMs } = await utterance.interrupt();
  stage.cut(utterance.played);
  showHistory({ heard, unheard, playedMs, sent, whole });
  say(`Interrupted. Words heard: ${wordCount(heard)}; not heard: ${wordCount(unheard)}.`);
}

// Plays what was heard once more, without the server, from a sample on.
async function replay(firstSample) {
  if (active) return;
  const playback = await player.start(firstSample);
  let skipped = firstSample;
  for (const chunk of spoken.utterance.heardChunks()) {
    playback.push(chunk.slice(skipped));
    skipped = Math.max(0, skipped - chunk.length);
  }
  playback.complete();
  stage.rewind();
  stage.follow(playback);
  const stop = async () => (await player.resume(), await playback.stop());
  setActive({ interrupt: stop, state: "Playing again." });
  const played = await playback.finished();
  if (spoken.utterance.isInterrupted) stage.cut(played);
  say("Played again.");
  setActive(null);
}

async function interrupt() {
  if (!active || active.isInterrupted) return;
  active.isInterrupted = true; // until it is over the buttons keep the focus
  await active.interrupt();
}

// After a click the space bar interrupts, as it did before; a key keeps the focus for the next one.
async function togglePause({ detail: clicks }) {
  if (active?.isInterrupted) return;
  if (player?.isPaused) await player.resume();
  else await player?.pause();
  if (clicks) $("interrupt").focus({ preventScroll: true });
  showState();
}

function setState(state) {
  if (active) active.state = state;
  showState();
}

function showState() {
  if (!active) return;
  const isPaused = player?.isPaused ?? false;
  $("pause").textContent = isPaused ? "Resume" : "Pause";
  say(isPaused ? "Paused." : active.state);
}

function setActive(sounding) {
  const buttons = [$("speak"), $("interrupt"), $("pause"), $("replay")];
  const hadFocus = buttons.includes(document.activeElement);
  active = sounding;
  $("speak").disabled = $("replay").disabled = sounding !== null;
  $("interrupt").disabled = $("pause").disabled = sounding === null;
  $("pause").textContent = "Pause";
  if (sounding) say(sounding.state);
  $("seek").max = spoken?.utterance.played ?? 0;
  $("keep").hidden = sounding !== null || !spoken?.utterance.played;
  if (hadFocus) $(sounding ? "interrupt" : "speak").focus({ preventScroll: true });
}

function say(sentence) {
  $("status").textContent = sentence;
}

function showAlert(sentence) {
  $("alert").hidden = sentence === null;
  $("alert").textContent = sentence ?? "";
}

// "nginx = engine x", one entry a line; null without an entry.
function lexiconOf(lines) {
  const entries = lines
    .split("\n")
    .filter((line) => line.trim())
    .map((line) => line.split(/=(.*)/s).map((part) => part.trim()))
    .map(([written, said]) => [written, said ?? ""]);
  return entries.length ? Object.fromEntries(entries) : null;
}

function optionsOf(voice, language) {
  const options = {
    voice: voice?.id,
    language,
    speed: Number($("speed").value),
    instruct: voice?.takes_instruct ? $("instruct").value.trim() || null : null,
    seed: crypto.getRandomValues(new Uint32Array(1))[0], // so that the MP3 sounds the same
    lexicon: lexiconOf($("lexicon").value),
    markup: $("markup").checked || null,
  };
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value != null));
}

function speakComposed() {
  const options = optionsOf(chosenVoice(), chosenLanguage());
  if (document.querySelector("input[name=source]:checked").value === "typed") {
    speakWhole($("text").value, options);
    return;
  }
  const { reply } = SCRIPT[$("question").selectedIndex];
  speak(reply, options, async (utterance, signal) => {
    for await (const token of writeTokens(reply, () => Number($("rate").value), signal)) {
      utterance.write(token);
    }
    utterance.end();
  });
}

async function speakWhole(text, options) {
  if (!text.trim()) {
    showAlert("Type a text first.");
    return false;
  }
  return speak(text, options, (utterance) => utterance.writeAll(text));
}

async function saveMp3() {
  const { utterance, options } = spoken;
  const { instruct: instructions, ...rest } = options;
  const body = { ...rest, instructions, input: utterance.heardText, response_format: "mp3" };
  save(await (await postJson("/v1/audio/speech", body)).blob(), "speech.mp3");
}

// Whether the space bar has a meaning of its own there while something sounds: it types, opens,
// ticks or pauses. A radio is chosen by arrows, and the other buttons by Enter.
function usesSpace(element) {
  const users =
    "input:not([type=range], [type=radio]), textarea, select, summary, dialog, #pause";
  return element.closest(users) !== null;
}

function listen() {
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    speakComposed();
  });
  $("interrupt").addEventListener("click", interrupt);
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.target.closest("dialog")) return;
    const isSpace = event.key === " " && !usesSpace(event.target);
    if (event.repeat) {
      if (isSpace) event.preventDefault(); // still held after an interruption, it presses nothing
    } else if (active && (event.key === "Escape" || isSpace)) {
      event.preventDefault();
      interrupt();
    } else if (event.key === "Enter" && event.ctrlKey) {
      speakComposed();
    }
  });
  for (const radio of document.querySelectorAll("input[name=source]")) {
    radio.addEventListener("change", () => {
      $("typed").hidden = radio.value !== "typed";
      $("llm").hidden = radio.value !== "llm";
    });
  }
  $("speed").addEventListener("input", () => {
    $("speed-value").textContent = Number($("speed").value).toFixed(2);
  });
  $("rate").addEventListener("input", () => ($("rate-value").textContent = $("rate").value));
  $("pause").addEventListener("click", togglePause);
  $("volume").addEventListener("input", () => player?.setVolume(Number($("volume").value)));
  $("replay").addEventListener("click", () => replay(0));
  $("seek").addEventListener("change", () => replay(Number($("seek").value)));
  $("save-wav").addEventListener("click", () =>
    save(wavOf(spoken.utterance.heardChunks()), "speech.wav"),
  );
  $("save-srt").addEventListener("click", () =>
    save(srtOf(spoken.utterance.heardWords), "speech.srt"),
  );
  $("save-mp3").addEventListener("click", () => attempt(saveMp3));
  $("change-key").addEventListener("click", async () => {
    if (!(await askForKey(""))) return;
    socket?.close();
    await start();
  });
}

const actions = {
  hear: (voice, text, language) => speakWhole(text, optionsOf(voice, language)),
  save: (id) => attempt(() => saveVoice(id)),
  remove: (id) =>
    attempt(async () => {
      if (!confirm(`Remove the voice ${id} from the server?`)) return;
      await removeVoice(id);
      await showVoices();
    }),
};

async function showVoices(choose = null) {
  const { voices, ...abilities } = await loadVoices(actions, choose);
  const designed = voices.find(({ needs_instruct }) => needs_instruct);
  showOwnVoices(abilities, showVoices, (text, instruct, seed) =>
    speakWhole(text, { voice: designed.id, instruct, seed }),
  );
}

async function attempt(step) {
  try {
    await step();
  } catch (error) {
    showAlert(error.message);
  }
}

async function start() {
  try {
    await connect();
    await showVoices();
    showAlert(obstacle());
  } catch (error) {
    showAlert(error.message);
    onNotConnected(error);
  }
}

$("question").replaceChildren(...SCRIPT.map(({ question }) => new Option(question)));
listen();
await start();

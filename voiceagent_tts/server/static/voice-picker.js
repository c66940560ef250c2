// The list of voices: searched, filtered by language and kind, chosen, and heard.

import { getJson } from "./server.js";

const list = document.getElementById("voices");
const search = document.getElementById("voice-search");
const kindFilter = document.getElementById("voice-kind");
const language = document.getElementById("language");
const count = document.getElementById("voice-count");
const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });

const SAMPLES = {
  de: "Hallo! So klinge ich.", en: "Hello! This is how I sound.", es: "¡Hola! Así sueno yo.",
  fr: "Bonjour ! Voici ma voix.", it: "Ciao! Questa è la mia voce.", ja: "こんにちは。これがわたしのこえです。",
  ko: "안녕하세요. 제 목소리예요.", pt: "Olá! Esta é a minha voz.", ru: "Привет! Так я звучу.",
  zh: "你好！这就是我的声音。",
};

let voices = [];
let chosen = null;

// Loads the voices, and calls `onSample(voice, text, language)` when one is to be heard.
export async function loadVoices(onSample) {
  ({ voices } = await getJson("/v1/audio/voices"));
  if (!voices.some(({ id }) => id === chosen)) chosen = voices[0]?.id ?? null;
  fillLanguages();
  fillKinds();
  for (const input of [search, kindFilter, language]) input.oninput = () => show(onSample);
  show(onSample);
}

export function chosenVoice() {
  return voices.find(({ id }) => id === chosen) ?? null;
}

export function chosenLanguage() {
  return language.value || null;
}

function languageName(code) {
  try {
    return names.of(code);
  } catch {
    return code; // espeak has codes that are no BCP 47 tags
  }
}

function fillLanguages() {
  const codes = [...new Set(voices.flatMap((voice) => voice.languages))];
  const options = codes
    .map((code) => new Option(`${languageName(code)} (${code})`, code))
    .sort((a, b) => a.text.localeCompare(b.text));
  language.replaceChildren(new Option("detected", ""), ...options);
}

function fillKinds() {
  const kinds = [...new Set(voices.map((voice) => voice.kind).filter(Boolean))];
  kindFilter.replaceChildren(new Option("all kinds", ""), ...kinds.map((kind) => new Option(kind)));
  kindFilter.hidden = kinds.length < 2;
}

function matches(voice) {
  const words = search.value.toLowerCase().split(/\s+/);
  const facts = [voice.name, voice.kind, voice.gender, ...voiceLanguages(voice)];
  const text = facts.filter(Boolean).join(" ").toLowerCase();
  const speaks = !language.value || voice.languages.includes(language.value);
  const isOfKind = !kindFilter.value || voice.kind === kindFilter.value;
  return speaks && isOfKind && words.every((word) => text.includes(word));
}

function voiceLanguages(voice) {
  const own = voice.language ? [voice.language] : [];
  return own.map(languageName);
}

function show(onSample) {
  const matching = voices.filter(matches);
  list.replaceChildren(...matching.map((voice) => row(voice, onSample)));
  count.textContent = `${matching.length} of ${voices.length} voices`;
  list.querySelector("input:checked")?.closest("div").scrollIntoView?.({ block: "nearest" });
}

function row(voice, onSample) {
  const element = document.createElement("div");
  const label = document.createElement("label");
  const radio = Object.assign(document.createElement("input"), {
    type: "radio", name: "voice", value: voice.id, checked: voice.id === chosen,
  });
  radio.onchange = () => {
    chosen = voice.id;
    list.dispatchEvent(new Event("change"));
  };
  const facts = document.createElement("small");
  facts.textContent = [voice.kind, voice.gender, ...voiceLanguages(voice)].filter(Boolean).join(" · ");
  label.append(radio, voice.name, facts);
  const sample = Object.assign(document.createElement("button"), {
    type: "button", className: "plain", textContent: "▶", title: `Hear ${voice.name}`,
  });
  sample.setAttribute("aria-label", `Hear ${voice.name}`);
  sample.onclick = () => {
    const wanted = chosenLanguage() ?? voice.language ?? "en";
    const text = SAMPLES[wanted.split("-")[0]] ?? SAMPLES.en;
    onSample(voice, text, voice.languages.includes(wanted) ? wanted : null);
  };
  element.append(label, sample);
  return element;
}

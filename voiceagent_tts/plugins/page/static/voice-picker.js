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

// Loads the voices and returns the server's answer. `actions` has hear(voice, text, language),
// save(id) and remove(id); `choose` is the id of the voice to choose, or null.
export async function loadVoices(actions, choose = null) {
  const answer = await getJson("/v1/audio/voices");
  voices = answer.voices;
  chosen = choose ?? chosen;
  if (!voices.some(({ id }) => id === chosen)) chosen = voices[0]?.id ?? null;
  fillLanguages();
  fillKinds();
  for (const input of [search, kindFilter, language]) input.oninput = () => show(actions);
  list.onchange = () => {
    showInstruct();
    setTabStops();
  };
  show(actions);
  showInstruct();
  return answer;
}

// The description of how to speak, or of the voice itself, where the chosen voice takes one.
function showInstruct() {
  const voice = chosenVoice();
  document.getElementById("instruct-field").hidden = !voice?.takes_instruct;
  document.getElementById("instruct-label").textContent = voice?.needs_instruct
    ? "Describe the voice"
    : "How to speak";
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
  const before = language.value;
  const codes = [...new Set(voices.flatMap((voice) => voice.languages))];
  const options = codes
    .map((code) => new Option(`${languageName(code)} (${code})`, code))
    .sort((a, b) => a.text.localeCompare(b.text));
  language.replaceChildren(new Option("detected", ""), ...options);
  language.value = codes.includes(before) ? before : "";
}

function fillKinds() {
  const kinds = [...new Set(voices.map((voice) => voice.kind).filter(Boolean))];
  kindFilter.replaceChildren(new Option("all kinds", ""), ...kinds.map((kind) => new Option(kind)));
  kindFilter.hidden = kinds.length < 2;
}

function matches(voice) {
  const words = search.value.toLowerCase().split(/\s+/);
  const text = `${voice.name} ${factsOf(voice)}`.toLowerCase();
  const isOfKind = !kindFilter.value || voice.kind === kindFilter.value;
  return speaks(voice, language.value) && isOfKind && words.every((word) => text.includes(word));
}

// Whether a voice suits texts in a language: it accepts the language, and is not made for another.
function speaks(voice, code) {
  if (!code) return true;
  const base = (each) => each.split("-")[0];
  const isMadeForIt = voice.language === null || base(voice.language) === base(code);
  return voice.languages.includes(code) && isMadeForIt;
}

function factsOf({ kind, alias_of, gender, language }) {
  const facts = [alias_of ? `alias of ${alias_of}` : kind, gender, language && languageName(language)];
  return facts.filter(Boolean).join(" · ");
}

function show(actions) {
  const matching = voices.filter(matches);
  list.replaceChildren(...matching.map((voice) => row(voice, actions)));
  count.textContent = `${matching.length} of ${voices.length} voices`;
  const current = list.querySelector("input:checked")?.closest("div");
  if (current) list.scrollTop = current.offsetTop - current.clientHeight;
  setTabStops();
}

// Makes the list two stops of the Tab key: the choice, and the buttons of the chosen voice.
function setTabStops() {
  for (const each of list.querySelectorAll("button")) {
    const isChosen = each.parentElement.querySelector("input").checked;
    each.tabIndex = isChosen ? 0 : -1;
  }
}

function row(voice, actions) {
  const element = document.createElement("div");
  const label = document.createElement("label");
  const radio = Object.assign(document.createElement("input"), {
    type: "radio", name: "voice", value: voice.id, checked: voice.id === chosen,
  });
  radio.oninput = () => (chosen = voice.id);
  const facts = document.createElement("small");
  facts.textContent = factsOf(voice);
  label.append(radio, voice.name, facts);
  element.append(label);
  if (voice.kind === "clone") {
    element.append(
      button("⤓", `Save ${voice.name} as a file`, () => actions.save(voice.id)),
      button("✕", `Remove ${voice.name}`, () => actions.remove(voice.id)),
    );
  }
  element.append(button("▶", `Hear ${voice.name}`, () => hear(voice, actions)));
  return element;
}

function hear(voice, actions) {
  const wanted = chosenLanguage() ?? voice.language ?? "en";
  const text = SAMPLES[wanted.split("-")[0]] ?? SAMPLES.en;
  actions.hear(voice, text, voice.languages.includes(wanted) ? wanted : null);
}

function button(sign, name, onclick) {
  const element = document.createElement("button");
  Object.assign(element, { type: "button", className: "plain", textContent: sign, title: name, onclick });
  element.setAttribute("aria-label", name);
  return element;
}

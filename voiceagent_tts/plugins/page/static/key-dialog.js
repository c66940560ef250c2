// Asks for the API key of a server that needs one, until the server accepts it.

import { getJson, storeKey, storedKey } from "./server.js";

// Characters of a WebSocket subprotocol (RFC 9110, token): the only header that a page can set.
const SENDABLE = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

const dialog = document.createElement("dialog");
dialog.id = "key-dialog";
dialog.setAttribute("aria-labelledby", "key-title");
dialog.innerHTML = `
  <form method="dialog">
    <h2 id="key-title">This server needs an API key</h2>
    <p id="key-problem" role="alert"></p>
    <label for="key">API key</label>
    <input id="key" type="password" autocomplete="off" required>
    <p class="hint">The key stays in this tab and is forgotten when the tab closes.</p>
    <button type="submit" value="use" class="primary">Use this key</button>
  </form>`;
document.body.append(dialog);
const problem = document.getElementById("key-problem");
const input = document.getElementById("key");

// The server needs a key, and nobody gave one.
export class NoKeyError extends Error {
  constructor() {
    super("This server needs an API key. Reload the page to enter one.");
  }
}

// Resolves when the server accepts the key of this tab, or needs none. Throws a NoKeyError when the
// dialog is left.
export async function ensureKey() {
  while (true) {
    try {
      await getJson("/v1/models");
      return;
    } catch (error) {
      if (error.status !== 401) throw error;
      const sentence = storedKey() === null ? "" : "The server does not know this key.";
      if (!(await askForKey(sentence))) throw new NoKeyError();
    }
  }
}

// Returns whether a key was given; who leaves the dialog keeps the key of before.
export async function askForKey(sentence) {
  problem.textContent = sentence;
  while (true) {
    dialog.returnValue = "";
    dialog.showModal();
    await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
    const key = input.value.trim();
    if (dialog.returnValue !== "use" || SENDABLE.test(key)) input.value = "";
    if (dialog.returnValue !== "use") return false;
    if (SENDABLE.test(key)) {
      storeKey(key);
      return true;
    }
    problem.textContent = key
      ? "A browser can send only keys of letters, digits and !#$%&'*+-.^_`|~ over a WebSocket; " +
        "create a key with these characters."
      : "Enter a key to use this server.";
  }
}

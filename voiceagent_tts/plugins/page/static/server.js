// Requests to the server that served this page, with its API key if it needs one.

import { answered } from "./answered.js";

const STORED_KEY = "voiceagent-tts-key";

export class ServerError extends Error {
  constructor(status, { message, code }) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// The key of this tab, or null.
export function storedKey() {
  return sessionStorage.getItem(STORED_KEY);
}

export function storeKey(key) {
  sessionStorage.setItem(STORED_KEY, key);
}

// Sends a request and returns the response. Throws a ServerError for an answer that is an error.
export async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  const key = storedKey();
  if (key !== null) headers.set("Authorization", `Bearer ${key}`);
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  const error = body.error ?? { message: `the server answered ${response.status}`, code: "internal" };
  throw new ServerError(response.status, error);
}

export async function getJson(path) {
  return (await answered(request(path))).json();
}

export async function postJson(path, body) {
  const headers = { "Content-Type": "application/json" };
  return request(path, { method: "POST", headers, body: JSON.stringify(body) });
}

// What the page waits for from a server that may be stopped, or out of reach, with its connection open.

export const NO_ANSWER = "The server does not answer.";
const LONGEST_MS = 8000;

// Settles as `promise` does; throws when that takes too long for a server that works.
export async function answered(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(NO_ANSWER)), LONGEST_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

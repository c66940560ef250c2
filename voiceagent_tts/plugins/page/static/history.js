// What an interrupted reply leaves in the conversation's history: here, and on other servers.

const section = document.getElementById("history");

export function hideHistory() {
  section.hidden = true;
}

// Shows an interruption. `sent` is the text sent so far, `whole` all of the reply.
export function showHistory({ heard, unheard, playedMs, sent, whole }) {
  const text = (id, value) => (document.getElementById(id).textContent = value);
  text("heard", heard);
  text("unheard", unheard);
  text("ours-note", `Cut at ${(playedMs / 1000).toFixed(2)} s. Nothing unheard is committed.`);
  showOther("sent", heard, sent);
  showOther("whole", heard, whole);
  section.hidden = false;
}

function showOther(id, heard, committed) {
  const phantom = document.createElement("mark");
  phantom.textContent = committed.slice(heard.length).trimStart();
  const unmarked = committed.slice(0, committed.length - phantom.textContent.length);
  document.getElementById(id).replaceChildren(unmarked, phantom);
  const words = wordCount(phantom.textContent);
  document.getElementById(`${id}-note`).textContent =
    words === 0
      ? "Right this time: all of it was heard."
      : `${words} ${words === 1 ? "word" : "words"} that nobody heard ${words === 1 ? "is" : "are"} in the history.`;
}

export function wordCount(text) {
  const segments = new Intl.Segmenter(undefined, { granularity: "word" }).segment(text);
  return [...segments].filter((each) => each.isWordLike).length;
}

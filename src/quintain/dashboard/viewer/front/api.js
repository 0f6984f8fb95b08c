// What is asked of the server, addresses of pages, and the stream that says when a run has more.

import { h } from "./dom.js";

const query = (values) =>
  new URLSearchParams(Object.entries(values).filter(([, value]) => value !== undefined && value !== "" && value !== null)).toString();

export async function ask(what, values = {}) {
  const answer = await fetch(`api/${what}?${query(values)}`);
  return read(answer);
}

export async function act(what, body) {
  return read(await fetch(`act/${what}`, { method: "POST", body: JSON.stringify(body) }));
}

async function read(answer) {
  let found;
  try {
    found = await answer.json();
  } catch {
    throw new Error(answer.ok ? "the answer cannot be read" : `the server answers ${answer.status}; is quintain view still running?`);
  }
  if (found && found.error) throw new Error(found.error);
  return found;
}

// An address inside of the viewer: link("episodes", {run: "a", step: 3})
export const link = (page, values = {}) => `#/${page}?${query(values)}`;

export function here() {
  const [path, values] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: path || "overview", values: Object.fromEntries(new URLSearchParams(values ?? "")) };
}

export const go = (page, values) => {
  location.hash = link(page, values).slice(1);
};

// Changes the address without a new entry in the history; the page is drawn anew.
export function change(values) {
  const now = here();
  history.replaceState(null, "", link(now.page, { ...now.values, ...values }));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

let stream = null;
let told = "";

export function listen(runs, hear) {
  const name = runs.join(",");
  if (stream && told === name) {
    stream.onmessage = (event) => hear(JSON.parse(event.data));
    return;
  }
  stream?.close();
  told = name;
  stream = new EventSource(`api/live?${query({ runs: name })}`);
  stream.onmessage = (event) => hear(JSON.parse(event.data));
  stream.onerror = () => document.body.classList.add("cut-off");
  stream.onopen = () => document.body.classList.remove("cut-off");
}

export const problem = (error) =>
  h("div", { class: "problem", role: "alert" }, h("b", {}, "That did not work. "), error.message ?? String(error));

// The frame of all pages: the bar, the address, what is live, and keys.

import { ask, go, here, link, listen, problem } from "./api.js";
import { forget } from "./chart.js";
import { h, put } from "./dom.js";
import { save } from "./save.js";
import * as overview from "./overview.js";
import * as episodes from "./episodes.js";
import * as tokens from "./tokens.js";
import * as data from "./data.js";
import * as compare from "./compare.js";
import * as replay from "./replay.js";

const PAGES = { overview, episodes, episode: tokens, group: tokens, data, compare, replay };
const TABS = [
  ["overview", "Overview", "o"],
  ["episodes", "Episodes", "e"],
  ["data", "Data", "d"],
  ["compare", "Compare", "c"],
  ["replay", "Replay", "r"],
];
const bar = document.getElementById("bar");
const main = document.getElementById("main");
let number = 0;
let current = null;
let known = [];

function drawBar(where) {
  const runs = h("select", { "aria-label": "Run", id: "run", onchange: (event) => go(where.page === "episode" || where.page === "group" ? "episodes" : where.page, { run: event.target.value }) },
    known.map((run) => h("option", { value: run.name, selected: run.name === where.values.run }, run.name)));
  const own = known.find((run) => run.name === where.values.run);
  put(bar,
    h("a", { class: "brand", href: link("overview", { run: where.values.run }) }, h("i", { class: "ring", "aria-hidden": "true" }), "quintain"),
    runs,
    h("nav", { "aria-label": "Pages" }, TABS.map(([page, name, key]) => {
      const is = page === where.page || (page === "episodes" && (where.page === "episode" || where.page === "group"));
      const kept = page === "replay" && where.values.id ? { run: where.values.run, id: where.values.id } : { run: where.values.run };
      return h("a", { href: link(page, kept), "aria-current": is ? "page" : null, title: `${name} (key ${key})` }, name);
    })),
    h("span", { class: "grow" }),
    h("span", { class: "state", id: "state", role: "status" }, h("i", { class: `light ${own?.status ?? ""}`, "aria-hidden": "true" }), own?.status ?? ""),
    h("button", { class: "plain", id: "save", title: "Save this page as one file, without scripts", onclick: () => save(document.title) }, "Save page"),
  );
}

async function show() {
  const where = here();
  const own = ++number;
  const list = ask("runs").then((found) => (known = found.runs));
  try {
    // The list that is known will do for a page of a run in it; the next page has what is new by now.
    if (known.some((run) => run.name === where.values.run)) list.catch(() => {});
    else await list;
  } catch (error) {
    put(main, problem(error));
    return;
  }
  if (own !== number) return;
  where.values.run ??= known[0]?.name;
  const page = PAGES[where.page] ?? overview;
  drawBar(where);
  document.title = `${where.values.run} · ${TABS.find(([name]) => name === where.page)?.[1] ?? "Episode"} · quintain`;
  forget();
  const place = h("div", { class: `page ${where.page}` });
  const isSame = current && current.page === where.page && current.values.run === where.values.run;
  if (!isSame) put(main, h("p", { class: "soft wait" }, "…"));
  const shown = { page: where.page, values: where.values, place, pulse: null, isCurrent: () => own === number };
  current = shown;
  try {
    await page.show(shown, known);
  } catch (error) {
    if (own === number) put(main, problem(error));
    return;
  }
  if (own !== number) return;
  put(main, place);
  shown.after?.();
  listen(shown.runs ?? [where.values.run], (pulse) => hear(shown, pulse));
}

function hear(shown, pulse) {
  if (!shown.isCurrent()) return;
  const before = shown.pulse;
  shown.pulse = pulse;
  const own = pulse[shown.values.run];
  const state = document.getElementById("state");
  if (state && own?.status && state.textContent !== own.status) put(state, h("i", { class: `light ${own.status}` }), own.status);
  if (before && JSON.stringify(before) !== JSON.stringify(pulse)) shown.refresh?.(pulse);
}

addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const tab = TABS.find(([, , key]) => key === event.key);
  if (current?.keys?.(event)) event.preventDefault();
  else if (event.key === "/") {
    const field = main.querySelector("input[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  } else if (tab) go(tab[0], { run: current.values.run, ...(tab[0] === "replay" && current.values.id ? { id: current.values.id } : {}) });
});
show();

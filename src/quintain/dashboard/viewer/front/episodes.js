// All episodes: filters, a list by whole pages, one task over training.

import { ask, change, go, link } from "./api.js";
import { chart } from "./chart.js";
import { count, duration, h, percent, put, short } from "./dom.js";

const SIZE = 50;
const COLUMNS = [["step", "step"], ["task", "task"], ["value", "return"], ["turns", "turns"], ["tokens", "tokens"], ["seconds", "time"]];

export function outcome(row) {
  if (row.owner) return h("span", { class: "out failed", title: `failure of the ${row.owner}: ${row.kind}` }, h("i", { "aria-hidden": "true" }, "!"), `${row.owner}: ${row.kind}`);
  if (row.success) return h("span", { class: "out solved" }, h("i", { "aria-hidden": "true" }, "✓"), "solved");
  return h("span", { class: "out unsolved" }, h("i", { "aria-hidden": "true" }, "✕"), "not solved");
}

export async function show(shown) {
  const { values, place } = shown;
  const offset = Number(values.offset ?? 0) || 0;
  const [found, facets, history] = await Promise.all([
    ask("episodes", { sort: "-order", ...values, limit: SIZE, offset }),
    ask("facets", { run: values.run }),
    values.task ? ask("episodes", { run: values.run, task: values.task, sort: "step", limit: 500 }) : null,
  ]);
  const set = (name) => (event) => change({ [name]: event.target.value, offset: undefined });
  const select = (name, label, choices) => choices.length > 0 && h("label", {}, h("span", {}, label), h("select", { id: `f-${name}`, onchange: set(name) }, h("option", { value: "" }, "any"), choices.map(([value, text]) => h("option", { value, selected: values[name] === value }, text ?? value))));
  const facet = (name) => (facets[name] ?? []).map(([value, number]) => [value, `${value} (${count(number)})`]);
  const text = (name, label, hint) => h("label", {}, h("span", {}, label), h("input", { id: `f-${name}`, type: "text", value: values[name] ?? "", placeholder: hint, onchange: set(name) }));
  const isFiltered = ["phase", "step", "task", "outcome", "owner", "kind", "seat", "tool", "term", "stop", "words", "group", "environment", "policy"].some((name) => values[name]);

  const form = h("form", { class: "filters live-only", role: "search", onsubmit: (event) => event.preventDefault() },
    h("label", { class: "wide" }, h("span", {}, "words"), h("input", { type: "search", id: "f-words", value: values.words ?? "", placeholder: 'search in what was shown and said: higher "guess 16"', onchange: set("words") })),
    text("step", "step", "7 or 3-9"),
    text("task", "task", "guess/train/3"),
    select("phase", "phase", facet("phase")),
    select("outcome", "outcome", [["solved"], ["unsolved", "not solved"], ["failed"], ["scored"]]),
    select("kind", "failure", facet("kind")),
    select("stop", "ended by", facet("stop")),
    facets.environment.length > 1 && select("environment", "environment", facet("environment")),
    facets.policy.length > 1 && select("policy", "policy", facet("policy")),
    facets.seat.length > 1 && select("seat", "seat", facet("seat")),
    select("tool", "tool", facet("tool")),
    select("term", "reward term", facet("term")),
    isFiltered && h("a", { class: "clear", href: link("episodes", { run: values.run, sort: values.sort }) }, "clear"));

  const sort = values.sort ?? "-order";
  const head = h("tr", {}, h("th", { scope: "col" }, "outcome"), COLUMNS.map(([key, name]) => {
    const own = sort.replace("-", "") === key;
    const down = own && sort.startsWith("-");
    return h("th", { scope: "col", class: key === "task" ? "" : "right", "aria-sort": own ? (down ? "descending" : "ascending") : null }, h("button", { class: "sort", onclick: () => change({ sort: own && down ? key : `-${key}`, offset: undefined }) }, name, own ? (down ? " ↓" : " ↑") : ""));
  }), h("th", { scope: "col" }, "phase"), h("th", { scope: "col" }, "terms"));
  const rows = found.episodes.map((row) => h("tr", { tabindex: 0, "data-id": row.id, onclick: (event) => event.target.closest("a") || go("episode", { run: values.run, id: row.id }), onkeydown: (event) => event.key === "Enter" && go("episode", { run: values.run, id: row.id }) },
    h("td", {}, h("a", { href: link("episode", { run: values.run, id: row.id }) }, outcome(row)), row.is_branch && h("span", { class: "chip", title: "played on from another episode" }, "branch")),
    h("td", { class: "right" }, row.step),
    h("td", {}, h("a", { class: "quiet", href: link("episodes", { run: values.run, task: row.task }), title: "this task over training" }, row.task)),
    h("td", { class: "right" }, short(row.value)), h("td", { class: "right" }, count(row.turns)), h("td", { class: "right" }, count(row.tokens)), h("td", { class: "right soft" }, duration(row.seconds)),
    h("td", { class: "soft" }, row.phase),
    h("td", { class: "soft small" }, Object.entries(row.terms).map(([name, value]) => h("span", { class: "term" }, `${name} ${short(value)}`)))));
  const last = Math.min(found.total, offset + SIZE);
  const pages = h("div", { class: "pages" }, h("span", { id: "total" }, found.total ? `${count(offset + 1)} to ${count(last)} of ${count(found.total)}` : "no episode"),
    h("button", { class: "plain", disabled: offset === 0, onclick: () => change({ offset: Math.max(0, offset - SIZE) }) }, "← before"),
    h("button", { class: "plain", disabled: last >= found.total, onclick: () => change({ offset: offset + SIZE }) }, "next →"));
  const unread = found.num_episodes - found.num_read;

  put(place, h("h1", { class: "sr" }, "Episodes"), form,
    values.task && history && drawTask(values, history.episodes),
    unread > 0 && h("p", { class: "soft small", id: "unread" }, `Words, tools, seats and terms of ${count(unread)} of ${count(found.num_episodes)} episodes are still being read; searches find more soon.`),
    !found.has_words && h("p", { class: "soft small" }, "This SQLite cannot search for words."),
    h("div", { class: "scroll" }, h("table", { class: "list" }, h("caption", { class: "sr" }, "Episodes"), h("thead", {}, head), h("tbody", {}, rows))), pages);

  shown.keys = (event) => {
    const all = [...place.querySelectorAll("tbody tr")];
    const at = all.indexOf(document.activeElement?.closest("tr"));
    if (event.key === "j" || event.key === "k") {
      all[Math.max(0, Math.min(all.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
      return true;
    }
    return false;
  };
  shown.refresh = async () => {
    try {
      const fresh = await ask("episodes", { sort: "-order", ...values, limit: SIZE, offset });
      const total = document.getElementById("total");
      if (fresh.total !== found.total && total) {
        total.textContent = `${count(offset + 1)} to ${count(last)} of ${count(fresh.total)}`;
        if (!place.querySelector(".fresh")) pages.append(h("button", { class: "plain fresh live-only", onclick: () => change({}) }, "there are more: show them"));
      }
    } catch {
      // asked again with the next pulse
    }
  };
}

function drawTask(values, rows) {
  const scored = rows.filter((row) => row.value !== null);
  const steps = [...new Set(scored.map((row) => row.step))];
  const mean = (step, of) => {
    const own = scored.filter((row) => row.step === step).map(of);
    return own.reduce((a, b) => a + b, 0) / own.length;
  };
  const solved = scored.filter((row) => row.success).length;
  return h("section", { class: "task" }, h("p", {}, h("b", {}, values.task), ` · ${count(rows.length)} episodes, ${scored.length ? percent(solved / scored.length, 0) : "none"} solved`),
    steps.length > 1 && chart({ title: "This task over training", height: 130, curves: [
      { name: "solved", colour: 0, x: steps, y: steps.map((step) => mean(step, (row) => row.success)), step: steps, dots: true },
      { name: "return", colour: 1, dash: true, x: steps, y: steps.map((step) => mean(step, (row) => row.value)), step: steps, dots: true }] }));
}

// What was learned from: the funnel of examples, pairs side by side, and what people said of them.

import { act, ask, change, link, problem } from "./api.js";
import { clock, count, h, percent, put } from "./dom.js";
import { member } from "./tokens.js";

const MOST = 12;

export async function show(shown) {
  const { values, place } = shown;
  const found = await ask("data", { run: values.run, step: values.step });
  const at = Math.min(Number(values.pair ?? 0) || 0, Math.max(0, found.pairs.length - 1));
  const pair = found.pairs[at];
  const sides = pair ? await Promise.all(pair.map((id) => ask("episode", { run: values.run, id }))) : [];
  const last = found.funnels.at(-1);
  put(place, h("h1", { class: "sr" }, "Data"),
    h("section", {}, h("h2", {}, "Funnel"), last ? funnel(found) : h("p", { class: "soft" }, "This run's method filters nothing: its steps learn from the episodes that were collected for them.")),
    h("section", {}, h("h2", {}, "Pairs"), pair ? [
      h("div", { class: "toolbar live-only" },
        h("label", {}, "step ", h("select", { id: "pair-step", onchange: (event) => change({ step: event.target.value, pair: undefined }) }, found.steps_with_pairs.map((step) => h("option", { value: step, selected: step === found.step }, step)))),
        h("button", { class: "plain", disabled: at === 0, onclick: () => change({ pair: at - 1 }) }, "← before"),
        h("span", {}, `pair ${at + 1} of ${count(found.pairs.length)}`),
        h("button", { class: "plain", disabled: at >= found.pairs.length - 1, onclick: () => change({ pair: at + 1 }) }, "after →")),
      h("div", { class: "side-by-side", style: { "--count": 2 } }, member(sides[0], values, 0, "chosen"), member(sides[1], values, 1, "rejected")),
    ] : h("p", { class: "soft" }, "No step compared episodes with each other.")),
    h("section", {}, h("h2", {}, "Labels"), labels(values, found.labels)));
  shown.keys = (event) => {
    const next = { j: at + 1, k: at - 1 }[event.key];
    if (next === undefined || next < 0 || next >= found.pairs.length) return false;
    change({ pair: next });
    return true;
  };
}

function funnel(found) {
  const last = found.funnels.at(-1);
  const most = Math.max(1, ...last.counts.map(([, number]) => number));
  return [
    h("p", { class: "soft" }, `${last.when}: ${count(last.counts.at(-1)[1])} of ${count(last.counts[0][1])} examples were left, with ${count(last.tokens)} tokens to train. A bar is what a stage left of what came to it.`),
    h("table", { class: "funnel" }, h("tbody", {}, last.counts.map(([name, number], at) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "right" }, count(number)), h("td", { class: "right soft" }, at && number !== last.counts[at - 1][1] ? `${number > last.counts[at - 1][1] ? "+" : ""}${count(number - last.counts[at - 1][1])}` : ""), h("td", { class: "wide" }, h("div", { class: "bar" }, h("i", { style: { width: `${(100 * number) / most}%` } }))))))),
    found.num_funnels > 1 && h("details", {}, h("summary", {}, `${found.num_funnels} steps have one`), h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "when"), h("th", { scope: "col" }, "stages"))), h("tbody", {}, found.funnels.slice(-MOST).map((each) => h("tr", {}, h("td", {}, each.when), h("td", {}, each.counts.map(([name, number]) => `${name} ${count(number)}`).join(" → "))))))),
  ];
}

function labels(values, found) {
  const told = h("div", {});
  const who = h("input", { type: "text", id: "labeller", autocomplete: "off", placeholder: "your name", value: remember() });
  const level = h("select", { id: "level" }, h("option", { value: "episode" }, "two episodes of a task"), h("option", { value: "step" }, "the turn in which they part"));
  const number = h("input", { type: "number", id: "questions", min: found.queries, max: 1000, step: 1, value: found.queries || 50 });
  const begin = h("form", { class: "filters live-only", onsubmit: async (event) => {
    event.preventDefault();
    try {
      remember(who.value.trim());
      location.assign((await act("label", { run: values.run, labeller: who.value, level: level.value, count: Number(number.value) || 0 })).address);
    } catch (error) {
      put(told, problem(error));
    }
  } }, h("label", {}, h("span", {}, "who answers"), who), h("label", {}, h("span", {}, "what is compared"), level), h("label", {}, h("span", {}, "questions in all"), number), h("button", { class: "plain" }, "Compare, side by side"));
  const how = h("p", { class: "soft small" }, "Answers go into the run's labels.jsonl, the one file that is written here. The same in a terminal: ", h("code", {}, `quintain label ${values.run} --labeller NAME`), "; what was preferred, to learn from: ", h("code", {}, `quintain label ${values.run} --export pairs.jsonl`), ".");
  if (found.problem) return [h("p", { class: "problem" }, found.problem), how];
  if (!found.queries) return [h("p", { class: "soft" }, "Nobody has compared episodes of this run yet."), begin, told, how];
  return [
    h("p", {}, `${count(found.num_given)} answers to ${count(found.queries)} questions.`, found.num_opposite > 0 && ` Opposite answers to ${count(found.num_opposite)}.`,
      found.labellers.map((each) => ` ${each.name} answered ${count(each.answered)}.`),
      found.agreements.map((each) => ` ${each.labellers.join(" and ")} agree on ${percent(each.share)} of ${count(each.num)} (Cohen's kappa ${each.kappa === null ? "–" : each.kappa.toFixed(2)}).`)),
    begin, told,
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, ["who", "said", "when", "of"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, found.given.map((each) => h("tr", {}, h("td", {}, each.labeller), h("td", {}, each.choice), h("td", { class: "soft" }, Number.isNaN(Date.parse(each.time)) ? each.time : clock(Date.parse(each.time) / 1000)), h("td", {}, each.sources.length === 2 && each.sources.every((id) => /^[0-9a-f]{20}$/.test(id)) ? h("a", { href: link("group", { run: values.run, id: each.sources[0], other: each.sources[1] }) }, "both episodes") : each.query.slice(0, 12))))))), how];
}

// The name under which somebody answered last in this browser; a new one is kept.
function remember(name) {
  try {
    if (name) localStorage.setItem("labeller", name);
    return localStorage.getItem("labeller") ?? "";
  } catch {
    return "";
  }
}

// Two evaluations, paired by task: the difference with its interval, and the tasks that differ most.

import { ask, change } from "./api.js";
import { count, h, percent, put, s, short } from "./dom.js";
import { member } from "./tokens.js";

export async function show(shown, known) {
  const { values, place } = shown;
  const other = values.with ?? values.run;
  shown.runs = [...new Set([values.run, other])];
  const found = await ask("compare", { run: values.run, with: other, first: values.first ?? (other === values.run ? 0 : undefined), second: values.second });
  const chosen = found.tasks.find((each) => each.task === values.task) ?? found.tasks[0];
  const sides = chosen ? await Promise.all(chosen.episodes.map((own, at) => (own[0] ? ask("episode", { run: found.runs[at], id: own[0].id }) : null))) : [];
  const steps = (at, key) => h("select", { id: `step-${key}`, "aria-label": `Evaluation of ${found.runs[at]}`, onchange: (event) => change({ [key]: event.target.value }) }, found.evaluations[at].map((step) => h("option", { value: step, selected: step === found.steps[at] }, `step ${step}`)));
  const d = found.difference;
  put(place, h("h1", { class: "sr" }, "Compare"),
    h("div", { class: "toolbar live-only" }, h("b", {}, found.runs[0]), steps(0, "first"), h("span", {}, "against"),
      h("select", { id: "with", "aria-label": "Other run", onchange: (event) => change({ with: event.target.value, second: undefined, task: undefined }) }, known.filter((run) => run.status !== "damaged").map((run) => h("option", { value: run.name, selected: run.name === found.runs[1] }, run.name))), steps(1, "second")),
    h("section", { class: "tiles" }, found.names.map((name, at) => h("div", { class: "tile" }, h("b", {}, percent(found.rates[at])), h("span", {}, name), h("span", { class: "soft" }, `${count(found.num[at])} episodes`))),
      d && h("div", { class: "tile" }, h("b", {}, `${d.mean > 0 ? "+" : ""}${(100 * d.mean).toFixed(1)} points`), h("span", {}, `${(100 * d.low).toFixed(1)} to ${(100 * d.high).toFixed(1)} (95 %)`), h("span", { class: "soft" }, `${count(d.num)} tasks paired, p ${d.p < 0.001 ? "< 0.001" : d.p.toPrecision(2)}`))),
    d && interval(d),
    found.notes.map((note) => h("p", { class: "notice" }, note)),
    h("p", { class: "soft" }, `Better on ${count(found.counts.better)} tasks, worse on ${count(found.counts.worse)}, the same on ${count(found.counts.same)}. The interval is over tasks: it says which of these two is better, not which method is.`),
    h("div", { class: "split even" },
      h("div", { class: "scroll tall" }, h("table", { class: "list" }, h("caption", { class: "sr" }, "Tasks, those that differ most first"), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "task"), found.names.map((name) => h("th", { scope: "col", class: "right" }, name)), h("th", { scope: "col", class: "right" }, "difference"))),
        h("tbody", {}, found.tasks.map((each) => h("tr", { tabindex: 0, "aria-selected": each === chosen ? "true" : null, class: each === chosen ? "chosen" : "", onclick: () => change({ task: each.task }), onkeydown: (event) => event.key === "Enter" && change({ task: each.task }) },
          h("td", {}, each.task), each.success.map((rate, at) => h("td", { class: "right" }, percent(rate, 0), " ", h("span", { class: "soft small" }, short(each.value[at])))), h("td", { class: `right ${each.difference > 0 ? "up" : each.difference < 0 ? "down" : "soft"}` }, each.difference === 0 ? "=" : `${each.difference > 0 ? "+" : "−"}${(100 * Math.abs(each.difference)).toFixed(0)}`)))))),
      chosen && h("div", { class: "side-by-side", style: { "--count": 2 } }, sides.map((side, at) => side && member(side, { run: found.runs[at] }, at, found.names[at])))));
}

function interval(d) {
  const reach = Math.max(Math.abs(d.low), Math.abs(d.high), 0.05) * 1.15;
  const X = (value) => 300 + (280 * value) / reach;
  return s("svg", { class: "interval", viewBox: "0 0 600 34", role: "img", "aria-label": `difference ${(100 * d.mean).toFixed(1)} points, from ${(100 * d.low).toFixed(1)} to ${(100 * d.high).toFixed(1)}` },
    s("line", { class: "grid", x1: 10, x2: 590, y1: 17, y2: 17 }), s("line", { class: "zero", x1: 300, x2: 300, y1: 4, y2: 30 }),
    s("line", { class: "whisker s0", x1: X(d.low), x2: X(d.high), y1: 17, y2: 17 }), s("circle", { class: "dot f0", cx: X(d.mean), cy: 17, r: 6 }),
    s("text", { class: "tick", x: 12, y: 12 }, "worse"), s("text", { class: "tick", x: 588, y: 12, "text-anchor": "end" }, "better"));
}

// How a run goes: what it does now, alarms with their cures, curves of one or several runs, who worked and who waited.

import { ask, change, link } from "./api.js";
import { areas, chart, strips } from "./chart.js";
import { clock, count, duration, h, percent, plural, put, short } from "./dom.js";

// title, unit, metrics: [name in the legend, metric, {low, high, dots, faint}]
const CHARTS = [
  ["Success", "share", [["held out", "eval/success", { low: "eval/low", high: "eval/high", dots: true }], ["in training", "train/success", { faint: true }]]],
  ["Return", "", [["held out", "eval/return", { dots: true }], ["in training", "train/reward", { faint: true }]]],
  ["Loss", "", [["loss", "train/loss"], ["held out", "eval/loss", { dots: true }]]],
  ["Gradient norm", "", [["Gradient norm", "train/grad_norm"]]],
  ["Entropy", "", [["of the policy", "policy/entropy"], ["of actions", "monitor/entropy"]]],
  ["KL", "", [["from the sampler", "policy/approx_kl"], ["from the reference", "policy/kl"], ["from the reference", "kl/mean"]]],
  ["Clipped tokens", "share", [["Clipped tokens", "policy/clip_fraction"]]],
  ["Tokens of an episode", "", [["in training", "train/tokens"], ["held out", "eval/tokens", { dots: true }]]],
  ["Turns of an episode", "", [["in training", "train/turns"], ["held out", "eval/turns", { dots: true }]]],
  ["What went wrong", "share", [["unreadable", "monitor/unreadable"], ["invalid", "train/invalid"], ["failed", "train/failures"], ["cut off", "train/truncated"]]],
  ["Groups that teach nothing", "share", [["all the same", "monitor/zero_variance"], ["of them solved", "monitor/solved"]]],
  ["Engine against learner", "", [["mean gap of log-probs", "gap/mean"], ["largest", "gap/max"]]],
  ["Throughput (tokens a second)", "", [["Throughput (tokens a second)", "tokens_per_second"]]],
  ["Memory (GiB)", "", [["Memory (GiB)", "machine/memory_gib"]]],
];
const TERM = /^(reward|term|seat)s?\//;
const WORKERS = [["engine", "machine/engine_idle"], ["environments", "machine/environments_idle"], ["learner", "machine/learner_idle"]];
const LINES = 6;

export async function show(shown, known) {
  const { values, place } = shown;
  const names = [...new Set([values.run, ...(values.with ?? "").split(",").filter(Boolean)])].slice(0, 8);
  shown.runs = names;
  const axis = values.axis ?? "step";
  const more = (values.more ?? "").split(",").filter(Boolean);
  const run = await ask("run", { run: values.run });
  const has = new Set(run.metrics);
  const terms = run.metrics.filter((name) => TERM.test(name)).slice(0, LINES);
  const times = run.metrics.filter((name) => name.startsWith("time/") && !["time/seconds", "time/step"].includes(name)).slice(0, 8);
  const wanted = [...new Set([...CHARTS.flatMap(([, , lines]) => lines.flatMap(([, metric, more]) => [metric, more?.low, more?.high])), ...terms, ...times, "time/step", ...WORKERS.map(([, name]) => name), ...more].filter((name) => name && (has.has(name) || names.length > 1)))];
  const found = await Promise.all(names.map((name) => ask("metrics", { run: name, names: wanted.join(","), axis })));

  const now = h("section", { class: "now", "aria-label": "Now" });
  const alarms = h("section", { "aria-label": "Alarms" });
  drawNow(now, run);
  drawAlarms(alarms, run);
  const field = h("input", { type: "search", list: "metrics", placeholder: "add a metric…", "aria-label": "Add a metric", onchange: (event) => has.has(event.target.value) && change({ more: [...more, event.target.value].join(",") }) });
  const others = known.filter((each) => each.name !== values.run && each.status !== "damaged").slice(0, 30);

  const settings = h("section", { "aria-label": "Options" });
  put(place,
    h("h1", { class: "sr" }, `Overview of ${run.name}`),
    now,
    h("section", { class: "tiles", "aria-label": "Figures" }, run.tiles.map(tile)),
    run.notices.length > 0 && h("div", { class: "notice" }, h("b", {}, "To be known of this run"), run.notices.map((each) => h("p", {}, each))),
    alarms,
    h("section", { class: "controls live-only" },
      h("div", { class: "choice", role: "group", "aria-label": "Axis" }, [["step", "steps"], ["tokens", "tokens"], ["seconds", "seconds"]].map(([key, name]) => h("button", { "aria-pressed": String(key === axis), onclick: () => change({ axis: key }) }, name))),
      others.length > 0 && h("details", { class: "menu" }, h("summary", {}, names.length > 1 ? `${names.length} runs` : "Lay runs over it"),
        h("div", { class: "panel" }, others.map((each) => h("label", {}, h("input", { type: "checkbox", checked: names.includes(each.name), onchange: (event) => change({ with: (event.target.checked ? [...names.slice(1), each.name] : names.slice(1).filter((name) => name !== each.name)).join(",") }) }), each.name)))),
      field, h("datalist", { id: "metrics" }, run.metrics.map((name) => h("option", { value: name })))),
    h("section", { class: "charts", "aria-label": "Curves" }, drawCharts({ found, names, axis, terms, times, more, has })),
    h("section", { class: "columns" },
      drawFailures(run),
      h("div", {}, h("h2", {}, "Events"), events(run))),
    settings);
  // The defaults that options are compared with are loaded with the method: nothing else waits for it.
  shown.filled = ask("options", { run: values.run }).then((found) => put(settings, options(run, found.options)), (error) => put(settings, h("p", { class: "problem" }, error.message)));

  let busy = false;
  shown.refresh = async () => {
    if (busy) return;
    busy = true;
    try {
      const open = place.querySelector("details.menu[open], details.all[open]") || place.contains(document.activeElement) && /^(INPUT|SELECT)$/.test(document.activeElement.tagName);
      if (open) drawNow(now, await ask("run", { run: values.run }));
      else {
        const fresh = { ...shown, place: h("div", {}) };
        await show(fresh, known);
        await fresh.filled;
        if (shown.isCurrent()) {
          const at = scrollY;
          place.replaceChildren(...fresh.place.childNodes);
          scrollTo(0, at);
        }
      }
    } catch {
      // the run is being written; the next pulse asks again
    } finally {
      busy = false;
    }
  };
}

function tile(each) {
  const value = each.unit === "share" ? percent(each.value) : each.unit === "seconds" ? duration(each.value) : short(each.value);
  const band = each.low !== undefined && each.low !== null ? `${percent(each.low, 0)} to ${percent(each.high, 0)}` : "";
  return h("div", { class: "tile" }, h("b", {}, value), h("span", {}, each.name, each.step !== undefined && ` (${each.step})`), h("span", { class: "soft" }, band));
}

function drawNow(place, run) {
  const now = run.now;
  const isOn = now.status === "running";
  const share = now.total_steps ? Math.min(1, (now.last_step ?? 0) / now.total_steps) : null;
  const collected = Object.entries(now.collected).map(([phase, number]) => (phase === "train" && now.expected ? `${count(number)} of ${count(now.expected)} episodes of the next step` : `${count(number)} episodes of ${phase}`));
  const words = [
    now.last_step === null ? "no step yet" : `step ${count(now.last_step)}${now.total_steps ? ` of ${count(now.total_steps)}` : ""}`,
    ...(isOn ? collected : []),
    isOn && now.step_seconds !== null && `${duration(now.step_seconds)} a step`,
    isOn && now.seconds_left !== null && `about ${duration(now.seconds_left)} left, until ${new Date(Date.now() + 1000 * now.seconds_left).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}`,
    isOn && now.quiet_seconds !== null && now.quiet_seconds > 60 && `nothing written for ${duration(now.quiet_seconds)}`,
    run.best !== null && `best on held-out tasks: step ${count(run.best)}`,
    `${count(run.num_episodes)} episodes`,
  ].filter(Boolean);
  put(place,
    h("div", { class: "line" }, h("b", { class: "name" }, run.name), h("span", { class: "soft" }, run.recipe), h("span", { class: `status ${now.status}` }, now.status), words.map((each) => h("span", {}, each))),
    share !== null && h("div", { class: `progress ${isOn ? "on" : ""}`, role: "progressbar", "aria-label": "Steps", "aria-valuemin": 0, "aria-valuemax": now.total_steps, "aria-valuenow": now.last_step ?? 0 }, h("i", { style: { width: `${100 * share}%` } })),
    now.status === "interrupted" && h("p", { class: "soft" }, "It was interrupted. Go on with ", h("code", {}, `quintain resume ${run.name}`), "."),
    run.problem && h("p", { class: "problem" }, run.problem));
}

function drawAlarms(place, run) {
  const kept = run.events.filter((event) => event.kind === "alarm" || event.kind === "note");
  const groups = new Map();
  for (const event of kept) {
    const key = `${event.kind} ${event.name} ${event.subject}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(event);
  }
  if (!groups.size) return put(place);
  put(place, h("h2", {}, "Alarms"), [...groups.values()].map((events) => {
    const last = events.at(-1);
    const steps = events.map((event) => event.step).filter((step) => step !== null);
    return h("div", { class: `alarm ${last.kind}` },
      h("div", { class: "head" }, h("i", { class: "sign", "aria-hidden": "true" }, last.kind === "alarm" ? "▲" : "●"), h("b", {}, last.name || last.kind), last.subject && h("code", {}, last.subject),
        h("span", { class: "soft" }, steps.length ? `step ${steps.slice(-5).join(", ")}${steps.length > 5 ? ` and ${steps.length - 5} times before` : ""}` : clock(last.time)),
        steps.length > 0 && h("a", { href: link("episodes", { run: run.name, step: steps.at(-1) }) }, "its episodes")),
      h("p", {}, last.message));
  }));
}

function drawCharts({ found, names, axis, terms, times, more, has }) {
  const marks = found.flatMap((each) => each.alarms).map((each) => ({ x: each.x, kind: each.kind, label: `${each.name || each.kind} at step ${each.step}: ${each.message}` }));
  const several = names.length > 1;
  const charts = [];
  const lines = (wanted) => found.flatMap((each, place) => wanted.flatMap(([name, metric, options], at) => {
    const curve = each.curves[metric];
    if (!curve?.x.length) return [];
    const band = options?.low ? aligned(curve, each.curves[options.low], each.curves[options.high]) : curve.low ? { low: curve.low, high: curve.high } : {};
    return [{ name: several ? (wanted.length > 1 ? `${each.run} · ${name}` : each.run) : name, colour: several ? place : at, dash: several && at > 0, x: curve.x, y: curve.y, step: curve.step, dots: options?.dots, faint: options?.faint, ...band }];
  }));
  for (const [title, unit, wanted] of [...CHARTS.slice(0, 2), ["Reward terms", "", terms.map((name) => [name.replace(TERM, ""), name])], ...CHARTS.slice(2), ...more.map((name) => [name, "", [[name, name]]])]) {
    const curves = lines(wanted);
    if (curves.length) charts.push(chart({ title, curves, unit, marks, axis }));
  }
  const own = found[0].curves;
  const busy = WORKERS.filter(([, name]) => own[name]?.x.length).map(([name, metric]) => ({ name, x: own[metric].step, y: own[metric].y.map((value) => 1 - value) }));
  if (busy.length) {
    const at = busy.map((row) => new Map(row.x.map((step, place) => [step, row.y[place]])));
    const all = [...new Set(busy.flatMap((row) => row.x))].sort((a, b) => a - b);
    const waits = { name: "nobody", x: all, y: all.map((step) => Math.max(0, 1 - at.reduce((sum, row) => sum + (row.get(step) ?? 0), 0))) };
    charts.push(strips({ title: "Who worked", rows: busy.length > 1 ? [...busy, waits] : busy, note: "Share of the time of each step. Of several that work at once each counts by itself." }));
  }
  const parts = times.filter((name) => own[name]?.x.length).map((name) => ({ name: name.slice(5).replaceAll("_", " "), x: own[name].x, y: own[name].y }));
  if (parts.length) charts.push(areas({ title: "Time of a step, by part", parts, axis }));
  if (!charts.length) charts.push(h("p", { class: "soft" }, "No step has been recorded yet; curves appear here as soon as there is one."));
  return charts;
}

function aligned(curve, low, high) {
  if (!low || !high) return {};
  const at = (band) => new Map(band.x.map((x, place) => [x, band.y[place]]));
  const [lows, highs] = [at(low), at(high)];
  return { low: curve.x.map((x) => lows.get(x) ?? null), high: curve.x.map((x) => highs.get(x) ?? null) };
}

function drawFailures(run) {
  const owners = new Map();
  for (const each of run.failures) {
    const key = `${each.owner} ${each.kind}`;
    const known = owners.get(key) ?? { ...each, num: 0, steps: [] };
    known.num += each.num;
    known.steps.push(each.step);
    owners.set(key, known);
  }
  const rows = [...owners.values()].sort((a, b) => b.num - a.num);
  const most = Math.max(1, ...rows.map((row) => row.num));
  return h("div", {}, h("h2", {}, "Failures by owner"),
    rows.length ? h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "owner"), h("th", { scope: "col" }, "kind"), h("th", { scope: "col", class: "right" }, "episodes"), h("th", {}, h("span", { class: "sr" }, "share")))),
      h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, row.owner), h("td", {}, h("a", { href: link("episodes", { run: run.name, owner: row.owner, kind: row.kind }) }, row.kind)), h("td", { class: "right" }, count(row.num)), h("td", {}, bar(row.num / most))))))
      : h("p", { class: "soft" }, "No episode failed for reasons outside of the policy."));
}

const bar = (share) => h("div", { class: "bar" }, h("i", { style: { width: `${Math.max(1, 100 * share)}%` } }));

function events(run) {
  const kept = run.events.filter((event) => event.kind !== "alarm" && event.kind !== "note").slice(-12).toReversed();
  return kept.length ? h("ul", { class: "events" }, kept.map((event) => h("li", {}, h("span", { class: "soft" }, clock(event.time)), " ", h("b", {}, event.kind), " ", event.message)))
    : h("p", { class: "soft" }, "Nothing happened but steps.");
}

function options(run, all) {
  const write = (value) => (typeof value === "object" && value !== null ? JSON.stringify(value) : String(value));
  const differing = all.filter((option) => option.differs);
  const rows = (kept) => h("table", { class: "options" }, h("tbody", {}, kept.map((option) => h("tr", { class: option.differs ? "differs" : "" }, h("th", { scope: "row" }, option.name), h("td", {}, write(option.value))))));
  return [h("h2", {}, "Options"),
    differing.length > 0 && [h("p", { class: "soft" }, `${plural(differing.length, "option")} differ from the method's defaults:`), rows(differing)],
    h("details", { class: "all" }, h("summary", {}, `all ${all.length} options`), rows(all)),
    run.checkpoints.length > 0 && h("p", { class: "soft" }, `Checkpoints kept: steps ${run.checkpoints.toSorted((a, b) => a - b).join(", ")}.`)];
}

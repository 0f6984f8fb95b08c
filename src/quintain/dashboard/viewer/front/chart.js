// Line charts in SVG: curves with bands, marks on the time axis, and a reading under the pointer or by arrow keys.

import { h, put, s, short, percent } from "./dom.js";

const SPACE = { top: 10, right: 12, bottom: 24, left: 46 };
const drawn = new Set();
const watcher = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const chart = entry.target.chart;
    if (chart && Math.abs(chart.width - entry.contentRect.width) > 4) chart.draw(entry.contentRect.width);
  }
});

export function ticks(low, high, wanted = 4) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? rough;
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-6; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

const write = (unit, value) => (unit === "share" ? percent(value, Math.abs(value) < 0.1 && value !== 0 ? 1 : 0) : unit === "seconds" ? `${short(value)} s` : short(value));

// curves: [{name, colour: 0–7, dash, x: [], y: [], low, high, step, dots}], marks: [{x, label, kind}]
export function chart({ title, curves, unit = "", marks = [], axis = "step", height = 168, note = "" }) {
  const body = h("div", { class: "plot" });
  const legend = h("div", { class: "legend" });
  const reading = h("div", { class: "reading", "aria-live": "off" });
  const figure = h("figure", { class: "chart" }, h("figcaption", {}, h("span", { class: "title" }, title), reading), body, legend, note && h("p", { class: "soft small" }, note));
  const state = { width: 0, draw, curves, marks };
  body.chart = state;
  watcher.observe(body);
  drawn.add(state);
  if (curves.length > 1 || curves[0]?.name !== title)
    for (const curve of curves)
      legend.append(h("span", { class: "key" }, h("i", { class: `swatch s${curve.colour % 8} ${curve.dash ? "dashed" : ""}` }), curve.name));
  draw(360);
  return figure;

  function draw(width) {
    state.width = width;
    const inner = { w: Math.max(60, width - SPACE.left - SPACE.right), h: height - SPACE.top - SPACE.bottom };
    const xs = curves.flatMap((curve) => curve.x);
    const ys = curves.flatMap((curve) => [...curve.y, ...(curve.low ?? []), ...(curve.high ?? [])]).filter((value) => value !== null);
    if (!ys.length) return put(body, h("p", { class: "soft small" }, "no value yet"));
    let [low, high] = [Math.min(...ys), Math.max(...ys)];
    if (unit === "share" && low >= 0 && high <= 1) {
      low = 0;
      high = high > 0.5 ? 1 : Math.max(high * 1.1, 0.02);
    } else {
      if (low > 0 && low < 0.6 * high) low = 0;
      const pad = (high - low || Math.abs(high) || 1) * 0.06;
      high += pad;
      if (low !== 0) low -= pad;
    }
    const first = Math.min(...xs), last = Math.max(...xs);
    const X = (value) => SPACE.left + (last > first ? ((value - first) / (last - first)) * inner.w : inner.w / 2);
    const Y = (value) => SPACE.top + inner.h - ((value - low) / (high - low || 1)) * inner.h;
    const lines = ticks(low, high).map((value) => [
      s("line", { class: "grid", x1: SPACE.left, x2: SPACE.left + inner.w, y1: Y(value), y2: Y(value) }),
      s("text", { class: "tick", x: SPACE.left - 6, y: Y(value) + 3.5, "text-anchor": "end" }, write(unit, value)),
    ]);
    const below = ticks(first, last, Math.max(2, Math.floor(inner.w / 56))).map((value) =>
      s("text", { class: "tick", x: X(value), y: height - 6, "text-anchor": "middle" }, axis === "seconds" ? `${short(value)} s` : short(value)),
    );
    const path = (points) => points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    const shapes = curves.map((curve) => {
      const kept = curve.x.map((x, at) => at).filter((at) => curve.y[at] !== null);
      const parts = [];
      if (curve.low && curve.high) {
        const banded = kept.filter((at) => curve.low[at] !== null && curve.high[at] !== null && curve.low[at] !== undefined);
        const edge = [...banded.map((at) => [X(curve.x[at]), Y(curve.high[at])]), ...banded.toReversed().map((at) => [X(curve.x[at]), Y(curve.low[at])])];
        if (banded.length > 1) parts.push(s("path", { class: `band f${curve.colour % 8}`, d: `${path(edge)}Z` }));
        else if (banded.length) parts.push(s("line", { class: `whisker s${curve.colour % 8}`, x1: X(curve.x[banded[0]]), x2: X(curve.x[banded[0]]), y1: edge[0][1], y2: edge[1][1] }));
      }
      parts.push(s("path", { class: `curve s${curve.colour % 8} ${curve.dash ? "dashed" : ""} ${curve.faint ? "faint" : ""}`, d: path(kept.map((at) => [X(curve.x[at]), Y(curve.y[at])])) }));
      if (curve.dots || kept.length === 1) parts.push(...kept.map((at) => s("circle", { class: `dot f${curve.colour % 8}`, cx: X(curve.x[at]), cy: Y(curve.y[at]), r: 2.6 })));
      return parts;
    });
    const alarms = marks.filter((mark) => mark.x >= first && mark.x <= last).map((mark) =>
      s("path", { class: `mark ${mark.kind}`, d: `M${X(mark.x) - 4.5} ${SPACE.top + inner.h + 8}L${X(mark.x)} ${SPACE.top + inner.h}L${X(mark.x) + 4.5} ${SPACE.top + inner.h + 8}Z` }, s("title", {}, mark.label)),
    );
    const hairs = marks.filter((mark) => mark.kind === "alarm" && mark.x >= first && mark.x <= last).map((mark) => s("line", { class: "alarm-line", x1: X(mark.x), x2: X(mark.x), y1: SPACE.top, y2: SPACE.top + inner.h }));
    const hair = s("line", { class: "hair", y1: SPACE.top, y2: SPACE.top + inner.h, visibility: "hidden" });
    const points = s("g", {});
    const said = curves.map((curve) => `${curve.name}: from ${write(unit, curve.y[0])} to ${write(unit, curve.y.at(-1))}`).join("; ");
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": `${title} over ${axis}. ${said}` },
      lines, below, hairs, shapes, alarms, hair, points);
    state.read = (place) => {
      points.replaceChildren();
      if (place === null || place < first || place > last) {
        hair.setAttribute("visibility", "hidden");
        put(reading);
        return;
      }
      hair.setAttribute("x1", X(place));
      hair.setAttribute("x2", X(place));
      hair.setAttribute("visibility", "visible");
      const near = curves.map((curve) => [curve, nearest(curve.x, place)]).filter(([curve, at]) => at !== null && curve.y[at] !== null);
      for (const [curve, at] of near) points.append(s("circle", { class: `dot f${curve.colour % 8}`, cx: X(curve.x[at]), cy: Y(curve.y[at]), r: 3.2 }));
      const step = near[0] ? (near[0][0].step?.[near[0][1]] ?? near[0][0].x[near[0][1]]) : place;
      put(reading, h("span", { class: "soft" }, `step ${short(step)}`), near.map(([curve, at]) => h("span", {}, h("i", { class: `swatch s${curve.colour % 8} ${curve.dash ? "dashed" : ""}` }), write(unit, curve.y[at]))));
    };
    state.place = null;
    const everywhere = (place) => {
      for (const other of drawn) if (other.read) other.read(place);
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const at = ((event.clientX - box.left - SPACE.left) / inner.w) * (last - first) + first;
      everywhere(Math.max(first, Math.min(last, at)));
    });
    svg.addEventListener("pointerleave", () => everywhere(null));
    svg.addEventListener("keydown", (event) => {
      const places = [...new Set(xs)].sort((a, b) => a - b);
      const now = state.place === null ? -1 : places.findIndex((each) => each >= state.place);
      const next = { ArrowRight: Math.min(places.length - 1, now + 1), ArrowLeft: Math.max(0, now - 1), Home: 0, End: places.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      state.place = places[next];
      everywhere(state.place);
    });
    svg.addEventListener("blur", () => everywhere(null));
    put(body, svg);
  }
}

export function forget() {
  drawn.clear();
  watcher.disconnect();
}

function nearest(places, wanted) {
  let best = null;
  for (let at = 0; at < places.length; at++) if (best === null || Math.abs(places[at] - wanted) < Math.abs(places[best] - wanted)) best = at;
  return best;
}

// Rows of cells over steps: rows: [{name, x: [], y: [0–1]}]
export function strips({ title, rows, note = "" }) {
  const body = h("div", { class: "strips" });
  for (const row of rows) {
    const size = Math.ceil(row.x.length / 120) || 1;
    const cells = [];
    for (let at = 0; at < row.x.length; at += size) {
      const part = row.y.slice(at, at + size);
      cells.push([row.x[at], part.reduce((a, b) => a + b, 0) / part.length]);
    }
    const mean = row.y.reduce((a, b) => a + b, 0) / (row.y.length || 1);
    body.append(
      h("div", { class: "strip" }, h("span", { class: "name" }, row.name),
        h("div", { class: "cells", role: "img", "aria-label": `${row.name} worked ${percent(mean, 0)} of the time on average` },
          cells.map(([x, value]) => h("i", { class: `q${Math.max(0, Math.min(8, Math.round(8 * value)))}`, title: `step ${x}: ${percent(value, 0)}` }))),
        h("span", { class: "number" }, percent(mean, 0))),
    );
  }
  return h("figure", { class: "chart" }, h("figcaption", {}, h("span", { class: "title" }, title)), body, note && h("p", { class: "soft small" }, note));
}

// Parts of a whole over steps, as stacked areas: parts: [{name, x, y}]
export function areas({ title, parts, axis = "step", unit = "seconds", height = 168, note = "" }) {
  const places = [...new Set(parts.flatMap((part) => part.x))].sort((a, b) => a - b);
  const sums = places.map(() => 0);
  const curves = parts.map((part, colour) => {
    const known = new Map(part.x.map((x, at) => [x, part.y[at]]));
    const low = [...sums];
    places.forEach((x, at) => (sums[at] += known.get(x) ?? 0));
    return { name: part.name, colour, x: places, y: [...sums], low, high: [...sums] };
  });
  return chart({ title, curves, axis, unit, height, note });
}

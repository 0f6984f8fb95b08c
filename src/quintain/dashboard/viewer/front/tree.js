// A tree, from left to right: nodes: [{key, parent, label, value, visits, mark, is_chosen, href, go, detail}]

import { h, s, short } from "./dom.js";

const COLUMN = 168, ROW = 36, RADIUS = 5.5, MOST = 24;

// Chosen nodes and the way to them are drawn strong; of a value the fill says how high it is among those shown.
export function drawTree({ title, note = "", nodes }) {
  const children = new Map();
  for (const node of nodes) children.set(node.parent ?? null, [...(children.get(node.parent ?? null) ?? []), node]);
  const values = nodes.map((node) => node.value).filter((value) => value !== null && value !== undefined);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const shade = (value) => (value === null || value === undefined ? "hollow" : `v${high > low ? Math.round((8 * (value - low)) / (high - low)) : 8}`);
  const places = new Map();
  let rows = 0, depth = 0;
  const place = (node, column) => {
    depth = Math.max(depth, column);
    const own = children.get(node.key) ?? [];
    own.forEach((child) => place(child, column + 1));
    const y = own.length ? (places.get(own[0].key).y + places.get(own.at(-1).key).y) / 2 : ROW * (rows++ + 0.6);
    places.set(node.key, { x: 16 + column * COLUMN, y });
  };
  const roots = children.get(null) ?? [];
  roots.forEach((node) => place(node, 0));
  const edges = nodes.filter((node) => node.parent !== null && node.parent !== undefined).map((node) => {
    const [from, to] = [places.get(node.parent), places.get(node.key)];
    return s("path", { class: node.is_chosen ? "edge chosen" : "edge", d: `M${from.x} ${from.y}C${from.x + 90} ${from.y} ${to.x - 70} ${to.y} ${to.x} ${to.y}` });
  });
  const marks = nodes.map((node) => {
    const { x, y } = places.get(node.key);
    const text = `${node.mark ? `${node.mark} ` : ""}${node.label.length > MOST ? `${node.label.slice(0, MOST - 1)}…` : node.label}`;
    const said = [node.label, node.visits !== undefined && `visits ${node.visits}`, node.value !== null && node.value !== undefined && `value ${short(node.value)}`, node.is_chosen && "chosen", node.detail].filter(Boolean).join(", ");
    const inside = [s("title", {}, said), s("circle", { class: shade(node.value), cx: x, cy: y, r: node.is_chosen ? RADIUS + 1 : RADIUS }), s("text", { x: x + 10, y: y - 7 }, text),
      s("text", { class: "figures", x: x + 10, y: y + 15 }, [node.value !== null && node.value !== undefined && short(node.value), node.visits > 0 && `× ${node.visits}`].filter(Boolean).join(" "))];
    const name = node.is_chosen ? "node chosen" : "node";
    const link = node.href ? s("a", { href: node.href, "aria-description": said, class: name }, inside) : s("g", { class: name }, inside);
    if (node.go) link.addEventListener("click", node.go);
    return link;
  });
  const [width, height] = [16 + (depth + 1) * COLUMN, ROW * rows + 8];
  return h("figure", { class: "tree chart" }, h("figcaption", {}, h("span", { class: "title" }, title)),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, s("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, edges, marks)), note && h("p", { class: "soft small" }, note));
}

// An episode token by token: what was given and what was sampled, with all that was recorded of each token.

import { act, ask, change, go, link } from "./api.js";
import { count, duration, h, percent, plural, put, short } from "./dom.js";
import { outcome } from "./episodes.js";
import { drawTree } from "./tree.js";

// key: [name, unit, kind of scale, what it is]
const MEASURES = {
  probability: ["probability", "", "unlikely", "when it was sampled; the less likely, the stronger"],
  learner: ["probability now", "", "unlikely", "by the learner, before the update"],
  change: ["log-prob, now − then", "", "diverging", "learner minus sampler: 0 where both agree"],
  ratio: ["ratio clipped", "", "flag", "learner ÷ sampler beyond the method's clip, in the first epoch"],
  entropy: ["entropy", "", "sequential", "of the policy at this token, in nats"],
  advantage: ["advantage", "", "diverging", "how much better than expected: below 0 it is made less likely"],
  weight: ["weight", "", "sequential", "what its loss is multiplied with; 0 is not trained"],
  value: ["value", "", "diverging", "what the critic expected here"],
  return: ["return", "", "diverging", "what the critic is to expect here"],
  reference: ["reference gap", "", "diverging", "log-prob of the learner minus that of the reference"],
  mask: ["trained or not", "", "flag", "whether the token carried loss"],
};

export function measures(episode, use) {
  const then = episode.turns.flatMap((turn) => turn.logprobs.length ? turn.logprobs : turn.ids.map(() => null));
  const s = use?.signals ?? {};
  const offset = episode.turns[0]?.offset ?? 0;
  const cut = (array) => array?.slice(offset, offset + then.length);
  const now = cut(s.logprobs), weight = cut(s.weights);
  // What was not trained has no log-prob of the learner: it stands as 0 beside a weight of 0.
  const known = (at) => now && now[at] !== null && !(now[at] === 0 && weight && weight[at] === 0);
  const gap = now && then.map((value, at) => (known(at) && value !== null ? now[at] - value : null));
  const reference = cut(s.reference_logprobs);
  const [low, high] = episode.clip ?? [null, null];
  const found = {};
  if (then.some((value) => value !== null)) found.probability = then.map((value) => (value === null ? null : Math.exp(Math.min(0, value))));
  if (now) found.learner = now.map((value, at) => (known(at) ? Math.exp(Math.min(0, value)) : null));
  if (gap?.some((value) => value !== null)) found.change = gap;
  if (gap && low !== null) found.ratio = gap.map((value) => (value === null ? null : Number(Math.exp(value) < low || Math.exp(value) > high)));
  if (s.entropies) found.entropy = cut(s.entropies);
  if (s.advantages) found.advantage = cut(s.advantages);
  if (weight) found.weight = weight;
  if (s.values) found.value = cut(s.values);
  if (s.returns) found.return = cut(s.returns);
  if (reference && now) found.reference = reference.map((value, at) => (known(at) && value !== null ? now[at] - value : null));
  if (weight) found.mask = weight.map((value) => Number(value !== 0));
  return { found, then, now, offset };
}

// The class of a colour, 0 to 8, by the scale of a measure.
export function shade(kind, values, value) {
  if (value === null || value === undefined) return "";
  if (kind === "unlikely") return `u${[0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0.01, 0.001].filter((limit) => value < limit).length}`;
  if (kind === "flag") return value ? "flag" : "";
  const most = values.most;
  if (!most) return "";
  if (kind === "diverging") return `d${Math.round(4 + 4 * Math.max(-1, Math.min(1, value / most)))}`;
  return `q${Math.round(8 * Math.max(0, Math.min(1, value / most)))}`;
}

export async function show(shown) {
  if (shown.page === "group") return showGroup(shown);
  const { values, place } = shown;
  if (!values.id) {
    const found = await ask("episodes", { run: values.run, sort: "-order", limit: 1 });
    if (!found.episodes.length) return put(place, h("p", {}, "No episode was recorded yet."));
    values.id = found.episodes[0].id;
  }
  const episode = await ask("episode", { run: values.run, id: values.id, first: values.first });
  const use = episode.uses.find((each) => String(each.step) === values.used) ?? episode.uses.at(-1);
  const { found, then, now, offset } = measures(episode, use);
  const chosen = found[values.colour] ? values.colour : found.advantage && values.colour === undefined ? "probability" : Object.keys(found)[0];
  const isRaw = (values.view ?? "messages") === "tokens";
  const around = episode.neighbours;

  const inspector = h("aside", { class: "inspector", "aria-label": "Token", "aria-live": "polite" }, h("p", { class: "soft" }, "Point at a sampled token, or walk with the arrow keys."));
  const body = h("div", { class: `transcript ${episode.seats.length > 1 ? "seats" : ""}` });
  if (episode.seats.length > 1) body.style.setProperty("--seats", episode.seats.length);
  const buttons = Object.keys(found).map((key) => h("button", { "aria-pressed": String(key === chosen), "data-colour": key, onclick: () => { values.colour = key; paint(key); history.replaceState(null, "", link("episode", values)); } }, MEASURES[key][0]));

  put(place,
    h("div", { class: "head" },
      h("h1", {}, episode.task), outcome(episode),
      h("span", {}, episode.value !== null && `return ${short(episode.value)}`),
      h("span", { class: "soft" }, `step ${episode.step}, ${episode.phase} · ${plural(episode.num_turns, "turn")} · ${count(episode.tokens)} tokens sampled · ${episode.stop} · ${duration(episode.seconds)}`),
      h("span", { class: "grow" }),
      h("nav", { class: "steps live-only", "aria-label": "Neighbours" },
        around.before[0] && h("a", { href: link("episode", { ...values, id: around.before[0].id, first: undefined }), title: "episode before (key p)" }, "← before"),
        around.after[0] && h("a", { href: link("episode", { ...values, id: around.after[0].id, first: undefined }), title: "episode after (key n)" }, "after →"),
        h("a", { href: link("replay", { run: values.run, id: values.id }) }, "replay"))),
    episode.outcome.message && h("p", { class: "problem" }, `failure of the ${episode.outcome.owner} (${episode.outcome.kind}): ${episode.outcome.message}`),
    Object.keys(episode.seat_returns).length > 0 && h("p", {}, Object.entries(episode.seat_returns).map(([seat, value]) => h("span", { class: "chip" }, `${seat} got ${short(value)}`))),
    family(values, episode),
    h("div", { class: "toolbar live-only" },
      h("div", { class: "choice", role: "group", "aria-label": "View" }, [["messages", "messages"], ["tokens", "as the model saw it"]].map(([key, name]) => h("button", { "aria-pressed": String((key === "tokens") === isRaw), onclick: () => change({ view: key }) }, name))),
      h("div", { class: "choice", role: "group", "aria-label": "Colour by" }, buttons),
      episode.uses.length > 1 && h("label", {}, "used in step ", h("select", { id: "used", onchange: (event) => change({ used: event.target.value }) }, episode.uses.map((each) => h("option", { value: each.step, selected: each === use }, each.step))))),
    h("p", { class: "scale small" }),
    episode.lacks.map((each) => h("p", { class: "soft small" }, `Not recorded: ${each}.`)),
    !episode.has_tokenizer && h("p", { class: "soft small" }, "The run has no tokenizer: texts of actions are shown instead of tokens."),
    h("div", { class: "split" }, body, inspector));

  if (episode.branches.length) body.append(branchTree(episode));
  if (episode.search) body.append(searchTree(episode));
  else if (episode.turns.some((turn, at) => at > 0 && turn.starts_segment)) body.append(streamTree(episode));
  for (const turn of episode.turns) body.append(drawTurn(turn, episode, isRaw, offset));
  const end = episode.final.length && h("div", { class: "turn end" }, h("div", { class: "given" }, contents(episode.final)));
  if (end && episode.first_turn + episode.turns.length >= episode.num_turns) body.append(end);
  if (episode.num_turns > episode.turns.length)
    body.append(h("p", { class: "soft" }, `Turns ${episode.first_turn + 1} to ${episode.first_turn + episode.turns.length} of ${episode.num_turns}. `,
      episode.first_turn + episode.turns.length < episode.num_turns && h("a", { href: link("episode", { ...values, first: episode.first_turn + episode.turns.length }) }, "the next")));

  function paint(key) {
    const own = found[key] ?? [];
    const kind = MEASURES[key]?.[2];
    const sorted = own.filter((value) => value !== null).map(Math.abs).sort((a, b) => a - b);
    own.most = sorted.at(-1) < 1e-5 ? 0 : sorted[Math.floor(0.98 * (sorted.length - 1))] || sorted.at(-1) || 0;
    for (const span of body.querySelectorAll(".t")) {
      span.className = `t ${shade(kind, own, own[Number(span.dataset.at) - offset])}`;
    }
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.colour === key));
    const scale = place.querySelector(".scale");
    if (scale && key) put(scale, h("b", {}, MEASURES[key][0]), " ", h("span", { class: "soft" }, MEASURES[key][3]), " ", legend(kind, own.most));
  }
  paint(chosen);

  const all = [...body.querySelectorAll(".t")];
  let at = -1;
  const inspect = (span) => {
    place.querySelector(".t.here")?.classList.remove("here");
    if (!span) return;
    span.classList.add("here");
    at = all.indexOf(span);
    const number = Number(span.dataset.at) - offset;
    const turn = episode.turns.find((each) => each.number === Number(span.dataset.turn));
    const rows = [
      ["token", span.dataset.text ?? ""], ["id", span.dataset.id], ["place", `${Number(span.dataset.at) - turn.offset + 1} of ${turn.num_sampled} in turn ${turn.number + 1}`],
      ["log-prob then", then[number]], ["probability", found.probability?.[number]], ["log-prob now", found.learner?.[number] === null ? null : now?.[number]], ["now − then", found.change?.[number]],
      ["ratio", found.change?.[number] === null || found.change === undefined ? undefined : Math.exp(found.change[number])],
      ["clipped", found.ratio === undefined ? undefined : found.ratio[number] ? "yes" : "no"],
      ["entropy", found.entropy?.[number]], ["advantage", found.advantage?.[number]], ["weight", found.weight?.[number]], ["value", found.value?.[number]], ["return", found.return?.[number]], ["reference gap", found.reference?.[number]],
      ["policy", `${turn.policy}, version ${version(turn, Number(span.dataset.at) - turn.offset)}`], ["seat", turn.seat],
    ].filter(([, value]) => value !== undefined && value !== null);
    put(inspector, h("table", {}, h("tbody", {}, rows.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, typeof value === "number" ? value.toPrecision(4) : value))))));
  };
  body.addEventListener("pointerover", (event) => event.target.classList?.contains("t") && inspect(event.target));
  body.addEventListener("click", (event) => event.target.classList?.contains("t") && inspect(event.target));
  shown.keys = (event) => {
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      if (!all.length) return false;
      inspect(all[Math.max(0, Math.min(all.length - 1, at + (event.key === "ArrowRight" ? 1 : -1)))]);
      all[at].scrollIntoView({ block: "nearest" });
      return true;
    }
    const next = { n: around.after[0], p: around.before[0] }[event.key];
    if (next) go("episode", { ...values, id: next.id, first: undefined });
    if (event.key === "g" && around.group.length > 1) go("group", { run: values.run, id: values.id });
    return Boolean(next);
  };
}

const version = (turn, place) => turn.versions.length ? turn.versions.filter(([first]) => first <= place).at(-1)?.[1] : turn.version;

function legend(kind, most) {
  const cell = (name) => h("i", { class: `t ${name}`, "aria-hidden": "true" }, " ");
  if (kind === "unlikely") return h("span", { class: "ramp" }, "likely", [0, 1, 2, 3, 4, 5, 6, 7, 8].map((at) => cell(`u${at}`)), "1 in 1,000");
  if (kind === "diverging") return h("span", { class: "ramp" }, short(-most), [0, 1, 2, 3, 4, 5, 6, 7, 8].map((at) => cell(`d${at}`)), short(most));
  if (kind === "sequential") return h("span", { class: "ramp" }, "0", [0, 1, 2, 3, 4, 5, 6, 7, 8].map((at) => cell(`q${at}`)), short(most));
  return h("span", { class: "ramp" }, cell("flag"), "yes");
}

function family(values, episode) {
  const around = episode.neighbours;
  const kin = [];
  if (around.group.length > 1)
    kin.push(h("div", { class: "kin" }, h("span", { class: "soft" }, "group"), around.group.map((row) => h("a", { class: `member ${row.owner ? "failed" : row.success ? "solved" : "unsolved"}`, "aria-current": row.id === episode.id ? "true" : null, href: link("episode", { ...values, id: row.id, first: undefined }), title: `return ${short(row.value)}, ${row.turns} turns` }, short(row.value))), h("a", { href: link("group", { run: values.run, id: episode.id }) }, "side by side (g)")));
  if (around.parents.length) kin.push(h("div", { class: "kin" }, h("span", { class: "soft" }, `played on from turn ${(episode.parent_turn ?? 0) + 1} of`), around.parents.map((row) => h("a", { href: link("episode", { run: values.run, id: row.id }) }, `step ${row.step}, return ${short(row.value)}`))));
  if (around.children.length) kin.push(h("div", { class: "kin" }, h("span", { class: "soft" }, "played on as"), around.children.map((row) => h("a", { class: `member ${row.success ? "solved" : "unsolved"}`, href: link("episode", { run: values.run, id: row.id }) }, short(row.value)))));
  kin.push(h("div", { class: "kin" }, h("a", { href: link("episodes", { run: values.run, task: episode.task }) }, "this task over training"), h("a", { href: link("episodes", { run: values.run, step: episode.step, phase: episode.phase }) }, `all of step ${episode.step}`)));
  return h("div", { class: "family live-only" }, kin);
}

// What a search tried: a node is a state, under the one that it was come to from.
function searchTree(episode) {
  const { nodes, score, is_solved: isSolved } = episode.search;
  const worth = { votes: "its share of the votes", model: "what the model said of it", return: "what its way paid, which was not recorded" }[score] ?? "unknown";
  const start = { key: "start", parent: null, label: "start", visits: nodes.filter((node) => node.parent === null).reduce((sum, node) => sum + node.votes, 0), is_chosen: true };
  return drawTree({ title: "What was tried", nodes: [start, ...nodes.map((node) => ({ ...node, parent: node.parent ?? "start", mark: node.is_end ? (isSolved ? "✓" : "✕") : "", href: `#turn-${node.turn}`, go: (event) => jump(event, node.turn), detail: `turn ${node.turn + 1}, votes ${node.votes}` }))],
    note: `A node is a state, by the action that led to it. First figure: what it is worth, ${worth}; behind ×: actions that were asked for there. The strong way is the one that was found.` });
}

// The episodes that were played on from each other: a node is a stretch of turns that the same ones share.
function branchTree(episode) {
  return drawTree({ title: "Played on from each other", nodes: episode.branches.map((node) => ({ ...node, href: link("episode", { run: episode.run, id: node.id }) })), note: "A node is a stretch of turns. First figure: the mean return of the episodes through it; behind ×: how many they are. The strong way is this episode." });
}

// Where turns do not simply follow each other, their token streams: a stretch of turns under the one that it continues.
function streamTree(episode) {
  const shownTurns = new Set(episode.turns.map((turn) => turn.number));
  const above = (turn) => (shownTurns.has(turn.continues) ? turn.continues : null);
  const going = new Map();
  for (const turn of episode.turns) going.set(above(turn), (going.get(above(turn)) ?? 0) + 1);
  const stretches = [], of = new Map();
  for (const turn of episode.turns) {
    const before = of.get(above(turn));
    if (before && going.get(above(turn)) === 1 && before.seat === turn.seat) before.last = turn.number;
    else stretches.push({ key: turn.number, parent: before?.key ?? null, first: turn.number, last: turn.number, seat: turn.seat });
    of.set(turn.number, before?.last === turn.number ? before : stretches.at(-1));
  }
  const name = (each) => `${each.first === each.last ? `turn ${each.first + 1}` : `turns ${each.first + 1}–${each.last + 1}`}${episode.seats.length > 1 || each.seat.includes("/") ? ` (${each.seat})` : ""}`;
  return drawTree({ title: "Token streams", nodes: stretches.map((each) => ({ ...each, label: name(each), href: `#turn-${each.first}`, go: (event) => jump(event, each.first) })), note: "A branch shares the tokens of what stands before it." });
}

export function contents(parts) {
  return parts.map((part) => part.kind === "image"
    ? (part.source ? h("img", { src: part.source, alt: `picture of ${count(part.bytes)} bytes`, loading: "lazy" }) : h("span", { class: "chip" }, `picture, ${part.type}, ${count(part.bytes)} bytes`))
    : h("div", { class: part.kind }, part.kind === "result" && h("span", { class: "soft small" }, `result of call ${part.call + 1}`), h("pre", {}, part.text)));
}

export function call(each) {
  const arguments_ = JSON.stringify(each.arguments);
  const line = `${each.name}(${arguments_.length > 80 ? `${arguments_.slice(0, 77)}…` : arguments_})`;
  return h("details", { class: "call" }, h("summary", {}, line), h("pre", {}, JSON.stringify(each.arguments, null, 2)));
}

function drawTurn(turn, episode, isRaw) {
  const pieces = turn.pieces.length ? turn.pieces : null;
  const column = episode.seats.indexOf(turn.seat.split("/")[0]);
  const sampled = h("div", { class: "sampled" });
  const number = pieces ? pieces.length : 0;
  for (let at = 0; at < number; at++) {
    const isLast = at === number - 1;
    const text = pieces[at] || (isLast && turn.stop === "stop" ? "▮" : "·");
    sampled.append(h("span", { class: "t", "data-at": turn.offset + at, "data-turn": turn.number, "data-id": turn.ids[at], "data-text": JSON.stringify(pieces[at]).slice(1, -1) || (isLast ? "end of turn" : "a special token") }, text));
  }
  if (!pieces) sampled.append(h("pre", {}, turn.text));
  if (turn.num_sampled > number && pieces) sampled.append(h("span", { class: "soft" }, ` … ${count(turn.num_sampled - number)} more tokens`));
  const terms = Object.entries(turn.terms);
  const paid = Object.entries(turn.rewards);
  const notes = [
    turn.reward !== 0 && `reward ${short(turn.reward)}`,
    ...paid.map(([seat, value]) => `${seat}: ${short(value)}`),
    ...terms.map(([name, value]) => `${name} ${short(value)}`),
    !turn.is_valid && "the action changed nothing: invalid",
    turn.stop === "length" && "cut by the limit of tokens",
    ...turn.tool_errors.map((error) => `${error.tool}: ${error.cause.replaceAll("_", " ")}`),
    ...turn.notes.map((note) => callNote(note, episode)),
  ].filter(Boolean);
  const given = isRaw ? raw(turn) : turn.is_internal ? null : h("div", { class: "given" }, contents(turn.observation));
  return h("article", { class: `turn ${turn.is_internal ? "internal" : ""} ${turn.is_valid ? "" : "invalid"}`, id: `turn-${turn.number}`, style: column > 0 ? { "--column": column + 1 } : {} },
    h("header", {}, h("b", {}, turn.number + 1), episode.seats.length > 1 || turn.is_internal ? h("span", { class: `seat f${Math.max(0, column) % 8}` }, turn.seat) : null,
      turn.starts_segment && turn.number > 0 && h("span", { class: "chip", title: "its whole prompt is given anew" }, "new stream"),
      turn.state && h("span", { class: "soft small state-key", title: `state ${turn.state}` }, `state ${turn.state.slice(0, 12)}`)),
    given, sampled,
    turn.calls.length > 0 && !isRaw && h("div", { class: "calls" }, turn.calls.map(call)),
    turn.error && h("p", { class: "problem small" }, `could not be read: ${turn.error}`),
    notes.length > 0 && h("footer", {}, notes.map((note) => h("span", { class: "note" }, note))));
}

// What a recording endpoint saw of a call; the other call that it names is brought into sight where it is shown.
function callNote(note, episode) {
  const other = note.call && episode.turns.find((each) => each.call === note.call);
  const [before, ...after] = note.text.split(`call ${note.call}`);
  return other ? [before, h("a", { href: `#turn-${other.number}`, onclick: (event) => jump(event, other.number) }, `call ${note.call}`), after.join(`call ${note.call}`)] : note.text;
}

// Brings a turn into sight; the address stays that of the page.
function jump(event, number) {
  event.preventDefault();
  document.getElementById(`turn-${number}`)?.scrollIntoView({ block: "center" });
}

function raw(turn) {
  if (!turn.given) return h("div", { class: "given" }, contents(turn.observation));
  return h("details", { class: "given", open: turn.given.length < 1500 }, h("summary", { class: "soft small" }, `${count(turn.num_given)} tokens given, not trained`), h("pre", {}, turn.given));
}

async function showGroup(shown) {
  const { values, place } = shown;
  const first = await ask("episode", { run: values.run, id: values.id });
  const ids = values.other ? [values.id, values.other] : first.neighbours.group.slice(0, 8).map((row) => row.id);
  const other = values.with ?? values.run;
  const all = await Promise.all(ids.map((id, at) => (id === first.id && at === 0 ? first : ask("episode", { run: at > 0 && values.other ? other : values.run, id }))));
  put(place, h("h1", {}, values.other ? "Two episodes" : first.task), h("p", { class: "soft" }, values.other ? "" : `${plural(first.neighbours.group.length, "member")} of the group, step ${first.step}${first.neighbours.group.length > 8 ? "; the first 8" : ""}`),
    h("div", { class: "side-by-side", style: { "--count": Math.min(all.length, 4) } }, all.map((episode, at) => member(episode, values, at))));
}

export function member(episode, values, at = 0, title = "") {
  const { found } = measures(episode, episode.uses.at(-1));
  const advantages = (found.advantage ?? []).filter((value) => value !== null);
  const mean = advantages.length ? advantages.reduce((a, b) => a + b, 0) / advantages.length : null;
  return h("section", { class: "member-card", "aria-label": `Episode ${at + 1}` },
    h("header", {}, title && h("b", {}, title), h("a", { href: link("episode", { run: episode.run, id: episode.id }) }, outcome(episode)), h("span", {}, `return ${short(episode.value)}`), mean !== null && h("span", { class: mean < 0 ? "down" : "up" }, `advantage ${mean > 0 ? "+" : ""}${short(mean)}`), h("span", { class: "soft" }, plural(episode.num_turns, "turn"))),
    episode.turns.map((turn) => h("div", { class: "small-turn" }, !turn.is_internal && h("div", { class: "given" }, contents(turn.observation)),
      h("div", { class: "said" }, turn.calls.length ? turn.calls.map((each) => h("code", {}, `${each.name}(${JSON.stringify(each.arguments)})`)) : h("pre", {}, turn.text || turn.pieces.join(""))),
      turn.reward !== 0 && h("footer", {}, `reward ${short(turn.reward)}`))),
    episode.final.length > 0 && h("div", { class: "given" }, contents(episode.final)));
}

// An episode in its world: step through it, and take over from any turn.

import { act, ask, change, link, problem } from "./api.js";
import { h, plural, put, short } from "./dom.js";
import { outcome } from "./episodes.js";
import { contents } from "./tokens.js";

export async function show(shown, known) {
  const { values, place } = shown;
  if (!values.id) {
    const found = await ask("episodes", { run: values.run, sort: "-order", limit: 1 });
    if (!found.episodes.length) return put(place, h("p", {}, "No episode was recorded yet."));
    values.id = found.episodes[0].id;
  }
  const [episode, run] = await Promise.all([ask("episode", { run: values.run, id: values.id }), ask("run", { run: values.run })]);
  const checkpoints = [...run.checkpoints.toSorted((a, b) => b - a).map((step) => `${run.name}@${step}`), ...known.filter((each) => each.status !== "damaged").map((each) => each.name)];
  const world = h("div", { class: "world" });
  const head = h("div", { class: "head" }, h("h1", {}, episode.task), outcome(episode), h("span", { class: "soft" }, `step ${episode.step}, ${episode.phase}, ${plural(episode.num_turns, "turn")}`), h("a", { href: link("episode", { run: values.run, id: values.id }) }, "its tokens"));
  put(place, head, h("p", { class: "soft" }, "The recorded actions are carried out again in the environment. Nothing that you do here is recorded."), world);
  let session = null, turn = 0, state = null;

  const move = async (wanted) => {
    turn = Math.max(0, Math.min(episode.num_turns, wanted));
    history.replaceState(null, "", link("replay", { ...values, turn: turn || undefined }));
    world.classList.add("busy");
    try {
      state = session === null ? await act("begin", { run: values.run, id: values.id }) : await act("go", { session, turn });
      if (session === null) {
        session = state.session;
        if (turn > 0) state = await act("go", { session, turn });
      }
      draw();
    } catch (error) {
      put(world, problem(error), session !== null && controls());
    } finally {
      world.classList.remove("busy");
    }
  };
  const [take, play] = ["act", "play"].map((what) => async (asked) => {
    world.classList.add("busy");
    try {
      state = await act(what, { session, ...asked });
      draw();
    } catch (error) {
      world.querySelector(".problem")?.remove();
      world.prepend(problem(error));
    } finally {
      world.classList.remove("busy");
    }
  });
  const controls = () => h("div", { class: "toolbar live-only" },
    h("button", { class: "plain", disabled: turn === 0, onclick: () => move(0) }, "start"), h("button", { class: "plain", disabled: turn === 0, onclick: () => move(turn - 1) }, "← back"),
    h("input", { type: "range", min: 0, max: episode.num_turns, value: turn, "aria-label": "Turn", onchange: (event) => move(Number(event.target.value)) }),
    h("button", { class: "plain", disabled: turn >= episode.num_turns, onclick: () => move(turn + 1) }, "step →"), h("button", { class: "plain", disabled: turn >= episode.num_turns, onclick: () => move(episode.num_turns) }, "end"),
    h("span", {}, turn < episode.num_turns ? `before turn ${turn + 1} of ${episode.num_turns}` : "after the last turn"));

  function draw() {
    const own = state.said;
    const recorded = turn < episode.num_turns && !own.length ? episode.turns[turn] : null;
    const isOver = state.is_over;
    put(world, controls(),
      h("div", { class: "split even" },
        h("section", { "aria-label": "World" }, h("h2", {}, "The world shows", state.seat && state.seat !== "agent" ? ` ${state.seat}` : ""),
          own.length ? null : turn === episode.num_turns && episode.final.length ? h("div", { class: "given" }, contents(episode.final)) : h("div", { class: "given" }, contents(state.observation)),
          own.map((each) => h("div", { class: "own" }, h("p", { class: "said" }, h("b", {}, `${each.who}: `), each.sampled ? h("pre", {}, each.sampled) : each.calls.length ? each.calls.map((call) => `${call.name}(${JSON.stringify(call.arguments)})`) : each.text), h("div", { class: "given" }, contents(each.observation)), h("footer", {}, `reward ${short(each.reward)}`, !each.is_valid && " · invalid", each.is_over && (each.is_success ? " · solved" : " · over")))),
          isOver && h("p", { class: "soft" }, "The episode is over here.")),
        h("section", { "aria-label": "What was done" },
          recorded && [h("h2", {}, "What was done then"), h("div", { class: "said" }, recorded.calls.length ? recorded.calls.map((each) => h("code", {}, `${each.name}(${JSON.stringify(each.arguments)})`)) : h("pre", {}, recorded.text)), recorded.reward !== 0 && h("p", { class: "soft" }, `it paid ${short(recorded.reward)}`)],
          !isOver && !state.is_shared && [h("h2", {}, "Take over"), form(state, take), h("h2", {}, "Go on with a checkpoint"), policies(checkpoints, play), state.keeps_tokens === false && h("p", { class: "soft small" }, "Its tokenizer or harness is another than the run's: what was done before was written anew in its form, without thoughts.")],
          state.is_shared && h("p", { class: "soft" }, "Several seats act at once here, so that nobody can take over."))));
  }
  shown.keys = (event) => {
    const next = { ArrowRight: turn + 1, ArrowLeft: turn - 1, Home: 0, End: episode.num_turns }[event.key];
    if (next === undefined) return false;
    move(next);
    return true;
  };
  shown.after = () => move(Number(values.turn ?? 0) || 0);
}

let last = "";

// A policy acts in the place of whoever acted then: a step of this run that was kept, or another run.
function policies(checkpoints, play) {
  const field = h("input", { type: "text", list: "policies", id: "policy", "aria-label": "Run, or RUN@STEP", placeholder: checkpoints[0] ?? "RUN@STEP", value: last, autocomplete: "off" });
  const go = (turns) => play({ policy: (last = field.value.trim() || checkpoints[0] || ""), turns });
  return h("form", { class: "tool", onsubmit: (event) => { event.preventDefault(); go(1); } }, field, h("datalist", { id: "policies" }, checkpoints.map((name) => h("option", { value: name }))),
    h("button", { class: "plain", id: "one-turn" }, "one turn"), h("button", { class: "plain", type: "button", id: "to-the-end", onclick: () => go(0) }, "to the end"));
}

function form(state, take) {
  const parts = [];
  if (state.legal.length) parts.push(h("div", { class: "legal" }, state.legal.map((action) => h("button", { class: "plain", onclick: () => take({ text: action }) }, action))));
  for (const tool of state.tools) {
    const fields = Object.entries(tool.parameters.properties ?? {});
    const inputs = fields.map(([name, field]) => [name, field, h("input", { type: "text", name, id: `arg-${tool.name}-${name}`, placeholder: field.type ?? "", autocomplete: "off" })]);
    parts.push(h("form", { class: "tool", onsubmit: (event) => {
      event.preventDefault();
      const values = Object.fromEntries(inputs.filter(([, , input]) => input.value !== "").map(([name, field, input]) => [name, read(field, input.value)]));
      take({ tool: tool.name, arguments: values });
    } }, h("b", { title: tool.description }, tool.name), inputs.map(([name, , input]) => h("label", {}, h("span", {}, name), input)), h("button", { class: "plain" }, "call")));
  }
  if (!state.legal.length && !state.tools.length) {
    const text = h("input", { type: "text", "aria-label": "Action", id: "own-action", autocomplete: "off" });
    parts.push(h("form", { class: "tool", onsubmit: (event) => { event.preventDefault(); take({ text: text.value }); } }, text, h("button", { class: "plain" }, "act")));
  }
  return parts;
}

function read(field, text) {
  if (field.type === "string") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// The choices that act on every map of the page at once.

import { canMerge } from "./axis.js";
import { check, choice, make } from "./dom.js";
import { layerName, stackOf } from "./look.js";

export const VIEWS = [
  ["alignment", "Alignment"], ["heads", "Heads × layers"], ["lines", "Lines"], ["replay", "Replay"],
];

export function tabsOf(app) {
  const buttons = VIEWS.map(([view, name]) => {
    const chosen = app.state.view === view;
    return make(
      "button",
      {
        type: "button", role: "tab", id: `tab-${view}`, "aria-selected": String(chosen), "aria-controls": "panes",
        tabindex: chosen ? 0 : -1, click: () => app.set({ view }),
      },
      name,
    );
  });
  const list = make("div", { class: "tabs", role: "tablist", "aria-label": "Views" }, ...buttons);
  list.addEventListener("keydown", (event) => {
    const now = VIEWS.findIndex(([view]) => view === app.state.view);
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: VIEWS.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    app.set({ view: VIEWS[(to + VIEWS.length) % VIEWS.length][0] });
    document.getElementById(`tab-${app.state.view}`).focus();
  });
  return list;
}

export function choicesOf(app) {
  const { state, explanations } = app;
  const stacks = allStacks(explanations);
  const bare = (value) => app.set({ bare: value });
  const alone = check("Image without the map", state.bare, bare, "To see what is there");
  const seen = explanations.some((one) => one.image);
  if (!stacks.length) return seen && explanations.some((one) => one.cells) ? [alone] : [];
  const same = explanations.map((one) => stackOf(one, state.stack)).filter(Boolean);
  const layers = Math.max(...same.map((stack) => stack.layers.length));
  const heads = Math.max(...same.flatMap((stack) => stack.layers.map((places) => places.length)));
  const made = [];
  if (stacks.length > 1) {
    const place = stacks.findIndex((stack) => stack.title === state.stack.title && stack.kind === state.stack.kind);
    const options = stacks.map((stack, i) => [i, stack.title]);
    const open = (i) => app.set({ stack: stacks[i], layer: stacks[i].layers.length - 1, row: 0 });
    made.push(choice("Attention", options, place, open));
  }
  if (state.view !== "heads") {
    if (layers > 1) {
      const own = same.find((stack) => stack.named?.length);
      const options = own ? own.layers.map((_, layer) => [layer, layerName(own, layer)]) : numbers(layers);
      made.push(choice("Layer", options, state.layer, (layer) => app.set({ layer: Number(layer) })));
    }
    if (heads > 1) {
      const options = [["mean", "Mean of heads"], ...numbers(heads)];
      made.push(choice("Head", options, state.head, (head) => app.set({ head: head === "mean" ? head : Number(head) })));
    }
    if (state.view !== "replay") made.push(...readingAids(app, same));
  }
  if (seen) made.push(alone);
  const root = "Shades grow with the root of the weight";
  made.push(check("Bring out faint weights", state.faint, (faint) => app.set({ faint }), root));
  return made;
}

function readingAids(app, stacks) {
  const made = [];
  const shift = app.state.shift ?? app.explanations[0].shift;
  if (stacks.some((stack) => stack.kind !== "pool")) {
    const options = [[-1, "one row up"], [0, "as it is"], [1, "one row down"]];
    if (!options.some(([value]) => value === shift)) options.push([shift, `${shift} rows`]);
    made.push(choice("Move map", options, shift, (value) => app.set({ shift: Number(value) })));
  }
  const axes = app.explanations.flatMap((one) => one.axes);
  const how = "Pieces of a word as one: columns are added, rows are averaged";
  if (axes.some(canMerge)) made.push(check("Whole words", app.state.words, (words) => app.set({ words, row: 0 }), how));
  return made;
}

function numbers(count) {
  return Array.from({ length: count }, (_, i) => [i, String(i + 1)]);
}

function allStacks(explanations) {
  const found = new Map();
  for (const stack of explanations.flatMap((one) => one.stacks)) {
    const key = `${stack.kind} ${stack.title}`;
    if (!found.has(key)) found.set(key, stack);
  }
  return [...found.values()];
}

/** Back, play, forward: one clock for all panes. */
export function transportOf(app) {
  const play = make("button", { type: "button", class: "play", click: () => app.play() }, app.playing() ? "Pause" : "Play");
  const count = make("span", { class: "value" });
  const button = (name, label, by) =>
    make("button", { type: "button", "aria-label": label, click: () => app.step(by) }, name);
  const paces = [[1600, "slow"], [800, "normal"], [350, "fast"]];
  const speed = choice("Speed", paces, app.state.pace, (pace) => app.set({ pace: Number(pace) }, "none"));
  const element = make(
    "div",
    { class: "transport", role: "group", "aria-label": "Replay" },
    button("⏮", "First step", -Infinity),
    button("◀", "Step back", -1),
    play,
    button("▶", "Step forward", 1),
    button("⏭", "Last step", Infinity),
    count,
    speed,
    make("span", { class: "hint" }, "Keys: space plays and pauses, ← and → step"),
  );
  const show = () => {
    play.textContent = app.playing() ? "Pause" : "Play";
    count.textContent = `${Math.min(app.state.row, app.lastStep()) + 1} / ${app.lastStep() + 1}`;
  };
  return { element, show };
}

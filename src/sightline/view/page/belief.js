// "Believe it?": each finding with its number, a reference and one sentence. Never a single score for all.

import { isolated, make } from "./dom.js";
import { bar } from "./calculation.js";
import { isOfCosts, layerName } from "./look.js";
import { capital, plural, significant } from "./text.js";

const SHOWN_HEADS = 8;

export function beliefPanel(app, explanation) {
  const { belief } = explanation;
  const label = `Believe it? ${explanation.title}`;
  const panel = make("aside", { class: "belief", "aria-label": label }, make("h2", {}, "Believe it?"));
  if (!belief) {
    const costs = explanation.stacks.length > 0 && explanation.stacks.every(isOfCosts);
    const unknown = "Nothing was measured for this map. It shows attention weights; whether they mattered is not known.";
    const known = "This map is itself a measurement: it shows the cost of hiding each word alone.";
    panel.append(make("p", { class: "hint" }, costs ? known : unknown));
    return panel;
  }
  const rows = explanation.table ? plural(belief.rows, "pass", "passes") : plural(belief.rows, "row", "rows");
  panel.append(
    make("p", { class: "hint" }, "Measured on ", isolated(belief.about), ` (${rows}).`),
    make("dl", {}, ...belief.findings.map(finding)),
  );
  if (belief.heads.length) panel.append(headsByCost(app, explanation, belief.heads));
  panel.append(make("p", { class: "hint" }, "Attention weights show what the model attended to, not why it wrote its output."));
  return panel;
}

function finding(one) {
  const against = `against ${significant(one.reference)}`;
  const reference = one.reference === null ? null : make("span", { class: "reference" }, against);
  const figure = make("p", { class: "figure" }, make("strong", {}, significant(one.value)), reference);
  return make(
    "div",
    { class: "finding" },
    make("dt", {}, one.title),
    make("dd", {}, figure, scale(one), make("p", {}, one.sentence)),
  );
}

/** The number and its reference on one line, where both lie between −1 and 1. */
function scale({ value, reference }) {
  const both = [value, reference].filter((number) => number !== null);
  if (!both.length || value === null || both.some((number) => Math.abs(number) > 1)) return null;
  const low = both.some((number) => number < 0) ? -1 : 0;
  const mark = (kind, number) => {
    const element = make("span", { class: kind });
    element.style.left = `${((number - low) / (1 - low)) * 100}%`;
    return element;
  };
  return make(
    "div",
    { class: "scale", "aria-hidden": "true" },
    make("span", { class: "end" }, low ? "−1" : "0"),
    make("span", { class: "track" }, reference === null ? null : mark("against", reference), mark("found", value)),
    make("span", { class: "end" }, "1"),
  );
}

function headsByCost(app, explanation, heads) {
  const sorted = [...heads].sort((a, b) => b.cost - a.cost);
  const largest = Math.max(...sorted.map((one) => one.cost), 1e-9);
  const items = sorted.slice(0, SHOWN_HEADS).map((one) => {
    const where = whereIs(explanation, one);
    const name = nameOf(one, where);
    const open = () => app.set({ view: "alignment", stack: where.stack, layer: where.layer, head: where.head });
    return make(
      "li",
      {},
      where
        ? make("button", { type: "button", class: "plain", title: where.stack.title, click: open }, name)
        : make("span", {}, name),
      bar(one.cost / largest),
      make("span", { class: "number" }, significant(one.cost)),
    );
  });
  const more = sorted.length - items.length;
  return make(
    "div",
    { class: "by-cost" },
    make("h3", {}, "Heads by cost"),
    make("p", { class: "hint" }, "The cost of ablating each head."),
    make("ol", { class: "choices" }, ...items),
    more > 0 ? make("p", { class: "hint" }, `${more} more cost less.`) : null,
  );
}

function nameOf(one, where) {
  if (!where) return `${one.name}, head ${one.head + 1}`;
  const several = where.stack.layers.length > 1;
  return capital(`${several ? `${layerName(where.stack, where.layer)}, ` : ""}head ${where.head + 1}`);
}

function whereIs(explanation, one) {
  const same = (place) => explanation.maps[place].name === one.name && explanation.maps[place].head === one.head;
  for (const stack of explanation.stacks) {
    for (const [layer, places] of stack.layers.entries()) {
      const head = places.findIndex(same);
      if (head >= 0) return { stack, layer, head };
    }
  }
  return null;
}

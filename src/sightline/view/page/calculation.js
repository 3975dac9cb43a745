// The calculation of one step, done once more in the page: annotations → scores → softmax → sum → [h; c] → words.

import { signed } from "./colour.js";
import { loadCalculation } from "./data.js";
import { isolated, make, sizeCanvas } from "./dom.js";
import { layerName, strongest } from "./look.js";
import { decimals, plural, short } from "./text.js";

const MOST_ROWS = 30;
const NUMBERS = 4; // that are printed of a vector; the rest is colour
const ALIKE = 0.01;
const CELL = 9;

/** The head whose vectors are there: the chosen one, else the first of the layer, else any of the stack. */
export function placeOfCalculation(explanation, shown) {
  const kept = (place) => explanation.maps[place].calculation && !explanation.maps[place].calculation.left_out;
  const chosen = shown.head === "mean" ? shown.places : [shown.places[shown.head], ...shown.places];
  return [...chosen, ...shown.stack.layers.toReversed().flat()].find(kept) ?? null;
}

export async function calculationOf(explanation, shown, row, weights, place) {
  const info = explanation.maps[place];
  const found = await loadCalculation(explanation, place);
  const layer = shown.stack.layers.findIndex((places) => places.includes(place));
  const heads = shown.stack.layers[layer].length;
  const whose = [];
  if (shown.stack.layers.length > 1) whose.push(layerName(shown.stack, layer));
  if (heads > 1) whose.push(`head ${info.head + 1}`);
  const soft = found.scores ? softmax(found.scores.row(row)) : null;
  const plain = soft !== null && weights.every((weight, i) => Math.abs(weight - soft.weights[i]) < ALIKE);
  const used = plain ? soft.weights : weights;
  const parts = [];
  if (whose.length) parts.push(make("p", { class: "hint" }, `Calculated for ${whose.join(", ")}.`));
  parts.push(readTable(shown, found, row, used, plain ? soft : null));
  if (found.values) parts.push(...sums(shown, found, row, used));
  return make("div", { class: "calculation" }, ...parts);
}

function softmax(scores) {
  const largest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Float64Array.from(scores, (score) => (score === -Infinity ? 0 : Math.exp(score - largest)));
  const total = powers.reduce((a, b) => a + b, 0);
  return { largest, powers, total, weights: powers.map((power) => (total > 0 ? power / total : 0)) };
}

function readTable(shown, found, row, weights, soft) {
  const all = shown.columns.size <= MOST_ROWS;
  const rows = strongest([...weights], all ? weights.length : MOST_ROWS, -Infinity).sort((a, b) => a.column - b.column);
  const sizes = rows.map(({ column }) => (found.values ? magnitude(found.values.row(column)) : 0));
  const largest = Math.max(...sizes);
  const product = Math.max(...sizes.map((size, i) => size * rows[i].weight));
  const scores = found.scores?.row(row);
  const kind = (column) => (shown.columns.special.has(column) ? "special" : null);
  const head = [
    shown.columns.name || "attended to",
    found.values ? `value (${found.values.width} of ${found.size} numbers)` : null,
    scores ? "score" : null,
    soft ? "e^(score − largest)" : null,
    "weight",
    found.values ? "weight × value" : null,
  ].filter((title) => title !== null);
  const heading = head.map((title) => make("th", { scope: "col" }, title));
  const body = rows.map(({ column, weight }) => {
    const values = found.values?.row(column);
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, isolated(short(shown.columns.labels[column]), { class: kind(column) })),
      values ? make("td", {}, strip(values, largest)) : null,
      scores ? make("td", { class: "right" }, decimals(scores[column], 3)) : null,
      soft ? make("td", { class: "right" }, decimals(soft.powers[column], 4)) : null,
      make("td", { class: "right weight" }, bar(weight), decimals(weight, 4)),
      values ? make("td", {}, strip(values.map((value) => value * weight), product)) : null,
    );
  });
  const some = all ? "" : ` Of ${shown.columns.size} columns the ${rows.length} with the highest weights are listed; the sum is over all.`;
  return make(
    "section",
    {},
    make("h4", {}, "1. Scores become weights"),
    make("p", { class: "hint" }, howMade(soft, scores) + some),
    make(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": "Values, scores and weights" },
      make("table", {}, make("thead", {}, make("tr", {}, ...heading)), make("tbody", {}, ...body)),
    ),
  );
}

function howMade(soft, scores) {
  if (soft) return `The scores become weights by the softmax: each power over their sum, ${decimals(soft.total, 4)}.`;
  if (!scores) return "The scores were not kept; the weights are shown as the model computed them.";
  return "These weights are not a plain softmax of the scores; they are shown as the model computed them.";
}

/** How near the sum done here comes to the context that the model itself had. */
function howNear(gap, size) {
  if (gap < 5e-5) return "The same as the model's own to four decimals.";
  if (gap <= 0.01 * size + 1e-3) return `The same as the model's own within ${decimals(gap, 4)}.`;
  return `The model's own differs by up to ${decimals(gap, 3)}: it read something more than this sum.`;
}

function sums(shown, found, row, weights) {
  const context = new Float64Array(found.values.width);
  for (let column = 0; column < shown.columns.size; column += 1) {
    found.values.row(column).forEach((value, i) => {
      context[i] += weights[column] * value;
    });
  }
  const [own, query] = [found.contexts.row(row), found.queries.row(row)];
  const gap = magnitude(context.map((value, i) => value - own[i]));
  const said = make("p", { class: "hint" }, howNear(gap, magnitude(own)));
  return [
    make("section", {}, make("h4", {}, "2. The weighted sum is the context c"), vector("c", context, found.size), said),
    make(
      "section",
      {},
      make("h4", {}, "3. The query (h) and the context (c) are concatenated: [h; c]"),
      vector("h", query, null),
      vector("c", context, found.size),
    ),
  ];
}

function vector(name, values, size) {
  const first = [...values.slice(0, NUMBERS)].map((value) => decimals(value, 3)).join(", ");
  const more = size === null || size > NUMBERS ? ", …" : "";
  return make(
    "div",
    { class: "vector" },
    make("span", { class: "symbol" }, name),
    strip(values, magnitude(values)),
    make("span", { class: "numbers" }, `[${first}${more}]`),
  );
}

export function magnitude(values) {
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}

function strip(values, largest) {
  const first = [...values.slice(0, NUMBERS)].map((value) => decimals(value, 2)).join(", ");
  const label = `${plural(values.length, "number", "numbers")}: ${first}`;
  const canvas = make("canvas", { role: "img", "aria-label": label });
  const context = sizeCanvas(canvas, values.length * CELL, 16);
  values.forEach((value, i) => {
    context.fillStyle = signed(value, largest);
    context.fillRect(i * CELL, 0, CELL - 1, 16);
  });
  canvas.title = [...values].map((value) => decimals(value, 3)).join("  ");
  return canvas;
}

export function bar(share) {
  const fill = make("span", { class: "fill" });
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return make("span", { class: "bar", "aria-hidden": "true" }, fill);
}

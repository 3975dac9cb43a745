// The map on the screen: one attention, one layer, one head or the mean of them, as chosen in the controls.

import { largestOf, loadMap, loadPicture, loadRecording, meanOf, mergedMap, movedMap, remembered } from "./data.js";
import { sideOf } from "./axis.js";
import { copiedSentence, copiesOf } from "./copied.js";
import { decimals, quoted } from "./text.js";

/** The stack that is opened first: from the output to the input, else whatever gathers a whole, else the first. */
export function mainStack(explanation) {
  for (const kind of ["cross", "pool"]) {
    const place = explanation.stacks.findIndex((stack) => stack.kind === kind);
    if (place >= 0) return place;
  }
  return 0;
}

/** The stack of another explanation that goes by the same name, or plays the same part in it. */
export function stackOf(explanation, wanted) {
  const { stacks } = explanation;
  const alike = stacks.filter((stack) => stack.kind === wanted.kind);
  const main = wanted.main ? stacks[mainStack(explanation)] : null;
  return alike.find((stack) => stack.title === wanted.title) ?? alike[0] ?? main ?? null;
}

export async function look(explanation, state, steps) {
  const stack = state.stack ? stackOf(explanation, state.stack) : null;
  if (!stack) return null;
  const replay = state.view === "replay"; // what happened at a step is never put together or moved
  const layer = Math.min(state.layer, stack.layers.length - 1);
  const places = stack.layers[layer];
  const head = places.length === 1 ? 0 : state.head === "mean" ? "mean" : Math.min(state.head, places.length - 1);
  const chosen = head === "mean" ? places : [places[head]];
  const loaded = await Promise.all(chosen.map((place) => loadMap(explanation, place, steps)));
  const info = explanation.maps[chosen[0]];
  const rows = sideOf(explanation.axes[info.rows], state.words && !replay);
  const columns = sideOf(explanation.axes[info.columns], state.words && !replay);
  const shift = replay || rows.size === 1 ? 0 : (state.shift ?? explanation.shift);
  let map = loaded.length > 1 ? meanOf(loaded) : loaded[0];
  const written = stack.kind !== "self" && explanation.steps.length === map.rows ? explanation.steps : null;
  // Rows are moved as the model wrote them, and only then put together.
  if (shift) map = emptyRows(movedMap(map, shift), rows.groups !== null || columns.groups !== null);
  if (rows.groups || columns.groups) map = mergedMap(map, rows.groups, columns.groups);
  map = remembered(map);
  const name = nameOf(stack, layer, head, places.length);
  const image = columns.axis.kind === "Grid" ? await imageOf(explanation) : null;
  const timed = columns.axis.kind === "Frames" && rows.axis.kind === "Tokens" && explanation.recording;
  const recording = timed ? await loadRecording(explanation) : null;
  // The end of a text attends to one moment, words to many: it does not set the scale.
  const scaled = recording && rows.special.size < rows.size ? { ...map, row: (i) => (rows.special.has(i) ? null : map.row(i)) } : map;
  const copies = copiesOf(explanation, stack, rows, columns);
  const over = { image, recording, copies, largest: largestOf(scaled) };
  return { stack, layer, head, places, map, rows, columns, steps: written, shift, name, ...over };
}

async function imageOf(explanation) {
  const bitmap = await loadPicture(explanation);
  return bitmap ? { ...explanation.image, bitmap } : null;
}

/** Rows that nothing moved to, as zeros where they have to be added to others. */
function emptyRows(map, needed) {
  return needed ? { ...map, row: (i) => map.row(i) ?? new Float32Array(map.columns) } : map;
}

/** What a layer of a stack is called. */
export function layerName(stack, layer) {
  return stack.named?.[layer] ?? `layer ${layer + 1}`;
}

function nameOf(stack, layer, head, heads) {
  const parts = [stack.title];
  if (stack.layers.length > 1) parts.push(layerName(stack, layer));
  if (heads > 1) parts.push(head === "mean" ? `mean of ${heads} heads` : `head ${head + 1}`);
  return parts.join(", ");
}

/** Whether a map shows costs of hiding, not attention weights. */
export function isOfCosts(stack) {
  return stack.title.startsWith("What hiding");
}

/** The columns with the largest weights, largest first; those with next to nothing are left out. */
export function strongest(weights, most, least = 0.005) {
  const found = [];
  weights.forEach((weight, column) => {
    if (weight < least || (found.length === most && weight <= found[most - 1].weight)) return;
    found.push({ column, weight });
    found.sort((a, b) => b.weight - a.weight);
    if (found.length > most) found.pop();
  });
  return found;
}

/** What a number of the maps of a stack is. */
export function unitOf(stack) {
  return stack?.unit ?? "weight";
}

/** An attention row in words, as it is read aloud, and whether its word was copied. */
export function sentence(shown, row) {
  return attended(shown, row) + copiedSentence(shown, row);
}

function attended(shown, row) {
  const weights = shown.map.row(row);
  const word = quoted(shown.rows.labels[row]);
  if (weights === null) return `${word}: no row was moved here.`;
  const best = strongest(weights, 4);
  const costs = isOfCosts(shown.stack);
  if (!best.length && costs) return `${word} loses nothing: no word costs 0.005.`;
  const named = shown.columns.name; // slots, repeats: their labels say what they are
  const summed = unitOf(shown.stack) === "sum of weights"; // of the rows before this one
  if (!best.length && summed) return `Nothing was attended to before ${word}.`;
  if (!best.length) return `${word}${named ? "" : " attended to nothing in particular"}: no weight reaches 0.005.`;
  const list = best.map(({ column, weight }) => `${quoted(shown.columns.labels[column])} ${decimals(weight, 2)}`);
  if (costs && shown.stack.kind !== "pool") return `${word} loses without ${list.join(", ")}.`;
  if (summed) return `Attended to before ${word}: ${list.join(", ")}.`;
  if (shown.stack.kind === "pool") return `Highest weights: ${list.join(", ")}.`;
  return `${word}${named ? ":" : " attended to"} ${list.join(", ")}.`;
}

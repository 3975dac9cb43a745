// Which words of an output were copied from the source, and which were written.

import { decimals, quoted } from "./text.js";

/** What is said of a row beside a map, and what its numbers are called. */
export const COPIED = "copied";
export const WRITTEN = "written";
export const GATE = "p";

/** {gate, share, place} of each row of a map over the source; null where the model cannot copy. */
export function copiesOf(explanation, stack, rows, columns) {
  const { steps } = explanation;
  if (stack.kind !== "cross" || steps.length !== rows.axis.size || !steps.some((step) => step.copied)) return null;
  const own = steps.map((step) => step.copied);
  if (!rows.groups && !columns.groups) return own;
  const column = (place) => columns.groups?.findIndex((members) => members.includes(place)) ?? place;
  return Array.from({ length: rows.size }, (_, row) => {
    const tokens = (rows.groups?.[row] ?? [row]).map((place) => own[place]).filter(Boolean);
    return tokens.length ? ofWord(tokens, column) : null;
  });
}

/** Of a word: the means of its tokens, and the place that most of its copied tokens come from. */
function ofWord(tokens, column) {
  const mean = (name) => tokens.reduce((sum, one) => sum + one[name], 0) / tokens.length;
  const counts = new Map();
  for (const one of tokens) {
    if (one.place === null || !isCopied(one)) continue;
    const place = column(one.place);
    counts.set(place, (counts.get(place) ?? 0) + 1);
  }
  const place = [...counts].reduce((best, one) => (one[1] > best[1] ? one : best), [null, 0])[0];
  return { gate: mean("gate"), share: mean("share"), place };
}

/** Whether copying gives at least half of the probability. */
export function isCopied(copy) {
  return Boolean(copy) && copy.share >= 0.5;
}

/** copied or written, or nothing where that is not known. */
export function markOf(copy) {
  return copy ? (isCopied(copy) ? COPIED : WRITTEN) : "";
}

/** The column that a row is copied from; null where it is written. */
export function copiedFrom(shown, row) {
  const copy = shown.copies?.[row];
  return isCopied(copy) ? copy.place : null;
}

/** In words, after those about the attention row; empty where the model cannot copy. */
export function copiedSentence(shown, row) {
  const copy = shown.copies?.[row];
  if (!copy) return "";
  const gate = `${GATE} = ${decimals(copy.gate, 2)}`;
  const place = copiedFrom(shown, row);
  if (place === null) return ` ${isCopied(copy) ? "Copied" : "Written"}; ${gate}.`;
  const from = `${quoted(shown.columns.labels[place])} (place ${place + 1})`;
  return ` Copied from ${from}: ${decimals(copy.share, 2)} of its probability; ${gate}.`;
}

/** What the marks mean, below a map. */
export function copiedHint(shown) {
  if (!shown.copies) return "";
  const own = shown.copies.filter((copy, row) => copy && !shown.rows.special.has(row));
  const count = `${own.filter(isCopied).length} of ${own.length} ${shown.rows.title} were copied, the others written`;
  return `${count}. ${GATE} is the probability to write, not to copy; a frame shows where a word was copied from.`;
}

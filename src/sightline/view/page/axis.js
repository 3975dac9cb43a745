// The labels along a side of a map: which of them are special, which belong to one word.

import { mergedText, rightToLeft, visible } from "./text.js";

const NAMERS = {
  Tokens: (axis) => axis.texts.map(visible),
  Grid: (axis) => numbered(axis.size, (i) => `row ${Math.floor(i / axis.width) + 1}, column ${(i % axis.width) + 1}`),
  Frames: (axis) => numbered(axis.size, (i) => `${(i * axis.seconds).toFixed(2)} s`),
  Slots: (axis) => numbered(axis.size, (i) => (axis.name ? `${axis.name} ${i + 1}` : `${i + 1}`)),
  Cells: (axis) =>
    numbered(axis.size, (i) => `${visible(axis.columns[Math.floor(i / axis.rows)])}, row ${(i % axis.rows) + 1}`),
};
const TITLES = { Grid: "places", Frames: "moments", Slots: "slots", Cells: "cells" };

function numbered(size, name) {
  return Array.from({ length: size }, (_, i) => name(i));
}

/** The members of each word, in the order in which the words begin; null where there is nothing to put together. */
function groupsOf(axis) {
  if (axis.kind !== "Tokens" || !axis.words) return null;
  const groups = new Map();
  axis.words.forEach((word, place) => groups.set(word, [...(groups.get(word) ?? []), place]));
  return groups.size < axis.words.length ? [...groups.values()] : null;
}

export function canMerge(axis) {
  return groupsOf(axis) !== null;
}

export function sideOf(axis, merge) {
  const groups = merge ? groupsOf(axis) : null;
  const special = new Set(axis.special ?? []);
  // What one place is called: pictures have the same name.
  const side = { axis, groups, special, name: axis.name ?? "", title: TITLES[axis.kind] ?? (groups ? "words" : "tokens") };
  side.labels = NAMERS[axis.kind](axis);
  side.rightToLeft = axis.kind === "Tokens" && rightToLeft(axis.texts.slice(0, 400));
  if (groups) {
    side.labels = groups.map((members) => visible(mergedText(members.map((place) => axis.texts[place]))));
    side.special = new Set(groups.flatMap((members, i) => (members.every((place) => special.has(place)) ? [i] : [])));
  }
  side.size = side.labels.length;
  // Beside a map there is little room.
  const place = (i) => `${Math.floor(i / axis.width) + 1}, ${(i % axis.width) + 1}`;
  const briefly = { Grid: place, Slots: (i) => `${i + 1}` }[axis.kind];
  side.brief = briefly ? numbered(axis.size, briefly) : side.labels;
  return side;
}

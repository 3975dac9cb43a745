// The layout of a heat map, and its drawing: the visible part, or the whole for a file.

import { inkOn, level, theme } from "./colour.js";
import { COPIED, GATE, WRITTEN, copiedFrom, isCopied, markOf } from "./copied.js";
import { textWidth } from "./pen.js";
import { decimals, short } from "./text.js";

const LONGEST_LABEL = 18;
const LARGEST_CELL = 44;
const LABELLED = 15; // the height of a label: where cells are smaller, some labels are left out
const LEAST_ROW = 13;
const ROOMY = 20; // cells are not made smaller than this for the sake of the height
const SEPARATE = 8; // cells from this size on have gaps between them
const TURN = -55;
const PAD = 8;
const SMALL = 11; // the size of marks
const LEAST_FRAME = 7; // a frame around a smaller cell is larger than that
const NAME = 14; // the height of what the columns are called
export const ZOOMS = [1, 2, 4, 8, 14, 20, 28, 36, 44];

export function geometryOf(shown, room, tall, zoom) {
  const marks = shown.copies ? marksRoom() : 0;
  const left = Math.ceil(widest(shown.rows.brief)) + PAD + 4 + marks;
  const wide = widest(shown.columns.brief);
  const fits = (room - left - PAD) / shown.columns.size;
  const slanted = (room - left - PAD - wide * 0.5) / shown.columns.size;
  const low = Math.max(ROOMY, (tall - 0.8 * wide - 30) / shown.rows.size);
  let cell = zoom ?? Math.min(fits >= wide + 6 ? fits : slanted, LARGEST_CELL, low);
  cell = Math.max(1, cell >= 3 ? Math.floor(cell) : cell);
  // Few rows of many columns are drawn high enough for their labels.
  const high = cell < LABELLED && shown.rows.size * LABELLED < tall / 2 ? LABELLED + 3 : cell;
  const flat = wide + 6 <= cell;
  const turn = (-TURN * Math.PI) / 180;
  const top = (flat ? 24 : Math.ceil(wide * Math.sin(turn)) + 18) + (shown.columns.name ? NAME : 0);
  const over = flat ? 0 : Math.ceil(wide * Math.cos(turn));
  return {
    cell, high, left, top, flat, marks,
    everyColumn: Math.max(1, Math.ceil(LABELLED / cell)),
    everyRow: Math.max(1, Math.ceil(LEAST_ROW / high)),
    width: Math.ceil(left + shown.columns.size * cell + Math.max(over, PAD)),
    height: Math.ceil(top + shown.rows.size * high + PAD),
  };
}

/** How wide copied or written and p are, beside a label. */
function marksRoom() {
  const wide = Math.max(textWidth(COPIED, { size: SMALL, bold: true }), textWidth(WRITTEN, { size: SMALL }));
  return Math.ceil(wide + textWidth("0.00", { size: SMALL })) + 2 * PAD;
}

function widest(labels) {
  // The longest texts are the widest, near enough: measuring thousands takes longer than drawing.
  const some = [...new Set(labels.map(label))].sort((a, b) => b.length - a.length).slice(0, 40);
  return Math.max(14, ...some.map((text) => textWidth(text)));
}

function label(text) {
  return short(text, LONGEST_LABEL);
}

/** Draw what lies in ``part`` of the whole map; labels stay at the edges of the part. */
export function drawMap(pen, shown, geometry, part, app, cursor = {}) {
  const { cell, high, left, top } = geometry;
  const { paper, line, mark, soft, ink } = theme();
  const first = { row: Math.max(0, Math.floor(part.y / high)), column: Math.max(0, Math.floor(part.x / cell)) };
  const last = {
    row: Math.min(shown.rows.size, Math.ceil((part.y + part.height - top) / high)),
    column: Math.min(shown.columns.size, Math.ceil((part.x + part.width - left) / cell)),
  };
  const count = { rows: Math.max(0, last.row - first.row), columns: Math.max(0, last.column - first.column) };
  const xOf = (column) => left + column * cell - part.x;
  const yOf = (row) => top + row * high - part.y;
  const rows = Array.from({ length: count.rows }, (_, i) => shown.map.row(first.row + i));
  const levels = (i) => {
    const found = new Uint8Array(count.columns);
    for (let j = 0; rows[i] && j < count.columns; j += 1) {
      found[j] = level(rows[i][first.column + j], app.top, app.state.faint);
    }
    return found;
  };
  pen.clip(left, top, part.width - left, part.height - top, () => {
    pen.cells(xOf(first.column), yOf(first.row), cell, count.rows, count.columns, levels, high);
    if (cell >= SEPARATE) {
      const [x, y, right, bottom] = [xOf(first.column), yOf(first.row), count.columns * cell, count.rows * high];
      for (let i = 0; i <= count.columns; i += 1) pen.rect(x + i * cell - 0.5, y, 1, bottom, { fill: paper });
      for (let i = 0; i <= count.rows; i += 1) pen.rect(x, y + i * high - 0.5, right, 1, { fill: paper });
    } else {
      const [wide, tall] = [shown.columns.size * cell + 1, shown.rows.size * high + 1];
      pen.rect(xOf(0) - 0.5, yOf(0) - 0.5, wide, tall, { stroke: line });
    }
    if (cell >= 30) drawNumbers(pen, rows, first, count, xOf, yOf, cell, app);
    for (let row = first.row; row < last.row; row += 1) drawFrame(row);
    if (cursor.row !== undefined) {
      const [thick, radius] = cell >= SEPARATE ? [2, 3] : [1, 0];
      const y = yOf(cursor.row);
      pen.rect(xOf(0), y, shown.columns.size * cell, high, { stroke: mark, line: thick, radius });
      if (cursor.column >= 0) pen.rect(xOf(cursor.column), y, cell, high, { stroke: mark, line: thick + 1 });
    }
  });
  const style = (side, place, chosen) => ({
    fill: chosen ? mark : side.special.has(place) ? soft : ink,
    bold: chosen,
    italic: side.special.has(place),
  });
  if (shown.rows.name) pen.text(left - PAD, top - PAD, shown.rows.name, { size: 11, anchor: "end", fill: soft });
  if (shown.columns.name) pen.text(left, NAME - 2, shown.columns.name, { size: 11, fill: soft });
  const { everyRow, everyColumn } = geometry;
  for (let row = Math.ceil(first.row / everyRow) * everyRow; row < last.row; row += everyRow) {
    if (yOf(row) + high / 2 < top - 2 || hides(row, cursor.row, everyRow)) continue;
    drawRowLabel(row);
  }
  if (cursor.row >= first.row && cursor.row < last.row) drawRowLabel(cursor.row);
  if (shown.copies) pen.text(left - PAD, top - PAD, GATE, { size: SMALL, anchor: "end", fill: soft });
  function drawRowLabel(row) {
    const look = { ...style(shown.rows, row, row === cursor.row), anchor: "end" };
    const y = yOf(row) + high / 2 + 4.5;
    pen.text(left - PAD - geometry.marks, y, label(shown.rows.brief[row]), look);
    const copy = shown.copies?.[row];
    if (!copy) return;
    const mark = { size: SMALL, anchor: "end", fill: isCopied(copy) ? ink : soft, bold: isCopied(copy) };
    pen.text(left - PAD, y, decimals(copy.gate, 2), { size: SMALL, anchor: "end", fill: soft });
    pen.text(left - 2 * PAD - textWidth("0.00", { size: SMALL }), y, markOf(copy), mark);
  }
  /** Around the cell that a row is copied from: dark and light lines, to be seen on every shade. */
  function drawFrame(row) {
    const place = copiedFrom(shown, row);
    if (place === null || place < first.column || place >= last.column) return;
    const [wide, tall] = [Math.max(cell, LEAST_FRAME), Math.max(high, LEAST_FRAME)];
    const [x, y] = [xOf(place) + (cell - wide) / 2, yOf(row) + (high - tall) / 2];
    pen.rect(x + 1, y + 1, wide - 2, tall - 2, { stroke: ink, line: 2 });
    if (cell >= SEPARATE) pen.rect(x + 2.5, y + 2.5, wide - 5, tall - 5, { stroke: paper, line: 1 });
  }
  for (let column = Math.ceil(first.column / everyColumn) * everyColumn; column < last.column; column += everyColumn) {
    if (xOf(column) + cell / 2 < left - 2 || hides(column, cursor.column, everyColumn)) continue;
    drawColumnLabel(column);
  }
  if (cursor.column >= first.column && cursor.column < last.column) drawColumnLabel(cursor.column);
  function drawColumnLabel(column) {
    const look = style(shown.columns, column, column === cursor.column);
    const text = label(shown.columns.brief[column]);
    if (geometry.flat) pen.text(xOf(column) + cell / 2, top - PAD, text, { ...look, anchor: "middle" });
    else pen.text(xOf(column) + cell / 2 + 4, top - PAD + 2, text, { ...look, rotate: TURN });
  }
}

/** Where labels are left out, the one under the cursor needs the room of its neighbours. */
function hides(place, chosen, every) {
  return chosen >= 0 && (place === chosen || (every > 1 && Math.abs(place - chosen) < every));
}

function drawNumbers(pen, rows, first, count, xOf, yOf, cell, app) {
  const { shades } = theme();
  rows.forEach((weights, i) => {
    for (let j = 0; weights && j < count.columns; j += 1) {
      const weight = weights[first.column + j];
      if (weight < 0.05) continue;
      const fill = inkOn(shades[level(weight, app.top, app.state.faint)]);
      const text = decimals(weight, 2).replace(/^0/, "");
      const [x, y] = [xOf(first.column + j) + cell / 2, yOf(first.row + i) + cell / 2 + 3.5];
      pen.text(x, y, text, { size: 10, anchor: "middle", fill });
    }
  });
}

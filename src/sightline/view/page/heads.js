// Every head of every layer, small. A head is inflated and drawn when it becomes visible. Where there is an image, it
// is that with the map of one word over it; else the whole map.

import { wordButtons } from "./captioned.js";
import { level, theme } from "./colour.js";
import { loadMap } from "./data.js";
import { check, make, sizeCanvas } from "./dom.js";
import { layerName } from "./look.js";
import { drawOver, printed, sizeOf } from "./over.js";
import { CanvasPen } from "./pen.js";
import { capital, significant } from "./text.js";

const SMALL = 100; // pictures that have no room for name and cost side by side
const FRAME = 22; // of a picture: its border and the gap to the next

export function headsView(app, shown, explanation, room) {
  const across = Math.max(...shown.stack.layers.map((places) => places.length));
  const side = Math.max(48, Math.min(132, Math.floor(room / across) - FRAME)); // all heads of a layer side by side

  const costs = costsOf(explanation);
  const heads = shown.stack.layers.flatMap((places, layer) =>
    places.map((place, head) => {
      const info = explanation.maps[place];
      return { place, layer, head, alone: places.length === 1, cost: costs.get(`${info.head} ${info.name}`) ?? null };
    }),
  );
  const measured = heads.some((one) => one.cost !== null);
  const sorted = measured && app.state.byCost;
  if (sorted) heads.sort((a, b) => (b.cost ?? -Infinity) - (a.cost ?? -Infinity));
  const drawn = new Map();
  const over = shown.image ? sizeOf(shown.image, side, side) : null;
  const choosing = over && shown.rows.axis.kind !== "Grid" && shown.rows.size > 1 ? wordButtons(app, shown) : null;
  const rowNow = () => Math.min(app.state.row, shown.rows.size - 1);
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) show(entry.target);
  }, { rootMargin: "120px" });

  async function show(button) {
    watcher.unobserve(button);
    const one = drawn.get(button);
    const map = await loadMap(explanation, one.place, app.steps);
    drawHead(button.querySelector("canvas"), map);
    button.dataset.drawn = "";
    app.painted();
  }

  function drawHead(canvas, map) {
    if (over) {
      paintOver(sizeCanvas(canvas, over.width, over.height), map);
      return;
    }
    const { rows, columns, levels, wide, high } = smallOf(map, app, side);
    new CanvasPen(sizeCanvas(canvas, wide, high)).cells(0, 0, wide / columns, rows, columns, levels, high / rows);
  }

  function paintOver(context, map) {
    const { image, columns } = shown;
    const scale = { top: map.largest, state: app.state };
    drawOver(context, image, columns.axis, weightsOf(shown, map, rowNow()), over, scale);
  }

  const pick = () => {
    choosing?.show(rowNow());
    if (over) for (const button of drawn.keys()) if ("drawn" in button.dataset) show(button);
  };
  const highOf = (one) => over?.height ?? sideOfHead(explanation, one, side);

  const ofLayer = (layer) => heads.filter((one) => one.layer === layer);
  const layerOf = (layer) => capital(layerName(shown.stack, layer));
  const layers = shown.stack.layers.map((_, layer) => [layerOf(layer), ofLayer(layer)]);
  const groups = sorted ? [["Highest cost of ablation first", heads]] : layers;
  const strongest = over ? "is fully lit" : "has the strongest shade";
  const hint = `Each picture has its own scale: its largest weight ${strongest}. Choose one to open it.`;
  const meaning = "The growth of the loss when the head is ablated";
  const element = make(
    "div",
    { class: "heads" },
    choosing?.element,
    make(
      "div",
      { class: "under" },
      make("p", { class: "hint" }, hint),
      measured ? check("Sort by cost", app.state.byCost, (byCost) => app.set({ byCost }), meaning) : null,
    ),
    ...groups.map(([title, some]) => {
      const thumbs = make("div", { class: "thumbs" }, ...some.map(button));
      return make("section", { class: "layer" }, make("h3", {}, title), thumbs);
    }),
  );

  function button(one) {
    const short = sorted ? `L${one.layer + 1} · H${one.head + 1}` : `Head ${one.head + 1}`;
    const name = make("span", { class: "name" }, one.alone ? layerOf(one.layer) : short);
    const price = one.cost === null ? "" : `cost ${significant(one.cost)}`;
    const canvas = make("canvas", { "aria-hidden": "true" });
    sizeCanvas(canvas, over?.width ?? side, highOf(one));
    const label = [`Open ${layerName(shown.stack, one.layer)}`, `head ${one.head + 1}`, price].filter(Boolean).join(", ");
    const open = () => app.set({ view: "alignment", layer: one.layer, head: one.head });
    const small = side < SMALL;
    const cost = price ? make("span", { class: "cost" }, small ? significant(one.cost) : price) : null;
    const look = { type: "button", class: small ? "thumb small" : "thumb", "aria-label": label, click: open };
    const made = make("button", look, canvas, name, cost);
    drawn.set(made, one);
    watcher.observe(made);
    return made;
  }

  const picture = () => {
    const perRow = Math.max(across, sorted ? 4 : 1);
    let y = 0;
    const placed = [];
    for (const [title, some] of groups) {
      placed.push({ title, y: y + 12 });
      const high = Math.max(...some.map(highOf)) + 30;
      for (const [i, one] of some.entries()) {
        placed.push({ one, x: (i % perRow) * (side + 12), y: y + 20 + Math.floor(i / perRow) * high });
      }
      y += 30 + Math.ceil(some.length / perRow) * high;
    }
    const needed = Promise.all(heads.map((one) => loadMap(explanation, one.place, app.steps)));
    const draw = (pen, maps) => drawAll(pen, placed, new Map(heads.map((one, i) => [one, maps[i]])));
    return { width: perRow * (side + 12), height: y, ready: needed, draw };
  };

  function drawAll(pen, placed, maps) {
    const { soft } = theme();
    for (const { title, one, x, y } of placed) {
      if (title) {
        pen.text(0, y, title, { size: 12, bold: true });
        continue;
      }
      const high = drawOne(pen, x, y, maps.get(one));
      const name = sorted ? `L${one.layer + 1} · H${one.head + 1}` : `Head ${one.head + 1}`;
      const text = one.cost === null ? name : `${name} · ${significant(one.cost)}`;
      pen.text(x, y + high + 14, text, { size: 11, fill: soft });
    }
  }

  /** One head at a place of a picture to save; gives how high it is. */
  function drawOne(pen, x, y, map) {
    if (over) {
      pen.group(x, y, () => printed(pen, over, (context) => paintOver(context, map)));
      return over.height;
    }
    const { rows, columns, levels, wide, high } = smallOf(map, app, side);
    pen.cells(x, y, wide / columns, rows, columns, levels, high / rows);
    return high;
  }

  return { element, pick, resize: () => {}, picture, close: () => watcher.disconnect() };
}

/** One attention row of a head, as the other views show it: shifted, and the mean of a word's pieces. */
function weightsOf(shown, map, row) {
  const members = shown.rows.groups ? shown.rows.groups[row] : [row];
  const there = members.map((one) => one - shown.shift).filter((one) => one >= 0 && one < map.rows);
  if (!there.length) return null;
  const rows = there.map((one) => map.row(one));
  return rows[0].map((_, place) => rows.reduce((sum, weights) => sum + weights[place], 0) / members.length);
}

function costsOf(explanation) {
  return new Map((explanation.belief?.heads ?? []).map((one) => [`${one.head} ${one.name}`, one.cost]));
}

function sideOfHead(explanation, one, side) {
  const info = explanation.maps[one.place];
  const share = explanation.axes[info.rows].size / explanation.axes[info.columns].size;
  return Math.round(Math.min(side, Math.max(side * share, 14)));
}

/** A map with no more cells than pixels: of the cells that share one, the largest weight is shown. */
function smallOf(map, app, side) {
  const step = Math.max(1, Math.ceil(Math.max(map.rows, map.columns) / (side * 2)));
  const [rows, columns] = [Math.ceil(map.rows / step), Math.ceil(map.columns / step)];
  const levels = (row) => {
    const found = new Uint8Array(columns);
    for (let i = row * step; i < Math.min((row + 1) * step, map.rows); i += 1) {
      map.row(i).forEach((weight, column) => {
        const place = Math.floor(column / step);
        found[place] = Math.max(found[place], level(weight, map.largest, app.state.faint));
      });
    }
    return found;
  };
  const share = map.rows / map.columns;
  const wide = Math.min(side, side / Math.max(share, 0.01));
  return { rows, columns, levels, wide, high: Math.min(side, Math.max(side * share, 14)) };
}

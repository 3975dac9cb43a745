// A table, the question about it and the program that answered: step through the passes, see the rows that each selected.

import { clean } from "./about.js";
import { sideOf } from "./axis.js";
import { bar } from "./calculation.js";
import { inkOn, level, theme } from "./colour.js";
import { isolated, make, setText } from "./dom.js";
import { textWidth } from "./pen.js";
import { sightOf, sightPicture } from "./sight.js";
import { decimals, plural, short, visible } from "./text.js";

const LONGEST = 60; // characters of a cell; all of it is in its title
const SELECTED = 0.5;
const FAINT = 0.02; // a smaller probability does not shade a header
const WIDTH = 760; // of the question in an exported picture
const ROW = 22;
const COLUMNS = 9; // of an exported picture

const grouped = (number) => number.toLocaleString("en");
const choiceOf = ({ operation, on }) => (on === null ? operation : `${operation} · ${short(clean(on), 40)}`);
const cellText = (text) => (text.trim() ? short(visible(text.trim()), LONGEST) : "");

/** {element, show(pass), picture()}, or null where there is no table. */
export function askedTable(app, explanation) {
  const table = explanation.table ?? null;
  if (!table || !table.passes.length) return null;
  const { passes } = table;
  const most = Math.max(...passes.flatMap((one) => one.words), 1e-9);
  const scale = { top: most, digits: app.digits, state: app.state, tip: (...given) => app.tip(...given) };
  const columns = sideOf({ kind: "Tokens", texts: table.words, size: table.words.length }, false);
  const words = sightOf({ columns }, scale);
  words.element.setAttribute("aria-label", "The words of the question, with the weights of this pass");
  const said = make("p", { class: "sentence", "aria-live": "polite" });
  const drawn = gridOf(table);
  let now = 0;

  const choose = (to, focus = false) => {
    const next = Math.min(Math.max(to, 0), passes.length - 1);
    app.pick(next);
    show(next);
    if (focus) buttons[next].focus();
  };
  const buttons = passes.map((one, number) =>
    make(
      "button",
      { type: "button", class: "step", click: () => choose(number) },
      make("span", { class: "choice" }, `${number + 1} `, isolated(choiceOf(one))),
      isolated(short(clean(one.sentence), 200), { class: "said" }),
    ),
  );
  const back = make("button", { type: "button", click: () => choose(now - 1) }, "◀ Back");
  const on = make("button", { type: "button", click: () => choose(now + 1) }, "Next ▶");
  const list = make("ol", { "aria-label": "The program" }, ...buttons.map((button) => make("li", {}, button)));
  const likely = make("ol", { class: "choices", "aria-label": "The likeliest operations of this pass" });
  const program = make(
    "div",
    { class: "program", role: "group", "aria-label": "Passes of the program" },
    make("div", { class: "steps" }, back, on, make("span", { class: "hint" }, "or arrow keys")),
    list,
    make("h2", {}, "Likeliest operations"),
    likely,
  );
  program.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const to = {
      ArrowLeft: now - 1, ArrowUp: now - 1, ArrowRight: now + 1, ArrowDown: now + 1, Home: 0, End: passes.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation(); // the replay listens too
    choose(to, true);
  });

  function show(to) {
    now = Math.min(to, passes.length - 1);
    const one = passes[now];
    buttons.forEach((button, at) => {
      if (at === now) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
      button.tabIndex = at === now ? 0 : -1; // one stop for the tabulator; arrows go on from there
    });
    back.disabled = now === 0;
    on.disabled = now === passes.length - 1;
    setText(said, sentenceOf(table, now));
    words.show(one.words);
    likely.replaceChildren(
      ...one.operations.map(([name, share]) =>
        make(
          "li",
          { class: name === one.operation ? "taken" : null },
          isolated(name, { class: "word" }),
          bar(share),
          make("span", { class: "number" }, decimals(share, 2)),
        ),
      ),
    );
    drawn.paint(one, now === passes.length - 1);
    drawn.reach(region, one.column);
  }

  const region = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "The table" }, drawn.element);
  const hint =
    "▸ and a shade mark the rows selected behind the pass; lines and the shade of its header mark the chosen column; " +
    "a heavy frame marks printed cells.";
  const element = make(
    "section",
    { class: "marked asked", "aria-label": "The table and the program" },
    said,
    words.element,
    region,
    program,
    make("p", { class: "hint" }, hint),
  );
  show(0);
  return { element, show, picture: () => pictureOf(table, now, columns, scale) };
}

function sentenceOf(table, number) {
  const one = table.passes[number];
  const rows = `${grouped(one.selected)} of ${plural(grouped(table.total), "row", "rows")} selected`;
  const chance = decimals(one.probability, 2);
  return `Pass ${number + 1} of ${table.passes.length}: \u2068${clean(one.sentence)}\u2069. ${rows}; probability ${chance}.`;
}

/** {element, paint(pass, last), reach(region, column)}: the table itself; a wide one is scrolled to a column. */
function gridOf(table) {
  const kept = table.header.filter((one) => "text" in one).length;
  const numeric = Array.from({ length: kept }, (_, column) => ofNumbers(table, column));
  let column = -1;
  const heads = [];
  const header = table.header.map((one) => {
    if ("gap" in one) return make("th", { scope: "col", class: "left-out" }, `… ${plural(one.gap, "column", "columns")}`);
    column += 1;
    const note = make("span", { class: "unseen" });
    const text = isolated(cellText(one.text) || "⟨empty⟩");
    const element = make("th", { scope: "col", class: numeric[column] ? "right" : null, title: clean(one.text) }, text, note);
    heads.push({ element, note });
    return element;
  });
  const rows = table.rows.map((row) => rowOf(table, row, numeric));
  const caption = make("caption", { class: "unseen" }, `The table: ${plural(grouped(table.total), "row", "rows")}`);
  const head = make("thead", {}, make("tr", {}, make("td"), ...header));
  const element = make("table", {}, caption, head, make("tbody", {}, ...rows.map((row) => row.element)));
  const printed = new Set(table.printed.map(([row, at]) => `${row} ${at}`));

  function paint(one, last) {
    const { css, shades } = theme();
    heads.forEach(({ element: cell, note }, at) => {
      const share = one.on === null ? 0 : one.columns[at];
      const shade = share > FAINT ? level(share, 1, false) : 0;
      cell.style.background = shade ? css[shade] : "";
      cell.style.color = shade ? inkOn(shades[shade]) : "";
      setText(note, at === one.column ? ` (chosen, probability ${decimals(share, 2)})` : "");
    });
    rows.forEach(({ element: line, cells, note }, row) => {
      const share = one.rows[row];
      if (typeof share === "string") return setText(note, share);
      const selected = share >= SELECTED;
      line.classList.toggle("selected", selected);
      setText(note, selected ? " selected" : "");
      return cells.forEach((cell, at) => {
        const out = last && printed.has(`${row} ${at}`);
        cell.classList.toggle("chosen", at === one.column);
        cell.classList.toggle("printed", out);
        setText(cell.querySelector(".unseen"), out ? " (printed)" : "");
      });
    });
  }
  function reach(region, at) {
    const cell = at === null ? null : heads[at]?.element;
    if (!cell) return;
    const [left, right] = [cell.offsetLeft, cell.offsetLeft + cell.offsetWidth];
    if (left - 80 < region.scrollLeft || right > region.scrollLeft + region.clientWidth) {
      region.scrollLeft = left - (region.clientWidth - cell.offsetWidth) / 2;
    }
  }
  return { element, paint, reach };
}

function rowOf(table, row, numeric) {
  if ("gap" in row) {
    const note = make("span");
    const cell = make("td", { colspan: table.header.length, class: "left-out" }, note);
    return { element: make("tr", {}, make("td"), cell), cells: [], note };
  }
  const note = make("span", { class: "unseen" });
  const cells = row.cells.map((text, column) => {
    const short_ = cellText(text);
    const title = short_ === text ? null : clean(text);
    return make("td", { class: numeric[column] ? "right" : null, title }, isolated(short_), make("span", { class: "unseen" }));
  });
  let at = -1;
  const line = table.header.map((one) => ("gap" in one ? make("td", { class: "left-out" }, "…") : cells[(at += 1)]));
  return { element: make("tr", {}, make("th", { scope: "row" }, grouped(row.number), note), ...line), cells, note };
}

/** Whether most filled cells of a column are numbers: they are aligned at their end. */
function ofNumbers(table, column) {
  const filled = table.rows.flatMap((row) => row.cells?.[column]?.trim() || []);
  return filled.filter((text) => /^[\s$€£¥+\-−–(]*\d[\d.,'\s]*[%)]?$/.test(text)).length > 0.6 * filled.length;
}

/** The columns of a picture, which is not scrolled: those that passes chose or printed, likely ones, and what is between. */
function printedColumns(table) {
  const needs = new Set([...table.passes.map((one) => one.column), ...table.printed.map(([, column]) => column)]);
  const likely = (at) => Math.max(...table.passes.map((one) => one.columns[at])) + (needs.has(at) ? 2 : 0);
  let column = -1;
  const all = table.header.map((one) => ("gap" in one ? one : { text: one.text, at: (column += 1) }));
  const order = all.filter((one) => !one.gap).sort((a, b) => likely(b.at) - likely(a.at) || a.at - b.at);
  const kept = new Set(order.slice(0, COLUMNS));
  return all.reduce((found, one) => {
    if (kept.has(one)) return [...found, one];
    const before = found.at(-1)?.gap ?? 0;
    return [...(before ? found.slice(0, -1) : found), { gap: before + (one.gap ?? 1) }];
  }, []);
}

/** The same as a picture of the pass that is shown: {width, height, draw(pen)}. */
function pictureOf(table, number, columns, app) {
  const one = table.passes[number];
  const last = number === table.passes.length - 1;
  const words = sightPicture({ columns }, one.words, app, WIDTH);
  const texts = printedColumns(table).map(({ gap, text, at }) => {
    if (gap) return { head: `…${gap}`, cells: null, at: -1 };
    return { head: cellText(text), cells: table.rows.map((row) => ("gap" in row ? "" : cellText(row.cells[at]))), at };
  });
  const wide = ({ head, cells }) => Math.min(Math.max(...[head, ...(cells ?? [])].map((text) => textWidth(text, { size: 13 }))), 170) + 16;
  const widths = texts.map(wide);
  const margin = 56;
  const top = words.height + 34;
  const said = short(sentenceOf(table, number).replace(/[\u2068\u2069]/g, ""), 110);
  const width = Math.max(textWidth(said, { size: 14, bold: true }), margin + widths.reduce((a, b) => a + b, 0));
  const fit = (text, room) => {
    let cut = text;
    while (cut.length > 1 && textWidth(cut, { size: 13 }) > room) cut = `${cut.slice(0, -2)}…`;
    return cut;
  };
  const draw = (pen) => {
    const { css, shades, ink, soft, line, mark } = theme();
    const printed = new Set(last ? table.printed.map((cell) => cell.join(" ")) : []);
    pen.text(0, 14, said, { size: 14, bold: true });
    pen.group(0, 24, () => words.draw(pen));
    let x = margin;
    texts.forEach(({ head, cells, at }, place) => {
      const room = widths[place];
      const share = at >= 0 && one.on !== null ? one.columns[at] : 0;
      const shade = share > FAINT ? level(share, 1, false) : 0;
      if (shade) pen.rect(x, top, room, ROW, { fill: css[shade] });
      const right = at >= 0 && ofNumbers(table, at);
      const put = (y, text, style) => pen.text(right ? x + room - 8 : x + 8, y, fit(text, room - 14), { size: 13, anchor: right ? "end" : "start", ...style });
      put(top + 15, head, { bold: true, fill: shade ? inkOn(shades[shade]) : ink });
      (cells ?? []).forEach((text, row) => {
        const y = top + (row + 1) * ROW;
        const selected = one.rows[row] >= SELECTED; // a string, where rows are left out, is not
        const tint = level(at === one.column ? 0.36 : 0.2, 1, false);
        if (selected) pen.rect(x, y, room, ROW, { fill: css[tint] });
        put(y + 15, text, { fill: selected ? inkOn(shades[tint]) : soft });
        if (printed.has(`${row} ${at}`)) pen.rect(x + 1.5, y + 1.5, room - 3, ROW - 3, { stroke: mark, line: 3 });
      });
      if (at >= 0 && at === one.column) pen.rect(x, top, room, (table.rows.length + 1) * ROW, { stroke: ink, line: 1.5 });
      x += room;
    });
    table.rows.forEach((row, place) => {
      const y = top + (place + 1) * ROW;
      const share = one.rows[place];
      if ("gap" in row) return pen.text(margin + 8, y + 15, share, { size: 13, italic: true, fill: soft });
      const name = `${share >= SELECTED ? "▸ " : ""}${grouped(row.number)}`;
      return pen.text(margin - 8, y + 15, name, { size: 13, anchor: "end", bold: share >= SELECTED, fill: share >= SELECTED ? ink : soft });
    });
    for (const at of [0, 1, table.rows.length + 1]) pen.rect(0, top + at * ROW, x, 1, { fill: at === 1 ? line : ink });
  };
  return { width, height: top + (table.rows.length + 1) * ROW + 8, draw };
}

// The table of a question: pasted from a spreadsheet or as CSV, or read from a file. Nothing of it is ever more than text.

import { clean } from "../about.js";
import { make, newId, setText } from "../dom.js";
import { plural, short } from "../text.js";
import { Refusal } from "./talk.js";

const DELIMITERS = ["\t", ",", ";", "|"];
const NAMED = 6; // columns that are named below the field
const MOST_CHARACTERS = 8 << 20;
const grouped = (number) => number.toLocaleString("en");

/** {header, rows}: as spreadsheets copy them (tabs), or CSV, where quotes enclose delimiters, lines and quotes. */
export function parsedTable(text) {
  const lines = recordsOf(text.replace(/^\ufeff/, ""), delimiterOf(text)).filter((row) => row.some((cell) => cell.trim()));
  const [header = [], ...rows] = lines;
  return { header, rows };
}

/** The one that parts the first line into the most cells; a tab wins, for commas may stand in its cells. */
function delimiterOf(text) {
  const counts = DELIMITERS.map((one) => recordsOf(text.slice(0, 20000), one)[0]?.length ?? 1);
  return counts[0] > 1 ? "\t" : DELIMITERS[counts.indexOf(Math.max(...counts))];
}

function recordsOf(text, delimiter) {
  const records = [[]];
  let cell = "";
  let quoted = false;
  const end = () => {
    records.at(-1).push(cell);
    cell = "";
  };
  for (let i = 0; i < text.length; i += 1) {
    const one = text[i];
    if (quoted) {
      if (one !== '"') cell += one;
      else if (text[i + 1] === '"') {
        cell += one;
        i += 1;
      } else quoted = false;
    } else if (one === '"' && cell === "") quoted = true;
    else if (one === delimiter) end();
    else if (one === "\n" || one === "\r") {
      if (one === "\r" && text[i + 1] === "\n") i += 1;
      end();
      records.push([]);
    } else cell += one;
  }
  end();
  return records;
}

/** {element, table(), focus()}: ``refuse`` is called with a reason not to take a table. */
export function tableField(health, refuse) {
  const id = newId("table");
  const fileId = newId("file");
  const most = health.most_table_cells;
  const placeholder = "Year\tNation\tGold\n1994\tRussia\t11\n1998\tGermany\t12";
  const text = make("textarea", { id, rows: 6, wrap: "off", spellcheck: "false", class: "cells", placeholder, input: () => read() });
  const file = make("input", { id: fileId, type: "file", accept: ".csv,.tsv,.tab,.txt,text/csv", change: () => open(file.files[0]) });
  const status = make("p", { class: "hint", role: "status" });
  const element = make(
    "div",
    { class: "second" },
    make("label", { for: id }, "Table: paste it from a spreadsheet or as CSV; the first row names the columns"),
    text,
    make("div", { class: "choose" }, make("label", { for: fileId }, "or open a file"), file, status),
  );
  let found = { header: [], rows: [] };

  const cells = () => found.rows.reduce((sum, row) => sum + row.length, found.header.length);

  function read() {
    found = parsedTable(text.value);
    const width = Math.max(found.header.length, ...found.rows.map((row) => row.length));
    const names = found.header.slice(0, NAMED).map((name) => short(clean(name.trim()), 24) || "⟨no name⟩");
    const more = found.header.length > NAMED ? ", …" : "";
    const uneven = found.rows.filter((row) => row.length !== width).length;
    const filled = uneven ? ` ${plural(grouped(uneven), "row has", "rows have")} fewer cells.` : "";
    const size = `${plural(grouped(found.rows.length), "row", "rows")}, ${plural(width, "column", "columns")}`;
    setText(status, found.header.length ? `${size}: ${names.join(", ")}${more}.${filled}` : "");
  }

  async function open(one) {
    if (!one) return;
    if (one.size > MOST_CHARACTERS) {
      refuse(new Refusal(413, "That file is too large for this page. Use sightline predict, or fewer rows."));
      return;
    }
    text.value = await one.text();
    read();
  }

  /** The table, or null where there is none or it is too large. */
  function table() {
    if (!found.header.length) {
      text.focus();
      return null;
    }
    if (cells() <= most) return found;
    const large = `That table has ${grouped(cells())} cells, and this server takes ${grouped(most)}. Paste fewer rows.`;
    refuse(new Refusal(413, large));
    return null;
  }
  return { element, table, focus: () => text.focus() };
}

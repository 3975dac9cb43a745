// The map as a table, for screen readers and for exact numbers. Made only when it is opened.

import { COPIED, GATE, WRITTEN, markOf } from "./copied.js";
import { isolated, make } from "./dom.js";
import { strongest } from "./look.js";
import { decimals, short } from "./text.js";

const MOST_COLUMNS = 24;
const MOST_ROWS = 600;

export function tableOf(shown, app) {
  const holder = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of the weights" });
  const details = make("details", { class: "table" }, make("summary", {}, "Table of the weights"), holder);
  details.addEventListener("toggle", () => {
    if (details.open && !holder.firstChild) holder.append(table(shown, app));
  });
  return details;
}

function table(shown, app) {
  const whole = shown.columns.size <= MOST_COLUMNS;
  const marks = shown.copies ? [`${COPIED} or ${WRITTEN}`, GATE] : [];
  const head = [...marks, ...(whole ? shown.columns.labels : ["highest weights"])];
  const body = make("tbody");
  const rows = Math.min(shown.rows.size, MOST_ROWS);
  for (let row = 0; row < rows; row += 1) {
    const weights = shown.map.row(row);
    const cells = whole ? wholeRow(weights, shown, app) : [make("td", {}, ...best(weights, shown))];
    const name = make("th", { scope: "row" }, isolated(short(shown.rows.labels[row])));
    body.append(make("tr", {}, name, ...(shown.copies ? marked(shown.copies[row], app) : []), ...cells));
  }
  const more = shown.rows.size - rows;
  return make(
    "table",
    {},
    make("caption", {}, `${shown.name}${more > 0 ? ` (the first ${rows} rows; ${more} more are in the map)` : ""}`),
    make(
      "thead",
      {},
      make("tr", {}, make("td"), ...head.map((label) => make("th", { scope: "col" }, isolated(short(label))))),
    ),
    body,
  );
}

function marked(copy, app) {
  return [make("td", {}, markOf(copy)), make("td", {}, decimals(copy?.gate, app.digits))];
}

function wholeRow(weights, shown, app) {
  return shown.columns.labels.map((_, column) => make("td", {}, decimals(weights?.[column], app.digits)));
}

function best(weights, shown) {
  return strongest(weights ?? [], 5).flatMap(({ column, weight }, place) => [
    place ? ", " : "",
    isolated(short(shown.columns.labels[column])),
    ` ${decimals(weight, 3)}`,
  ]);
}

// The map as a table, for screen readers and for exact numbers. Made only when it is opened.

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
  const head = whole ? shown.columns.labels : ["highest weights"];
  const body = make("tbody");
  const rows = Math.min(shown.rows.size, MOST_ROWS);
  for (let row = 0; row < rows; row += 1) {
    const weights = shown.map.row(row);
    const cells = whole ? wholeRow(weights, shown, app) : [make("td", {}, ...best(weights, shown))];
    body.append(make("tr", {}, make("th", { scope: "row" }, isolated(short(shown.rows.labels[row]))), ...cells));
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

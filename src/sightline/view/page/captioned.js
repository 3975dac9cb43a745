// Words and the image that they attend to: choose a word to see its attention map over the image.

import { isolated, make, setText } from "./dom.js";
import { lightLegend } from "./legend.js";
import { sentence } from "./look.js";
import { imageAlone, isFlat, overPictures, overSight } from "./over.js";
import { tableOf } from "./table.js";
import { bareWord, short } from "./text.js";

export function captionedView(app, shown) {
  const words = make("p", { class: "sentence", "aria-live": "polite" });
  const sight = overSight(shown, app);
  const choosing = shown.rows.axis.kind === "Grid" || shown.rows.size === 1 ? null : wordButtons(app, shown);
  const { height, width } = shown.columns.axis;
  const places = `The image has ${height} × ${width} places; those with at least half of the largest weight are framed.`;
  const hint = choosing
    ? "Point at a word, or use the arrow keys, to see its attention."
    : shown.rows.size > 1
      ? "Choose a place in the image to see its attention."
      : "";
  const element = make(
    "div",
    { class: "captioned" },
    choosing?.element,
    words,
    make("div", { class: "aside" }, sight.element, imageAlone(shown.image)),
    make("div", { class: "under" }, lightLegend(app), make("p", { class: "hint" }, `${hint} ${places}`.trim())),
    tableOf(shown, app),
  );
  const rowNow = () => Math.min(app.state.row, shown.rows.size - 1);
  const pick = () => {
    const weights = shown.map.row(rowNow());
    const flat = isFlat(weights) ? " The weights are flat: no place stands out, so none is framed." : "";
    setText(words, sentence(shown, rowNow()) + flat);
    sight.show(weights);
    choosing?.show(rowNow());
    app.painted();
  };
  return { element, pick, resize: () => {}, picture: () => overPictures(shown, app, rowNow()) };
}

/** {element, show(row)}: what was written, a button for each word; ``onclick`` is called with the row of one. */
export function wordButtons(app, shown, onclick = () => {}) {
  const clicked = (row) => {
    app.pick(row);
    onclick(row);
  };
  const buttons = shown.rows.labels.map((label, row) =>
    make(
      "button",
      {
        type: "button", class: shown.rows.special.has(row) ? "step special" : "step", click: () => clicked(row),
        pointerenter: (event) => event.pointerType === "mouse" && app.pick(row), focus: () => app.pick(row),
      },
      isolated(short(bareWord(label))),
    ),
  );
  const dir = shown.rows.rightToLeft ? "rtl" : "ltr";
  const element = make("div", { class: "written", role: "group", "aria-label": "Words", dir }, ...buttons);
  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = Math.min(app.state.row, buttons.length - 1);
    const ahead = dir === "rtl" ? -1 : 1;
    const to = {
      ArrowLeft: row - ahead, ArrowRight: row + ahead, Home: 0, End: buttons.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    buttons[Math.min(Math.max(to, 0), buttons.length - 1)].focus();
  });
  const show = (row) => {
    buttons.forEach((button, at) => {
      if (at === row) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
      button.tabIndex = at === row ? 0 : -1; // one stop for the tabulator; arrows go on from there
    });
    const button = buttons[row];
    const above = button.offsetTop - element.offsetTop;
    if (above < element.scrollTop || above + button.offsetHeight > element.scrollTop + element.clientHeight) {
      element.scrollTop = above - element.clientHeight / 2 + 16;
    }
  };
  return { element, show };
}

// The page: what is chosen, and what has to be drawn again when that changes.

import { aboutOf, clean } from "./about.js";
import { beliefPanel } from "./belief.js";
import { askedTable } from "./asked.js";
import { choicesOf, tabsOf, transportOf } from "./controls.js";
import { isDark } from "./colour.js";
import { readAbout } from "./data.js";
import { make, refill, setText } from "./dom.js";
import { exportPng, exportSvg } from "./exporting.js";
import { labelledCells } from "./labelled.js";
import { headsView } from "./heads.js";
import { alignmentView } from "./heatmap.js";
import { linesView } from "./lines.js";
import { look, mainStack, stackOf } from "./look.js";
import { markedText } from "./marked.js";
import { replayView } from "./replay.js";
import { decimals, short } from "./text.js";

const MAKERS = { alignment: alignmentView, heads: headsView, lines: linesView, replay: replayView };

export class App {
  constructor(about) {
    this.top = 1; // the weight that gets the darkest shade, the same in all panes
    this.turn = 0;
    this.clock = null;
    this.transport = null;
    this.panes = [];
    this.state = {
      view: "alignment", stack: null, layer: 0, head: "mean", words: null, shift: null, row: 0, zoom: null,
      faint: false, bare: false, byCost: false, threshold: 0.25, calculation: false, pace: 800,
    };
    this.take(about);
  }

  /** What there is to show; what is chosen stays so where it can. */
  take(about) {
    this.explanations = about.explanations;
    this.title = about.title;
    this.steps = about.steps;
    this.digits = about.steps > 10000 ? 4 : 3;
    for (const one of this.explanations) if (one.stacks.length) one.stacks[mainStack(one)].main = true;
    const [first] = this.explanations.filter((one) => one.stacks.length);
    if (!first) return;
    this.state.words ??= Boolean(first.recording); // what is heard is words, also where letters are written
    const { stack } = this.state;
    const chosen = (one) => one.title === stack?.title && one.kind === stack?.kind;
    if (!this.explanations.some((one) => one.stacks.some(chosen))) {
      this.state.stack = (stack && stackOf(first, stack)) ?? first.stacks[mainStack(first)];
      this.state.layer = this.state.stack.layers.length - 1;
    }
    const layers = this.explanations.map((one) => stackOf(one, this.state.stack)?.layers.length ?? 1);
    this.state.layer = Math.min(this.state.layer, Math.max(...layers) - 1);
  }

  /** Show something else. ``same``: the same texts, of which more is known now. */
  replace(about, same) {
    this.pause();
    for (const pane of this.panes) pane.view?.close?.();
    document.getElementById("panes").replaceChildren();
    if (!same) Object.assign(this.state, { row: 0, zoom: null });
    this.take(about);
    return this.fill();
  }

  start() {
    this.listen();
    return this.fill();
  }

  fill() {
    const panes = document.getElementById("panes");
    const several = this.explanations.length > 1;
    panes.classList.toggle("several", several);
    this.panes = this.explanations.map((explanation) => {
      const body = make("div", { class: "view" });
      const name = make("h3", { class: "name" });
      const show = make("div", { class: "show" }, name, body);
      const map = make("div", { class: "beside" }, show, beliefPanel(this, explanation));
      const cells = labelledCells(this, explanation);
      const marked = markedText(this, explanation);
      const about = aboutOf(explanation, several);
      const asked = askedTable(this, explanation);
      panes.append(make("article", { class: "pane" }, about, asked?.element ?? null, marked, cells?.element ?? null, map));
      return { explanation, body, name, cells, asked, view: null, shown: null };
    });
    const task = [...new Set(this.explanations.map((one) => one.task))].join(", ");
    setText(document.getElementById("title"), short(clean(this.title), 120));
    setText(document.getElementById("task"), clean(task));
    const step = decimals(1 / this.steps, 6);
    const rounding = `Weights on this page are rounded to ${step}; less than half of that is shown as 0.`;
    const drawn = this.explanations.some((one) => one.maps.length);
    setText(document.getElementById("rounding"), drawn ? rounding : "");
    return this.render();
  }

  listen() {
    const drawn = () => this.panes.filter((pane) => pane.view ?? pane.cells?.picture);
    const exporting = (how) => () => drawn().length && how(drawn(), this.title, this.state.view);
    document.getElementById("svg").addEventListener("click", exporting(exportSvg));
    document.getElementById("png").addEventListener("click", exporting(exportPng));
    document.getElementById("theme").addEventListener("click", () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      this.showTheme();
      this.render();
    });
    this.showTheme();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.showTheme();
      this.render();
    });
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (width === window.innerWidth && this.state.view !== "alignment") return;
      width = window.innerWidth;
      for (const pane of this.panes) pane.view?.resize();
    });
    document.addEventListener("keydown", (event) => this.key(event));
  }

  showTheme() {
    const button = document.getElementById("theme");
    setText(button, isDark() ? "Light" : "Dark");
    button.setAttribute("aria-label", isDark() ? "Light colours" : "Dark colours");
  }

  /** Change what is chosen. ``how`` much has to be done again: all, the sizes, what depends on the row, or nothing. */
  set(changes, how = "render") {
    Object.assign(this.state, changes);
    if (changes.view && changes.view !== "replay") this.pause();
    if (how === "render") return this.render();
    if (how === "resize") for (const pane of this.panes) pane.view?.resize();
    if (how === "pick") for (const pane of this.panes) pane.view?.pick();
    return undefined;
  }

  pick(row) {
    if (row === this.state.row) return;
    this.state.row = row;
    for (const pane of this.panes) {
      pane.view?.pick();
      pane.asked?.show(row);
    }
    this.transport?.show();
  }

  /** Whether the map that is shown has a row for each of these cells. */
  attendsFrom(explanation, cells) {
    const axis = this.panes.find((pane) => pane.explanation === explanation)?.shown?.rows.axis;
    return axis?.kind === "Grid" && axis.height === cells.height && axis.width === cells.width;
  }

  async render() {
    this.turn += 1;
    const mine = this.turn;
    document.documentElement.removeAttribute("data-settled");
    this.tip(null);
    refill(document.getElementById("tabs"), tabsOf(this));
    document.getElementById("panes").setAttribute("aria-labelledby", `tab-${this.state.view}`);
    const found = await Promise.all(this.panes.map((pane) => look(pane.explanation, this.state, this.steps)));
    if (mine !== this.turn) return;
    this.top = Math.max(...found.map((shown) => shown?.largest ?? 0), 0);
    this.panes.forEach((pane, i) => this.renderPane(pane, found[i]));
    for (const pane of this.panes) {
      pane.cells?.paint?.();
      pane.asked?.show(this.state.row);
    }
    this.transport = this.state.view === "replay" ? transportOf(this) : null;
    const transport = this.transport ? [this.transport.element] : [];
    refill(document.getElementById("controls"), ...choicesOf(this), ...transport);
    this.transport?.show();
    document.documentElement.dataset.settled = "yes";
  }

  renderPane(pane, shown) {
    pane.view?.close?.();
    pane.shown = shown;
    if (!shown) {
      pane.view = null;
      setText(pane.name, "");
      const nothing = pane.explanation.stacks.length ? "This one has no such attention." : "No attention was recorded.";
      pane.body.replaceChildren(make("p", { class: "hint" }, pane.explanation.waiting ?? nothing));
      this.painted();
      return;
    }
    pane.view = MAKERS[this.state.view](this, shown, pane.explanation, pane.body.clientWidth);
    const moved = shown.shift ? `, moved by ${shown.shift}` : "";
    setText(pane.name, this.state.view === "heads" ? shown.stack.title : shown.name + moved);
    refill(pane.body, pane.view.element);
    pane.view.resize();
    pane.view.pick();
  }

  /** Something can be seen and used: said once, in milliseconds from the start, for whoever measures. */
  painted() {
    document.documentElement.dataset.ready ??= Math.ceil(performance.now());
  }

  /** A note beside the pointer. */
  tip(event, text, number = null) {
    const tip = document.getElementById("tip");
    tip.hidden = !event;
    if (!event) return;
    tip.replaceChildren(make("bdi", {}, text), ...(number === null ? [] : [make("strong", {}, number)]));
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
    const below = event.clientY + 18;
    const top = below + box.height > window.innerHeight ? event.clientY - box.height - 10 : below;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.max(8, top)}px`;
  }

  lastStep() {
    return Math.max(...this.panes.map((pane) => pane.view?.steps ?? 1), 1) - 1;
  }

  step(by) {
    this.pick(Math.min(Math.max(this.state.row + by, 0), this.lastStep()));
  }

  playing() {
    return this.clock !== null;
  }

  pause() {
    clearTimeout(this.clock);
    this.clock = null;
    this.transport?.show();
  }

  play() {
    if (this.playing()) return this.pause();
    if (this.state.row >= this.lastStep()) this.pick(0);
    const next = () => {
      if (this.state.row >= this.lastStep()) return this.pause();
      this.step(1);
      this.clock = setTimeout(next, this.state.pace);
      return undefined;
    };
    this.clock = setTimeout(next, this.state.pace);
    this.transport?.show();
    return undefined;
  }

  key(event) {
    if (this.state.view !== "replay" || event.ctrlKey || event.metaKey || event.altKey) return;
    const busy = event.target.closest("select, input, textarea, summary, [role=tab]");
    const pressed = event.target.closest("button");
    const actions = {
      " ": () => this.play(), ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1),
      Home: () => this.step(-Infinity), End: () => this.step(Infinity),
    };
    if (busy || !(event.key in actions) || (pressed && event.key === " ")) return;
    event.preventDefault();
    actions[event.key]();
  }
}

// Where a server gives the explanations, the page begins without any.
if (document.getElementById("about")) readAbout().then((about) => new App(about).start());

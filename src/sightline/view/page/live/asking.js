// The form: a text or a file, one run or two, the search, and whether to measure evidence about the map.

import { check, choice, make, newId, setText } from "../dom.js";
import { fileField } from "./dropping.js";
import { tableField } from "./pasting.js";
import { Refusal } from "./talk.js";

const grouped = (number) => number.toLocaleString("en");
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** ``onask`` is called with what is asked for, ``refuse`` with a reason not to ask. */
export function askingForm(health, onask, refuse) {
  const names = health.runs.map((run) => [run.name, run.name]);
  const beams = [1, 2, 5, 10].filter((beam) => beam <= health.most_beam).map((beam) => [String(beam), String(beam)]);
  const chosen = { run: health.runs[0].name, other: "", beam: String(Math.min(5, health.most_beam)), measure: false };
  if (!beams.some(([beam]) => beam === chosen.beam)) beams.push([chosen.beam, chosen.beam]);
  const id = newId("text");
  const count = make("span", { class: "hint count" });
  const text = make("textarea", { id, rows: 2, dir: "auto", spellcheck: "false", placeholder: "Type or paste a text" });
  const button = make("button", { class: "main" }, "Explain");
  const most = grouped(health.most_characters);
  const otherId = newId("text");
  const second = make("textarea", { id: otherId, rows: 2, dir: "auto", spellcheck: "false" });
  const secondLabel = make("label", { for: otherId });
  const pair = make("div", { class: "second" }, secondLabel, second);
  const beam = choice("Beam", beams, chosen.beam, (value) => Object.assign(chosen, { beam: value }));
  const label = make("label", { for: id });
  const field = health.most_image_bytes ? fileField(health, () => go(), refuse) : null;
  const asked = () => health.runs.filter((run) => run.name === chosen.run || run.name === chosen.other);
  const pasted = health.runs.some((run) => run.tables) ? tableField(health, refuse) : null;
  const readsTable = (name) => health.runs.find((run) => run.name === name)?.tables ?? false;
  const filesOf = (name) => health.runs.find((run) => run.name === name)?.files ?? "";
  const tallies = make("span", { class: "hint" }, count, " · Ctrl + Enter explains");
  const compare = choice("Compare with", [["", "no other"], ...names], "", (other) => fit({ other }));
  /** Runs that give labels have no beam, some read two texts, some a file; only what reads the same is compared. */
  const fit = (changes) => {
    Object.assign(chosen, changes);
    const files = filesOf(chosen.run);
    const select = compare.querySelector("select");
    const alike = (name) => filesOf(name) === files && readsTable(name) === readsTable(chosen.run);
    for (const option of select.options) option.hidden = option.value !== "" && !alike(option.value);
    if (chosen.other && !alike(chosen.other)) chosen.other = select.value = "";
    const { pairs, texts } = asked().find((run) => run.pairs) ?? asked()[0];
    pair.hidden = !pairs;
    setText(label, capital(texts[0] ?? ""));
    setText(secondLabel, capital(texts[1] ?? ""));
    text.placeholder = readsTable(chosen.run) ? "Which nation won most gold?" : `Type or paste a ${texts[0] ?? "text"}`;
    second.placeholder = `The ${texts[1] ?? ""}`;
    beam.hidden = asked().every((run) => !run.searches);
    for (const part of [label, text, tallies]) part.hidden = Boolean(files);
    if (field) field.element.hidden = !files;
    if (pasted) pasted.element.hidden = !readsTable(chosen.run);
    if (files) field.fit(files);
  };
  const showCount = () => {
    const { length } = [...text.value]; // characters, as the server counts them
    setText(count, `${grouped(length)} of ${most} characters`);
    count.classList.toggle("over", length > health.most_characters);
  };
  const go = () => {
    const runs = [chosen.run, chosen.other].filter((name, i, all) => name && all.indexOf(name) === i);
    const how = { runs, beam: Number(chosen.beam), measure: chosen.measure };
    if (filesOf(chosen.run)) {
      const file = field.file();
      return file ? onask({ ...how, file, text: file.name, text2: "" }) : field.focus();
    }
    const length = Math.max([...text.value].length, pair.hidden ? 0 : [...second.value].length);
    if (!text.value.trim()) return text.focus();
    if (!pair.hidden && !second.value.trim()) return second.focus();
    if (length > health.most_characters) {
      const long = `That text is too long: it has ${grouped(length)} characters, and this server takes ${most}. Shorten it.`;
      return refuse(new Refusal(413, long));
    }
    const table = readsTable(chosen.run) ? pasted.table() : null;
    if (readsTable(chosen.run) && !table) return undefined;
    return onask({ ...how, file: null, table, text: text.value, text2: second.value });
  };
  text.addEventListener("input", showCount);
  for (const field of [text, second]) {
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      go();
    });
  }
  showCount();
  const form = document.getElementById("ask");
  form.onsubmit = (event) => {
    event.preventDefault();
    go();
  };
  const several = health.runs.length > 1;
  form.replaceChildren(
    ...(pasted ? [pasted.element] : []),
    label,
    text,
    ...(field ? [field.element] : []),
    pair,
    make(
      "div",
      { class: "choose" },
      choice("Run", names, chosen.run, (run) => fit({ run })),
      several ? compare : null,
      beam,
      check("Believe it? Measure the evidence too", false, (measure) => Object.assign(chosen, { measure }), "Takes some seconds"),
      button,
      tallies,
    ),
  );
  fit({});
  if (filesOf(chosen.run)) field.focus();
  else if (readsTable(chosen.run)) pasted.focus();
  else text.focus();
}

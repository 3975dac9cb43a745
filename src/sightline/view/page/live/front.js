// The front end: the prediction first, then its attention, then, on request, the evidence.

import { App } from "../app.js";
import { readSent } from "../data.js";
import { setText } from "../dom.js";
import { askingForm } from "./asking.js";
import { Refusal, ask } from "./talk.js";
import { askForToken, showProblem } from "./token.js";

const ALTERNATIVES = 3;
const TITLE = "Type a text and see the attention of the model";
const OF_FILES = {
  images: "Drop an image and see the attention of the model",
  recordings: "Speak, or drop a recording, and see the attention of the model",
};
const OF_TABLES = "Paste a table, ask a question, and see the program that answers";
const OF_OTHERS = "Drop a file and see the attention of the model";
const app = new App({ title: TITLE, steps: 1, explanations: [] });
let asked = 0;
let controller = null;
let known = new Map(); // what the server says of its runs, by name

function say(sentence) {
  setText(document.getElementById("status"), sentence);
}

/** Whatever went wrong, in words; what was asked for can be tried again. */
function refuse(error, again) {
  if (error.name === "AbortError") return;
  const refusal = error instanceof Refusal ? error : new Refusal(500, "This page could not show the answer.", String(error));
  say("");
  showProblem(refusal);
  if (refusal.status === 401) askForToken(again);
}

/** An explanation without a map: what is known before there is one, or where there is none. */
function plain(request, run, outputs, more) {
  const [best, ...others] = outputs;
  const alternatives = others.map((one) => ({ text: one.text, probability: Math.min(1, Math.exp(one.log_prob ?? -1e9)) }));
  const empty = { axes: [], maps: [], stacks: [], steps: [], belief: null, shift: 0, notes: [] };
  return { ...empty, title: run, task: "", input: request.text, output: best.text, alternatives, ...more };
}

/** What a run is asked about, for one input or for a list of one: its text, its two texts, its table, or its file. */
function inputOf(request, { files, pairs, tables }, listed) {
  const asked = { question: request.text, table: request.table };
  if (tables) return listed ? { questions: [asked] } : asked;
  const wrap = (name, value) => (listed ? { [`${name}s`]: [value] } : { [name]: value });
  if (files) return wrap(files.slice(0, -1), request.file.content);
  const second = listed ? { texts2: [request.text2] } : { text2: request.text2 };
  return { ...wrap("text", request.text), ...(pairs ? second : {}) };
}

/** Runs that give labels take no beam. */
function bodyOf(request, run, listed, more, writing) {
  const about = known.get(run);
  return { ...inputOf(request, about, listed), ...more, ...(about.searches ? writing : {}), run };
}

/** What a run answered about one input, as outputs of a run that writes. */
function outputsOf(one) {
  if (Array.isArray(one)) return one;
  if (one.classes) return cellsOf(one);
  if ("label" in one) return labelsOf(one);
  if (one.tags) return [{ text: one.words.map((word, i) => `${word}/${one.tags[i]}`).join(" ") }];
  if (one.answers) return [{ text: one.answers.join(", ") || "no answer" }];
  if ("answer" in one) return [{ text: one.answer || "no answer" }];
  return [{ text: one.filled ?? JSON.stringify(one) }];
}

/** How many cells have which label. */
function cellsOf({ classes, labels }) {
  const counts = classes.map((name, label) => `${labels.flat().filter((one) => one === label).length} ${name}`);
  return [{ text: `cells: ${counts.join(", ")}` }];
}

/** The label first, then the others, as outputs of a run that writes. */
function labelsOf({ label, probabilities }) {
  const given = Array.isArray(label) ? label : [label];
  const text = Array.isArray(label) ? label.join(", ") || "none of the labels" : String(label);
  const others = Object.entries(probabilities ?? {}).filter(([name]) => !given.includes(name));
  others.sort((a, b) => b[1] - a[1]);
  return [{ text }, ...others.map(([name, share]) => ({ text: name, log_prob: Math.log(share ?? 0) }))];
}

/** The server knows a file's content, not what it is called. */
function named(request, explanation) {
  if (!request.file) return explanation;
  const { name } = request.file;
  return { ...explanation, input: name, ...(explanation.image ? { image: { ...explanation.image, name } } : {}) };
}

function show(about, same) {
  for (const id of ["shown", "svg", "png"]) document.getElementById(id).hidden = false;
  return app.replace(about, same);
}

/** What every run answered; one that cannot explain is shown with its output and the reason. */
async function explained(request, outputs, measure, signal) {
  const writing = { beam: request.beam, alternatives: ALTERNATIVES };
  const body = (run) => bodyOf(request, run, false, { form: "page", measure }, writing);
  const answers = await Promise.allSettled(request.runs.map((run) => ask("/explain", body(run), signal)));
  const failed = answers.filter((one) => one.status === "rejected").map((one) => one.reason);
  const fatal = failed.find((error) => error.status !== 422 && error.status !== 413) ?? null;
  if (fatal) throw fatal;
  const about = await readSent(answers.filter((one) => one.status === "fulfilled").map((one) => one.value));
  const found = [...about.explanations];
  const explanations = answers.map((answer, i) => {
    if (answer.status === "fulfilled") return named(request, found.shift());
    return plain(request, request.runs[i], outputs[i], { notes: [answer.reason.why || answer.reason.message] });
  });
  return { title: request.runs.join(" · "), steps: about.steps, explanations };
}

async function explain(request) {
  asked += 1;
  const mine = asked;
  controller?.abort();
  controller = new AbortController();
  const { signal } = controller;
  const current = () => mine === asked;
  showProblem(null);
  say("Predicting…");
  document.documentElement.removeAttribute("data-answered");
  try {
    const search = { beam: request.beam, best: Math.min(1 + ALTERNATIVES, request.beam) };
    const body = (run) => bodyOf(request, run, true, {}, search);
    const answers = await Promise.all(request.runs.map((run) => ask("/predict", body(run), signal)));
    const outputs = answers.map(({ predictions: [one] }) => outputsOf(one));
    if (!current()) return;
    const waiting = "Computing the attention…";
    const first = request.runs.map((run, i) => plain(request, run, outputs[i], { waiting }));
    await show({ title: request.runs.join(" · "), steps: 1, explanations: first }, false);
    say(waiting);
    const maps = await explained(request, outputs, false, signal);
    if (!current()) return;
    await show(maps, true);
    if (request.measure) {
      say("Measuring the evidence…");
      const measured = await explained(request, outputs, true, signal);
      if (!current()) return;
      await show(measured, true);
    }
    say("");
    document.documentElement.dataset.answered = "yes";
  } catch (error) {
    if (current()) refuse(error, () => explain(request));
  }
}

async function begin() {
  try {
    const health = await ask("/health");
    showProblem(null);
    known = new Map(health.runs.map((run) => [run.name, run]));
    askingForm(health, explain, showProblem);
    const { files, tables } = health.runs[0];
    if (tables) setText(document.getElementById("title"), OF_TABLES);
    if (files) setText(document.getElementById("title"), OF_FILES[files] ?? OF_OTHERS);
    document.documentElement.dataset.open = "yes";
  } catch (error) {
    refuse(error, begin);
  }
}

app.start().then(begin);

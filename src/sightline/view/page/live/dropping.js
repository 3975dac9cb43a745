// The file of a request, such as an image: chosen from a disk, dropped anywhere on the page, pasted, or recorded.

import { clean } from "../about.js";
import { make, newId, setText } from "../dom.js";
import { short } from "../text.js";
import { recordSound } from "./microphone.js";
import { Refusal } from "./talk.js";

const ACCEPTED = { images: "image/*,.tif,.tiff", recordings: "audio/*,.wav,.flac,.ogg,.opus,.mp3,.aiff", arrays: ".npy", clips: ".npy" };

const megabytes = (bytes) => `${(bytes / (1 << 20)).toFixed(bytes < 10 << 20 ? 1 : 0)} MB`;

/** The content of a file in base64. */
function base64Of(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => failed(new Refusal(0, "That file could not be read by this browser. Choose it again."));
    reader.readAsDataURL(file);
  });
}

/** {element, file(), fit(kind)}: ``ontaken`` is called when there is a new file, ``refuse`` with a reason not to take one. */
export function fileField(health, ontaken, refuse) {
  const most = health.most_image_bytes;
  const id = newId("file");
  const input = make("input", { id, type: "file", change: () => take(input.files[0]) });
  const label = make("label", { for: id });
  const record = make("button", { type: "button", click: () => recordOrStop() }, "Record");
  const length = make("span", { class: "hint", role: "status" });
  const microphone = make("div", { class: "microphone" }, record, length);
  const preview = make("img", { alt: "", hidden: true, error: () => hidePreview() });
  const name = make("p", { class: "unseen", "aria-live": "polite" }); // the field itself shows it
  const hint = make("p", { class: "hint" }, "Or drop one anywhere on this page, or paste it.");
  const words = make("div", {}, label, input, name, microphone, hint);
  const element = make("div", { class: "drop" }, preview, words);
  let taken = null;
  let turn = 0;
  let kind = "";
  let recorder = null;

  /** Which files are taken: images, recordings or arrays. */
  function fit(noun) {
    if (kind !== noun) taken = null;
    kind = noun;
    const one = noun.slice(0, -1);
    setText(label, one.charAt(0).toUpperCase() + one.slice(1));
    input.accept = ACCEPTED[noun] ?? "";
    microphone.hidden = noun !== "recordings" || !navigator.mediaDevices;
  }

  async function recordOrStop() {
    if (recorder) {
      const file = recorder.stop();
      recorder = null;
      setText(record, "Record");
      setText(length, "");
      return take(file);
    }
    try {
      recorder = await recordSound((seconds) => {
        setText(length, `${seconds.toFixed(1)} seconds`);
        if (recorder && seconds >= health.most_sound_seconds - 0.5) recordOrStop();
      });
      setText(record, "Stop and explain");
    } catch {
      refuse(new Refusal(0, "This browser gives no sound from a microphone. Allow it for this page, or choose a file."));
    }
    return undefined;
  }

  function hidePreview() {
    preview.hidden = true; // some kinds of images a browser cannot show, but the server reads them
  }

  async function take(file) {
    if (!file) return;
    turn += 1;
    const mine = turn;
    if (file.size > most) {
      const large = `That file is too large: it has ${megabytes(file.size)}, and this server takes ${megabytes(most)}.`;
      return refuse(new Refusal(413, `${large} Make it smaller.`));
    }
    try {
      const content = await base64Of(file);
      if (mine !== turn) return;
      taken = { name: file.name || "pasted file", content };
    } catch (error) {
      return refuse(error);
    }
    URL.revokeObjectURL(preview.src);
    if (kind === "images") preview.src = URL.createObjectURL(file);
    preview.hidden = kind !== "images";
    setText(name, `Taken: ${short(clean(taken.name), 80)}`);
    ontaken();
  }

  const shown = () => element.isConnected && !element.hidden;
  const over = (event) => {
    if (!shown() || ![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    element.classList.toggle("aimed", event.type !== "dragleave" || event.relatedTarget !== null);
  };
  for (const kind of ["dragenter", "dragover", "dragleave"]) document.addEventListener(kind, over);
  document.addEventListener("drop", (event) => {
    element.classList.remove("aimed");
    if (!shown() || !event.dataTransfer.files.length) return;
    event.preventDefault();
    input.files = event.dataTransfer.files;
    take(input.files[0]);
  });
  document.addEventListener("paste", (event) => {
    const [file] = event.clipboardData?.files ?? [];
    if (!shown() || !file) return;
    event.preventDefault();
    input.files = event.clipboardData.files;
    take(file);
  });
  return { element, file: () => taken, fit, focus: () => input.focus() };
}

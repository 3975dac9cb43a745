// The image of a request: chosen from a disk, dropped anywhere on the page, or pasted.

import { clean } from "../about.js";
import { make, newId, setText } from "../dom.js";
import { short } from "../text.js";
import { Refusal } from "./talk.js";

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

/** {element, image()}: ``ontaken`` is called when there is a new image, ``refuse`` with a reason not to take one. */
export function imageField(most, ontaken, refuse) {
  const id = newId("image");
  const input = make("input", { id, type: "file", accept: "image/*,.tif,.tiff", change: () => take(input.files[0]) });
  const preview = make("img", { alt: "", hidden: true, error: () => hidePreview() });
  const name = make("p", { class: "unseen", "aria-live": "polite" }); // the field itself shows it
  const hint = make("p", { class: "hint" }, "Or drop one anywhere on this page, or paste it.");
  const words = make("div", {}, make("label", { for: id }, "Image"), input, name, hint);
  const element = make("div", { class: "drop" }, preview, words);
  let taken = null;
  let turn = 0;

  function hidePreview() {
    preview.hidden = true; // some kinds of images a browser cannot show, but the server reads them
  }

  async function take(file) {
    if (!file) return;
    turn += 1;
    const mine = turn;
    if (file.size > most) {
      const large = `That file is too large: it has ${megabytes(file.size)}, and this server takes ${megabytes(most)}.`;
      return refuse(new Refusal(413, `${large} Make the image smaller.`));
    }
    try {
      const content = await base64Of(file);
      if (mine !== turn) return;
      taken = { name: file.name || "pasted image", content };
    } catch (error) {
      return refuse(error);
    }
    URL.revokeObjectURL(preview.src);
    preview.src = URL.createObjectURL(file);
    preview.hidden = false;
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
  return { element, image: () => taken, focus: () => input.focus() };
}

// A field for the token, where the server wants one; and the place where refusals are shown.

import { make, newId } from "../dom.js";
import { setToken } from "./talk.js";

/** Ask for the token; ``then`` is called when one was entered. */
export function askForToken(then) {
  const place = document.getElementById("token");
  if (place.firstChild) return;
  const id = newId("token");
  const field = make("input", { id, type: "password", autocomplete: "current-password" });
  const enter = (event) => {
    event.preventDefault();
    setToken(field.value.trim());
    place.replaceChildren();
    then();
  };
  const label = make("label", { for: id }, "Token");
  place.append(make("form", { class: "token", submit: enter }, label, field, make("button", {}, "Enter")));
  field.focus();
}

/** Show why something was not answered; null takes it away. */
export function showProblem(refusal) {
  const place = document.getElementById("problem");
  if (!refusal) return place.replaceChildren();
  const why = refusal.why ? make("p", { class: "why" }, `It says: ${refusal.why}.`) : null;
  return place.replaceChildren(make("div", { class: "problem" }, make("p", {}, refusal.message), why));
}

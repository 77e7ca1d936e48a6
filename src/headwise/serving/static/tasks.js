/* A panel for each model of another task than translation: a text, a button, the answer. */

import { Problem, ask } from "./api.js";
import { byId, make } from "./elements.js";

function showProblem(error) {
  if (!(error instanceof Problem)) throw error;
  byId("problem-text").textContent = error.message;
  byId("problem").hidden = false;
}

function panelOf(model, number) {
  const { panel } = model;
  const text = make("textarea", { id: `text-${number}`, dir: "auto", rows: "4" });
  const button = make("button", { type: "submit" }, panel.button);
  const output = make("div", { class: "output", dir: "auto", "aria-live": "polite" });
  const form = make("form", {},
    make("label", { for: text.id }, panel.label), text, button);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    byId("problem").hidden = true;
    button.disabled = true;
    try {
      const answer = await ask(model.path, { [panel.field]: text.value, model: model.name });
      const result = answer[panel.result];
      output.textContent = typeof result === "string" ? result : JSON.stringify(result);
    } catch (error) {
      showProblem(error);
    } finally {
      button.disabled = false;
    }
  });
  return make("section", { class: "card" },
    make("h2", {}, panel.title), make("p", { class: "dim" }, model.name), form, output);
}

try {
  const { models } = await ask("/v1/tasks");
  byId("panels").replaceChildren(...models.map(panelOf));
} catch (error) {
  showProblem(error);
}

/* A panel for each model of another task than translation: a text, a button, the answer. */

import { Problem, ask } from "./api.js";
import { byId, make } from "./elements.js";
import { showFigures } from "./figures.js";

const PAUSE = 250;

function showProblem(error) {
  if (!(error instanceof Problem)) throw error;
  byId("problem-text").textContent = error.message;
  byId("problem").hidden = false;
}

function show(output, panel, answer) {
  const result = answer[panel.result];
  if (panel.kind === "figures") showFigures(output, result);
  else output.textContent = typeof result === "string" ? result : JSON.stringify(result);
}

/* The newest text wins: an older request is called off. */
function asking(model, text, output) {
  const { panel } = model;
  let under_way = null;
  return async () => {
    if (under_way) under_way.abort();
    const mine = under_way = new AbortController();
    byId("problem").hidden = true;
    output.setAttribute("aria-busy", "true");
    try {
      const fields = { ...panel.fields, [panel.field]: text.value, model: model.name };
      show(output, panel, await ask(model.path, fields, mine.signal));
    } catch (error) {
      if (error.name !== "AbortError") showProblem(error);
    } finally {
      if (mine === under_way) output.setAttribute("aria-busy", "false");
    }
  };
}

function panelOf(model, number) {
  const { panel } = model;
  const text = make("textarea", { id: `text-${number}`, dir: "auto", rows: panel.live ? "2" : "4" });
  const button = make("button", { type: "submit" }, panel.button);
  const output = make("div", { class: `output ${panel.kind}`, dir: "auto" });
  if (panel.kind === "text") output.setAttribute("aria-live", "polite");
  const form = make("form", { class: panel.live ? "live" : "" },
    make("label", { for: text.id }, panel.label), text, button);
  const answer = asking(model, text, output);
  let timer = 0;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearTimeout(timer);
    button.disabled = true;
    await answer();
    button.disabled = false;
  });
  if (panel.live) {
    text.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(answer, PAUSE);
    });
  }
  return make("section", { class: "card" },
    make("h2", {}, panel.title), make("p", { class: "dim" }, model.name), form, output);
}

try {
  const { models } = await ask("/v1/tasks");
  byId("panels").replaceChildren(...models.map(panelOf));
} catch (error) {
  showProblem(error);
}

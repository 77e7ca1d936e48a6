/* A panel for each model of another task than translation: a text or a file, and the answer. */

import { Problem, ask } from "./api.js";
import { showClasses } from "./classes.js";
import { byId, make } from "./elements.js";
import { showFigures } from "./figures.js";
import { filePlace } from "./files.js";
import { generationPanel } from "./generation.js";
import { showTranscriptions } from "./transcriptions.js";

const PAUSE = 250;

function showProblem(error) {
  if (!(error instanceof Problem)) throw error;
  byId("problem-text").textContent = error.message;
  byId("problem").hidden = false;
}

function show(output, panel, answer) {
  const result = answer[panel.result];
  if (panel.kind === "figures") showFigures(output, result);
  else if (panel.kind === "classes") showClasses(output, result);
  else if (panel.kind === "transcriptions") showTranscriptions(output, result);
  else output.textContent = typeof result === "string" ? result : JSON.stringify(result);
}

/* The newest request wins: an older one is aborted. */
function asking({ path, panel }, output) {
  let under_way = null;
  const clear = () => {
    if (under_way) under_way.abort();
    under_way = null;
    byId("problem").hidden = true;
    output.replaceChildren();
    output.setAttribute("aria-busy", "false");
  };
  const answer = async (body) => {
    if (under_way) under_way.abort();
    const mine = under_way = new AbortController();
    byId("problem").hidden = true;
    output.setAttribute("aria-busy", "true");
    try {
      show(output, panel, await ask(path, body, mine.signal));
    } catch (error) {
      if (error.name !== "AbortError") showProblem(error);
    } finally {
      if (mine === under_way) output.setAttribute("aria-busy", "false");
    }
  };
  return { answer, clear };
}

function textForm(model, number, { answer }) {
  const { panel } = model;
  const text = make("textarea", { id: `text-${number}`, dir: "auto", rows: panel.live ? "2" : "4" });
  const button = make("button", { type: "submit" }, panel.button);
  const form = make("form", { class: panel.live ? "live" : "" },
    make("label", { for: text.id }, panel.label), text, button);
  const send = () => answer({ ...panel.fields, [panel.field]: text.value, model: model.name });
  let timer = 0;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    clearTimeout(timer);
    button.disabled = true;
    await send();
    button.disabled = false;
  });
  if (panel.live) {
    text.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(send, PAUSE);
    });
  }
  return form;
}

function fileForm(model, number, { answer, clear }) {
  const { panel } = model;
  return filePlace(panel, `file-${number}`, (file, name) => {
    const form = new FormData();
    for (const [key, value] of Object.entries({ ...panel.fields, model: model.name })) form.append(key, value);
    form.append(panel.field, file, name);
    return answer(form);
  }, clear);
}

function panelOf(model, number) {
  const { panel } = model;
  if (panel.kind === "stream") {
    return generationPanel(model, number, { begin: () => { byId("problem").hidden = true; }, fail: showProblem });
  }
  const output = make("div", { class: `output ${panel.kind}`, dir: "auto" });
  if (panel.kind !== "figures") output.setAttribute("aria-live", "polite");
  const form = (panel.input === "text" ? textForm : fileForm)(model, number, asking(model, output));
  return make("section", { class: "card" },
    make("h2", {}, panel.title), make("p", { class: "dim" }, model.name), form, output);
}

try {
  const { models } = await ask("/v1/tasks");
  byId("panels").replaceChildren(...models.map(panelOf));
} catch (error) {
  showProblem(error);
}

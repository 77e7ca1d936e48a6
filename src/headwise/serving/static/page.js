/* Translate as you type: the newest text wins, older requests are called off. */

import { Problem, ask } from "./api.js";
import { showCard } from "./card.js";
import { byId, languageName, make } from "./elements.js";
import { sentencesOf, showAlternatives, showTokens } from "./insight.js";
import { keepInReach } from "./scrolling.js";

const PAUSE = 250;
const LONGER_PAUSE = 500;
const CANDIDATES = 4;

const source = byId("source");
const output = byId("output");
let models = [];
let most = Infinity;
let candidates = CANDIDATES;
let timer = 0;
let under_way = null;
let explorer = null;

function model() {
  return models[Number(byId("model").value) || 0];
}

function later(action, milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(action, milliseconds);
}

function showProblem(problem, action) {
  const again = byId("again");
  byId("status").textContent = "";
  if (problem.key) {
    byId("problem-text").replaceChildren(`${problem.message} `, make("a", { href: "/" }, "Give a key"));
  } else {
    byId("problem-text").textContent = problem.wait
      ? `${problem.message} It is tried again in ${problem.wait} seconds.` : problem.message;
  }
  again.hidden = !problem.retry;
  again.onclick = action;
  byId("problem").hidden = false;
  if (problem.retry && problem.wait) later(action, 1000 * problem.wait);
}

function showCount() {
  const count = [...source.value].length;
  const foot = byId("count");
  foot.textContent = most === Infinity ? "" : `${count.toLocaleString("en")} of ${most.toLocaleString("en")} characters`;
  foot.classList.toggle("bad", count > most);
  byId("clear").hidden = !count;
  return count <= most;
}

/* What belongs to an earlier text stays to be seen, but not to be taken for the answer to this one. */
function setOld(old, ...parts) {
  for (const id of parts) byId(id).setAttribute("aria-busy", String(old));
}

function showNothing() {
  output.textContent = "";
  setOld(false, "output");
  byId("status").textContent = "";
  for (const id of ["problem", "insight", "attention", "copy"]) byId(id).hidden = true;
}

async function translate() {
  clearTimeout(timer);
  if (under_way) under_way.abort();
  const text = source.value;
  if (!text.trim()) {
    showNothing();
    return;
  }
  if (!models.length) return; // As soon as they are there, it is translated.
  setOld(true, "output", "insight", "attention");
  byId("copy").disabled = true;
  if (!showCount()) {
    showProblem(new Problem(`The text is too long: at most ${most.toLocaleString("en")} characters are translated at once.`));
    return;
  }
  const mine = under_way = new AbortController();
  byId("status").textContent = "Translating …";
  try {
    const begin = performance.now();
    const answer = await ask("/v1/translate", { q: text, model: model().name, nbest: candidates, token_scores: true }, mine.signal);
    show(answer.translations[0], performance.now() - begin);
    if (model().attention) later(() => look(text, mine), LONGER_PAUSE);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    showProblem(error, translate);
  }
}

function show(translation, milliseconds) {
  byId("problem").hidden = true;
  output.textContent = translation.text;
  setOld(false, "output", "insight");
  byId("copy").hidden = !navigator.clipboard || !translation.text;
  byId("copy").disabled = false;
  byId("status").textContent = `in ${(milliseconds / 1000).toFixed(2)} seconds`;
  const sentences = sentencesOf(translation);
  showTokens(sentences);
  showAlternatives(sentences);
  byId("insight").hidden = !sentences.length;
}

async function look(text, mine) {
  try {
    const { records, left_out } = await ask("/v1/attention", { q: text, model: model().name }, mine.signal);
    byId("attention").hidden = !records.length;
    if (!records.length) return;
    setOld(false, "attention");
    const { kind, layer, head } = explorer ? explorer.choice : {};
    explorer = window.HeadwiseExplorer.mount(byId("explorer"), records, { kind, layer, head });
    byId("attention-says").textContent = "Each word attends to others. Choose a word, a layer and a head."
      + (left_out ? ` The last ${left_out === 1 ? "sentence is" : `${left_out} sentences are`} left out: there is too much to show.` : "");
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!(error instanceof Problem)) throw error;
    // The translation is there; only this part of the page has nothing to show.
    explorer = null;
    byId("explorer").replaceChildren();
    byId("attention-says").textContent = error.message;
    byId("attention").hidden = false;
    setOld(false, "attention");
  }
}

function setLanguage(element, code) {
  if (code) element.lang = code;
  else element.removeAttribute("lang");
}

function chooseModel() {
  const { source: from, target: to } = model();
  byId("source-name").textContent = from ? languageName(from) : "Source";
  byId("target-name").textContent = to ? languageName(to) : "Translation";
  setLanguage(source, from);
  setLanguage(output, to);
  explorer = null;
  byId("attention").hidden = true;
  showCard(model());
  translate();
}

async function begin() {
  try {
    const answer = await ask("/v1/models");
    models = answer.models;
    most = answer.max_characters;
    candidates = Math.min(CANDIDATES, answer.max_candidates);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    showProblem(error, begin);
    return;
  }
  byId("problem").hidden = true;
  byId("model").replaceChildren(...models.map(({ name }, place) => make("option", { value: place }, name)));
  byId("model-choice").hidden = models.length < 2;
  showCount();
  chooseModel();
}

source.addEventListener("input", () => {
  showCount();
  later(translate, PAUSE);
});
byId("model").addEventListener("change", chooseModel);
byId("clear").addEventListener("click", () => {
  source.value = "";
  showCount();
  translate();
  source.focus();
});
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(output.textContent);
  byId("status").textContent = "copied";
});
for (const box of document.querySelectorAll(".scrolls")) keepInReach(box);
window.addEventListener("online", () => (models.length ? translate() : begin()));
begin();

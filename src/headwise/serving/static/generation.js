/* A text that is continued while one watches, and how probable each of its tokens was. */

import { askForEvents } from "./api.js";
import { make, percent } from "./elements.js";
import { spelled } from "./insight.js";

const MOST_TOKENS = 200;
const ALTERNATIVES = 5;
const LEVELS = [0.05, 0.25, 0.6];
const HINT = "Point at a part of the text to see how probable it was.";
const NOTHING = "The model ended the text here.";

/* The tokens of a text that grows. Tokens that are bytes of one character are one part. */
class Continuation {
  constructor(box, says) {
    Object.assign(this, { box, says, characters: [], parts: [] });
    box.replaceChildren();
    says.textContent = "";
    box.onpointerleave = () => this.hint();
    box.onkeydown = (event) => this.move(event);
  }

  add({ text, tokens }) {
    let changed = Math.max(0, this.parts.length - 1);
    this.characters.push(...text);
    for (const { offset, log_prob: logProb, best } of tokens) {
      const last = this.parts.at(-1);
      if (last && last.offset === offset) last.logProb += logProb;
      else this.parts.push({ offset, logProb, best });
    }
    for (; changed < this.parts.length; changed++) this.show(changed);
  }

  show(number) {
    const part = this.parts[number];
    const probability = Math.exp(part.logProb);
    part.text = this.characters.slice(part.offset, this.parts[number + 1]?.offset).join("");
    const level = LEVELS.filter((least) => probability >= least).length;
    const others = Object.entries(part.best).map(([token, logProb]) =>
      `“${visible(spelled(token))}” ${percent(Math.exp(logProb))}`);
    part.label = `“${visible(part.text)}”: ${percent(probability)}. Most probable: ${others.join(", ")}`;
    if (!part.element) {
      part.element = make("span", { role: "option", tabindex: number ? "-1" : "0", "aria-selected": "false" });
      part.element.addEventListener("pointerenter", () => this.choose(number));
      part.element.addEventListener("focus", () => this.choose(number));
      this.box.append(part.element);
    }
    part.element.className = `token sure-${level}`;
    part.element.setAttribute("aria-label", part.label);
    part.element.textContent = part.text;
  }

  choose(chosen) {
    this.parts.forEach(({ element }, number) => {
      element.setAttribute("aria-selected", String(number === chosen));
      element.tabIndex = number === chosen ? 0 : -1;
    });
    this.says.textContent = this.parts[chosen].label;
  }

  hint() {
    if (!this.box.contains(document.activeElement)) this.says.textContent = this.parts.length ? HINT : NOTHING;
  }

  move(event) {
    const now = this.parts.findIndex(({ element }) => element === document.activeElement);
    const next = { ArrowRight: now + 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowUp: now - 1,
      Home: 0, End: this.parts.length - 1 }[event.key];
    if (now < 0 || next === undefined || !this.parts[next]) return;
    event.preventDefault();
    this.parts[next].element.focus();
  }
}

function visible(text) {
  return text.replaceAll("\n", "↵").replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length)) || "nothing yet";
}

/* `begin` is called before a request, `fail` with what went wrong. */
export function generationPanel(model, number, { begin, fail }) {
  const { panel, path, name } = model;
  const text = make("textarea", { id: `text-${number}`, dir: "auto", rows: "4" });
  const button = make("button", { type: "submit" }, panel.button);
  const form = make("form", {}, make("label", { for: text.id }, panel.label), text, button);
  const box = make("div", { class: "tokens", role: "listbox", dir: "auto", "aria-orientation": "horizontal",
    "aria-label": "The continuation" });
  const says = make("p", { class: "says dim", role: "status" });
  let running = null;

  async function write(signal) {
    const body = { ...panel.fields, [panel.field]: text.value, model: name, max_tokens: MOST_TOKENS,
      logprobs: ALTERNATIVES, seed: Math.floor(Math.random() * 2 ** 32) };
    const continuation = new Continuation(box, says);
    for await (const event of askForEvents(path, body, signal)) continuation.add(event);
    continuation.hint();
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) {
      running.abort();
      return;
    }
    running = new AbortController();
    begin();
    button.textContent = "Stop";
    try {
      await write(running.signal);
    } catch (error) {
      if (error.name !== "AbortError") fail(error);
    } finally {
      running = null;
      button.textContent = panel.button;
    }
  });
  return make("section", { class: "card" },
    make("h2", {}, panel.title), make("p", { class: "dim" }, name), form, box, says);
}

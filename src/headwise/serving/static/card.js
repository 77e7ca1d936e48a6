/* The model's card: what it is, how it was trained, where it departs from the paper. */

import { byId, languageName, make } from "./elements.js";

const number = (value) => Number(value).toLocaleString("en");

export function showCard(model) {
  const { card } = model;
  const recipe = card.recipe || {};
  const training = card.training || {};
  const test = card.test || {};
  const facts = [
    ["Name", model.name],
    ["Languages", model.source && model.target ? `${languageName(model.source)} to ${languageName(model.target)}` : "not said"],
    ["Parameters", card.parameters && number(card.parameters)],
    ["Layers", recipe.layers && `${recipe.layers} + ${recipe.decoder_layers}${recipe.heads ? `, ${recipe.heads} heads` : ""}`],
    ["Widths", recipe.d_model && `d_model ${number(recipe.d_model)}${recipe.d_ff ? `, d_ff ${number(recipe.d_ff)}` : ""}`],
    ["Recurrent", recipe.cell && `${recipe.cell.toUpperCase()}, ${recipe.attention === "none" ? "without attention" : "additive attention"}`],
    ["Vocabulary", card.vocabulary && `${number(card.vocabulary)} subwords`],
    ["Search", recipe.beam && `beam of ${recipe.beam}, length penalty ${recipe.alpha}`],
    ["Training", training.steps && `${number(training.steps)} updates${training.minutes ? ` in ${number(Math.round(training.minutes))} minutes` : ""}`],
    ["Test", test.bleu && `${test.bleu.toFixed(1)} BLEU (${number(test.sentences)} sentences)`],
    ["BLEU", training.bleu && `${training.bleu.toFixed(1)} (validation text)`],
    ["Perplexity", training.perplexity && `${training.perplexity.toFixed(2)} (validation text)`],
    ["Weights", card.weights],
    ["Engine", card.engine],
  ];
  byId("facts").replaceChildren(...facts.filter(([, value]) => value).map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
  const departures = card.departures || [];
  byId("departures-box").hidden = card.departures === undefined;
  const count = departures.length === 1 ? "1 departure" : `${departures.length} departures`;
  byId("departures-count").textContent = departures.length
    ? `${count} from the paper, compared with ${card.nearest_experiment}`
    : `No departure from the paper: this is ${card.nearest_experiment}.`;
  byId("departures").replaceChildren(...departures.map((departure) => make("li", {}, departure)));
  byId("card").hidden = false;
}

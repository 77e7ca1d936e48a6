/* The attention explorer: HeadwiseExplorer.mount(element, records, options).
 *
 * `records` is one attention record or a list of them, all of one model. `options` may say where to
 * begin: {sentence, kind, layer, head, word}; what does not exist is left to the explorer. It
 * returns an object whose `choice` is where the reader is now, in the same form. Mounting again
 * replaces what is there. */
(function () {
  "use strict";

  const { hasSource, kindsOf, partOf, unitOf, matrixOf, sentenceOf, habitOf, clearestRow } =
    window.HeadwiseExplorer.reading;
  const { make, choices, wordsView, textView, pictureView, matrixView, drawSmall } = window.HeadwiseExplorer.views;

  const howToRead = (looks, seen) =>
    `Each row is a ${looks} that looks, each column a ${seen} that is looked at; a row adds up to 1.`;

  const becomes = (record) => {
    if (!record.decoder.length) return "is classified as";
    return record.picture ? "is transcribed as" : "is translated as";
  };

  const MOST_ROWS = 150;

  let mounted = 0;

  /** A position if there is such a one, and something else if not. */
  function within(position, count, otherwise) {
    return Number.isInteger(position) && position >= 0 && position < count ? position : otherwise;
  }

  function mount(element, given, options) {
    const records = Array.isArray(given) ? given : [given];
    const kinds = kindsOf(records[0]);
    const [firstKind] = Object.keys(kinds);
    const layersOf = (kind) => records[0][kind].length;
    const heads = records[0][firstKind][0].length;
    mounted += 1;
    const id = (name) => `headwise-explorer-${mounted}-${name}`;

    const wanted = options || {};
    const wantedKind = Object.hasOwn(kinds, wanted.kind) ? wanted.kind : firstKind;
    const choice = {
      sentence: within(wanted.sentence, records.length, 0),
      kind: wantedKind,
      // The last layer but one shows best which words belong together.
      layer: within(wanted.layer, layersOf(wantedKind), Math.max(0, layersOf(wantedKind) - 2)),
      head: within(wanted.head, heads, "mean"),
      word: wanted.word ?? null,
    };
    const record = () => records[choice.sentence];
    const choose = (changes, show) => {
      Object.assign(choice, changes);
      show();
    };
    let preview = null;
    let words = null;
    let table = null;
    let matrix = null;

    const pair = make("p", { class: "hw-pair" });
    const says = make("p", { class: "hw-says", role: "status" });
    const habit = make("p", { class: "hw-habit" });
    const about = make("p", { class: "hw-about" });
    const wordsPlace = make("div", { class: "hw-panel hw-words-panel" });
    const matrixPlace = make("div", { class: "hw-panel hw-matrix-panel" });

    const thumbnails = ["mean", ...Array(heads).keys()].map((head) => ({
      head,
      canvas: make("canvas", { "aria-hidden": "true" }),
      brief: make("span", { class: "hw-brief" }),
    }));

    function showWord() {
      const row = preview ? preview[0] : choice.word;
      words.show(matrix, row);
      table.show(row);
      says.textContent = sentenceOf(record(), choice, row, preview ? preview[1] : undefined);
    }

    function showHead() {
      matrix = matrixOf(record(), choice);
      preview = null;
      choice.word = within(choice.word, matrix.length, null) ?? clearestRow(record(), choice);
      const on = {
        choose(row) {
          choice.word = row;
          preview = null;
          words.draw(matrix, row);
          showWord();
        },
        preview(row, column) {
          preview = row === null || row === undefined ? null : [row, column];
          showWord();
        },
      };
      if (words === null) {
        const pictured = { encoder: pictureView, cross: textView, decoder: wordsView };
        const view = record().picture ? pictured[choice.kind] : wordsView;
        words = view(id("word"), record(), choice.kind, choice.word, on);
        wordsPlace.replaceChildren(about, words.element);
      }
      words.draw(matrix, choice.word);
      const which = choice.head === "mean" ? "the mean of all heads" : `head ${choice.head + 1}`;
      const caption = `${kinds[choice.kind].name}, ${which} of layer ${choice.layer + 1}: every weight`;
      const scrolled = table ? [table.element.scrollLeft, table.element.scrollTop] : [0, 0];
      // A larger table would take the browser seconds to draw.
      const shown = matrix.length > MOST_ROWS ? [] : matrix;
      table = matrixView(id("caption"), record(), choice.kind, shown, caption, on);
      matrixPlace.hidden = matrix.length > MOST_ROWS;
      const [looks, seen] = ["rows", "columns"].map((side) => partOf(record(), choice.kind, side));
      matrixPlace.replaceChildren(make("p", { class: "hw-about" }, howToRead(looks, seen)), table.element);
      [table.element.scrollLeft, table.element.scrollTop] = scrolled;
      habit.textContent = habitOf(record(), choice).full;
      showWord();
    }

    function showLayer() {
      for (const { head, canvas, brief } of thumbnails) {
        const looked = { ...choice, head };
        drawSmall(canvas, matrixOf(record(), looked));
        brief.textContent = habitOf(record(), looked).brief;
      }
      showHead();
    }

    function showKind() {
      words = null;
      table = null;
      about.textContent = kinds[choice.kind].about;
      showLayer();
    }

    /** What the menu of records, if there is one, does not show. */
    function textsShown() {
      const { source, target } = record();
      const isChosen = records.length > 1;
      if (!hasSource(record())) return isChosen ? [] : [make("span", { dir: "auto" }, target)];
      return [
        ...(isChosen ? [] : [make("span", { dir: "auto" }, source), " "]),
        make("span", { class: "hw-arrow", "aria-hidden": "true" }, "→"),
        make("span", { class: "hw-out-of-sight" }, becomes(record())), " ",
        make("strong", { dir: "auto" }, target || "(nothing)"),
      ];
    }

    function showSentence() {
      pair.replaceChildren(...textsShown());
      pair.hidden = !pair.hasChildNodes();
      showKind();
    }

    const controls = make("div", { class: "hw-controls" });
    if (records.length > 1) {
      const select = make("select", { id: id("sentence") });
      records.forEach((each, number) => {
        const text = hasSource(each) ? each.source : each.target;
        const shown = each.picture ? `${number + 1}: ${each.target}` : text;
        select.append(make("option", { value: number }, shown));
      });
      select.value = choice.sentence;
      select.addEventListener("change", () => {
        choose({ sentence: Number(select.value), word: null }, showSentence);
      });
      const unit = unitOf(records[0]);
      const label = make("label", { for: id("sentence") }, unit[0].toUpperCase() + unit.slice(1));
      controls.append(make("div", { class: "hw-sentence" }, label, select));
    }
    const kindItems = Object.entries(kinds).map(([value, { name, gist }]) => ({
      value,
      content: [make("strong", {}, name), make("small", {}, gist)],
    }));
    /** The menu of layers: encoder and decoder may have different numbers of them. */
    function layerChoices() {
      const items = Array.from(Array(layersOf(choice.kind)).keys(), (layer) => ({
        value: layer,
        content: [String(layer + 1)],
        label: `Layer ${layer + 1}`,
      }));
      return choices("Layer", id("layer"), items, choice.layer, on.layer, "hw-layers");
    }
    const headItems = thumbnails.map(({ head, canvas, brief }) => {
      const name = head === "mean" ? "Mean of all" : `Head ${head + 1}`;
      return { value: head, content: [canvas, make("span", { class: "hw-head-name" }, name), brief] };
    });
    const on = {
      kind: (kind) => {
        const layer = Math.min(choice.layer, layersOf(kind) - 1);
        const hasOtherLayers = layersOf(kind) !== layersOf(choice.kind);
        choose({ kind, layer, word: null }, showKind);
        if (hasOtherLayers) {
          const menu = layerChoices();
          layerMenu.replaceWith(menu);
          layerMenu = menu;
        }
      },
      layer: (layer) => choose({ layer }, showLayer),
      head: (head) => choose({ head }, showHead),
    };
    let layerMenu = layerChoices();
    controls.append(
      pair,
      ...(kindItems.length === 1 ? [] : [
        choices("Kind of attention", id("kind"), kindItems, choice.kind, on.kind, "hw-kinds"),
      ]),
      layerMenu,
      choices("Head", id("head"), headItems, choice.head, on.head, "hw-heads"));

    const root = make("div", { class: "hw-explorer" },
      controls,
      make("div", { class: "hw-telling" }, says, habit),
      make("div", { class: "hw-panels" }, wordsPlace, matrixPlace));
    element.replaceChildren(root);
    showSentence();

    // Canvases keep the colours they were drawn in.
    const scheme = window.matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", function redraw() {
      if (!root.isConnected) scheme.removeEventListener("change", redraw);
      else showLayer();
    });
    return { choice };
  }

  window.HeadwiseExplorer.mount = mount;
})();

/* What an attention record says, in numbers and in plain sentences. Touches no document.
 *
 * A record has the form that headwise/inspect/attention.py describes. A choice is
 * {sentence, kind, layer, head, word}: positions from 0, and the head may be "mean". */
(function () {
  "use strict";

  const KINDS = {
    cross: {
      name: "Encoder-decoder attention",
      gist: "the translation looks at the source",
      about: "Before it writes a word, the decoder looks at the words of the source: mostly at those " +
        "it is translating.",
      rowsTitle: "Writing",
      columnsTitle: "looks at",
      rows: "output_tokens",
      columns: "source_tokens",
    },
    encoder: {
      name: "Encoder self-attention",
      gist: "the source looks at itself",
      about: "To understand a word, the encoder looks at all words of the source, the word itself " +
        "included.",
      rowsTitle: "Reading",
      columnsTitle: "looks at",
      rows: "source_tokens",
      columns: "source_tokens",
    },
    decoder: {
      name: "Decoder self-attention",
      gist: "the translation looks back",
      about: "Before it writes a word, the decoder looks back at what it has written so far. What " +
        "comes later is hidden from it.",
      rowsTitle: "Writing",
      columnsTitle: "looks back at",
      rows: "output_tokens",
      columns: "input_tokens",
    },
  };

  /* How a model without a source differs: it reads one text, and looks back at it. */
  const ALONE = {
    gist: "each word looks back",
    about: "Before it writes a word, the model looks back at the text so far. What comes later is " +
      "hidden from it.",
  };

  /* And one that reads the patches of an image, or the frames of a sound. */
  const seen = (part, parts) => ({
    encoder: {
      gist: `the ${parts} look at each other`,
      about: `The encoder looks at all ${parts}, the class token included. Choose a ${part} to see what it ` +
        "looks at: the lighter, the more.",
    },
    cross: {
      gist: `the text looks at the ${parts}`,
      about: `Before it writes a token, the decoder looks at the ${parts}. Choose a token to see what it ` +
        "looks at: the lighter, the more.",
    },
    decoder: {
      gist: "the text looks back",
      about: "Before it writes a token, the decoder looks back at what it has written so far. What " +
        "comes later is hidden from it.",
    },
  });
  const SEEN = { image: seen("patch", "patches"), sound: seen("frame", "frames") };

  const PLACES = {
    encoder: [
      ["the word itself", (row) => row],
      ["the word before", (row) => row - 1],
      ["the word after", (row) => row + 1],
      ["the end mark", (row, count) => count - 1],
    ],
    decoder: [
      ["the word just written", (row) => row],
      ["the word before the last", (row) => row - 1],
      ["the beginning mark", () => 0],
    ],
    cross: [
      ["the word at the same place", (row) => row],
      ["the word after that place", (row) => row + 1],
      ["the end mark", (row, count) => count - 1],
    ],
  };

  const MOSTLY = 0.5;
  const WORTH_TELLING = 0.05;

  const WORDLIKE = /[\p{L}\p{N}]/u;

  /** Whether the model has an encoder, and so a source beside the target. */
  function hasSource(record) {
    return record.source_tokens.length > 0;
  }

  /** The kinds of attention that the model has, the one to begin with first. */
  function kindsOf(record) {
    const found = Object.keys(KINDS).filter((kind) => record[kind].length > 0);
    const changes = (kind) => (record.picture ? SEEN[record.picture.kind][kind] : hasSource(record) ? {} : ALONE);
    return Object.fromEntries(found.map((kind) => [kind, { ...KINDS[kind], ...changes(kind) }]));
  }

  /** What looks, or what is looked at, in a word. */
  function partOf(record, kind, side) {
    if (!record.picture) return "word";
    if (KINDS[kind][side] !== "source_tokens") return "token";
    return record.picture.kind === "image" ? "patch" : "frame";
  }

  /** What a record is about, in a word. */
  function unitOf(record) {
    if (record.picture) return record.picture.kind;
    return hasSource(record) ? "sentence" : "text";
  }

  /** The weights of one head, or the mean of all, as rows of columns. */
  function matrixOf(record, choice) {
    const heads = record[choice.kind][choice.layer];
    if (choice.head !== "mean") return heads[choice.head];
    return heads[0].map((row, r) =>
      row.map((_, c) => heads.reduce((sum, head) => sum + head[r][c], 0) / heads.length),
    );
  }

  function tokensOf(record, kind, side) {
    return record[KINDS[kind][side]];
  }

  /** Whether a decoder position lies in the future of the one that looks. */
  function isHidden(kind, row, column) {
    return kind === "decoder" && column > row;
  }

  /** The mark that a position holds instead of a word: "begin", "end" or nothing. */
  function markAt(record, kind, side, position) {
    const list = KINDS[kind][side];
    if (record.picture && list === "source_tokens") return "";
    if (list === "input_tokens") return position === 0 ? "begin" : "";
    return position === record[list].length - 1 ? "end" : "";
  }

  /** What to show of a token: its letters, and whether it goes on with the word before it. */
  function labelOf(record, kind, side, position) {
    const tokens = tokensOf(record, kind, side);
    const token = tokens[position];
    const text = token.trim() || "␣";
    if (record.picture) return { text, continues: false };
    const before = position > 0 && !markAt(record, kind, side, position - 1);
    const continues =
      before && !markAt(record, kind, side, position) && !token.startsWith(" ") &&
      WORDLIKE.test(token) && WORDLIKE.test(tokens[position - 1]);
    return { text, continues };
  }

  /** The first and the last position of the word that a token is a piece of. */
  function wordAround(record, kind, side, position) {
    const continues = (place) => labelOf(record, kind, side, place).continues;
    const count = tokensOf(record, kind, side).length;
    let [first, last] = [position, position];
    while (continues(first)) first -= 1;
    while (last + 1 < count && continues(last + 1)) last += 1;
    return [first, last];
  }

  /** A token as a sentence names it: in quotes, with its word where it is a piece of one. */
  function nameOf(record, kind, side, position) {
    const mark = markAt(record, kind, side, position);
    if (mark) return mark === "begin" ? "the beginning mark" : `the end of the ${unitOf(record)}`;
    const piece = `“${labelOf(record, kind, side, position).text}”`;
    const [first, last] = wordAround(record, kind, side, position);
    if (first === last) return piece;
    return `${piece} of “${tokensOf(record, kind, side).slice(first, last + 1).join("").trim()}”`;
  }

  function whoLooks(record, choice) {
    const heads = record[choice.kind][choice.layer].length;
    const layer = `layer ${choice.layer + 1}`;
    if (choice.head !== "mean") return { who: `head ${choice.head + 1} of ${layer}`, s: "s" };
    if (heads === 1) return { who: `the head of ${layer}`, s: "s" };
    return { who: `the ${heads} heads of ${layer} together`, s: "" };
  }

  /** Say in a sentence where a word looks, or how much of it goes to one column. */
  function sentenceOf(record, choice, row, column) {
    const { kind } = choice;
    const weights = matrixOf(record, choice)[row];
    const { who, s } = whoLooks(record, choice);
    const subject = nameOf(record, kind, "rows", row);
    const start = `${kind === "encoder" ? "Reading" : "When it writes"} ${subject}, ${who}`;
    const object = (place) => nameOf(record, kind, "columns", place);
    if (column !== undefined && isHidden(kind, row, column)) {
      return `${start} cannot see ${object(column)}: it is yet to be written.`;
    }
    if (column !== undefined) {
      const its = s ? "its" : "their";
      return `${start} give${s} ${object(column)} ${weights[column].toFixed(4)} of ${its} attention.`;
    }
    const order = weights.map((_, place) => place).filter((place) => !isHidden(kind, row, place));
    order.sort((a, b) => weights[b] - weights[a]);
    const [best, second] = order;
    const back = kind === "decoder" ? " back" : "";
    if (second === undefined) return `${start} can look${back} at nothing but ${object(best)}.`;
    const number = (place) => weights[place].toFixed(2);
    const then = weights[second] >= WORTH_TELLING ? `, then at ${object(second)} (${number(second)})` : "";
    return `${start} look${s}${back} most at ${object(best)} (${number(best)})${then}.`;
  }

  /** Say what a head does over the whole sentence: briefly, and in full. */
  function habitOf(record, choice) {
    const matrix = matrixOf(record, choice);
    const count = matrix[0].length;
    // The first word that is written can only look at the beginning.
    const rows = matrix.map((_, row) => row).filter((row) => choice.kind !== "decoder" || row > 0);
    if (!rows.length) return { brief: "", full: "" };
    const mean = (value) => rows.reduce((sum, row) => sum + value(row), 0) / rows.length;
    // The parts of a picture have no end mark, and are in no order that a text could follow.
    const isKnown = ([name]) => !record.picture || (choice.kind !== "cross" && name !== "the end mark");
    const places = PLACES[choice.kind].filter(isKnown);
    const shares = places.map(([name, place]) => [
      mean((row) => matrix[row][place(row, count)] || 0), name,
    ]);
    const [share, called] = shares.reduce((a, b) => (b[0] > a[0] ? b : a), [0, ""]);
    const part = partOf(record, choice.kind, "rows");
    const name = called.replace("word", part);
    const its = whoLooks(record, choice).s ? "its" : "their";
    const over = `Over the whole ${unitOf(record)}`;
    const percent = Math.round(100 * share);
    if (share >= MOSTLY) {
      return {
        brief: name.replace("the ", ""),
        full: `${over}, ${percent} % of ${its} attention goes to ${name}.`,
      };
    }
    const peak = mean((row) => Math.max(...matrix[row]));
    const strongest = `the strongest link of a ${part} is ${peak.toFixed(2)} on average`;
    const manner = peak >= MOSTLY ? "sharp" : "spread";
    return { brief: manner, full: `${over}, ${its} attention is ${manner}: ${strongest}.` };
  }

  /** The whole word with the clearest link to another: a good one to begin with. */
  function clearestRow(record, choice) {
    const { kind } = choice;
    if (record.picture) return 0; // The class token, of which the answer is made.
    const tokens = tokensOf(record, kind, "rows");
    const isWhole = (row) => {
      const [first, last] = wordAround(record, kind, "rows", row);
      return first === last && WORDLIKE.test(tokens[row]) && !markAt(record, kind, "rows", row);
    };
    const clearness = (weights, row) => Math.max(...weights.map((weight, column) =>
      markAt(record, kind, "columns", column) || (kind !== "cross" && row === column) ? 0 : weight));
    const matrix = matrixOf(record, choice);
    const wholes = matrix.map((_, row) => row).filter(isWhole);
    return wholes.reduce((best, row) =>
      (clearness(matrix[row], row) > clearness(matrix[best], best) ? row : best), wholes[0] ?? 0);
  }

  window.HeadwiseExplorer = window.HeadwiseExplorer || {};
  window.HeadwiseExplorer.reading = {
    KINDS, hasSource, kindsOf, partOf, unitOf, matrixOf, tokensOf, isHidden, labelOf, nameOf, sentenceOf,
    habitOf, clearestRow,
  };
})();

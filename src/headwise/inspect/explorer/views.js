/* What the explorer is drawn with: elements made one by one, so that no text is ever markup, and
 * no style attribute, so that a strict Content-Security-Policy has nothing to refuse. */
(function () {
  "use strict";

  const { KINDS, tokensOf, isHidden, labelOf, nameOf } = window.HeadwiseExplorer.reading;

  const SVG = "http://www.w3.org/2000/svg";

  const FAINTEST = 0.04;

  /** How dark a weight is drawn: a little darker than it is, or small ones would not be seen. */
  const shade = (weight) => Math.pow(weight, 0.7);

  /* From this shade on, black on a light card must become white, and white on a dark card black. */
  const WHITE_FROM = 0.87;
  const BLACK_FROM = 0.6;

  /** A weight for a table: two decimals, and what is as good as nothing without any. */
  const written = (weight) => (weight < 0.005 ? "0" : weight.toFixed(2));

  /** A finger chooses by tapping; what it passes over on the way is no question. */
  const isMouse = (event) => event.pointerType === "mouse";

  function make(name, attributes, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function word(record, kind, side, position) {
    const { text, continues } = labelOf(record, kind, side, position);
    const content = make("span", { class: "hw-token", title: text, dir: "auto" });
    if (continues) {
      content.append(make("span", { class: "hw-continues", "aria-hidden": "true" }, "·"));
    }
    content.append(text);
    return content;
  }

  /** A group of which one is chosen: radio buttons, so that arrow keys and screen readers know. */
  function choices(legend, name, items, chosen, onChange, className) {
    const group = make("div", { class: "hw-items" });
    items.forEach(({ value, content, label }) => {
      const input = make("input", { type: "radio", name, value: String(value) });
      if (label) input.setAttribute("aria-label", label);
      input.checked = value === chosen;
      input.addEventListener("change", () => onChange(value));
      const face = make("span", { class: "hw-face" }, ...content);
      group.append(make("label", { class: "hw-choice" }, input, face));
    });
    return make("fieldset", { class: className }, make("legend", {}, legend), group);
  }

  /** Two columns of words, and lines between them as strong as the weights. */
  function wordsView(name, record, kind, chosen, on) {
    const about = KINDS[kind];
    const rows = tokensOf(record, kind, "rows").map((_, row) => ({
      value: row,
      content: [word(record, kind, "rows", row)],
      label: nameOf(record, kind, "rows", row),
    }));
    const left = choices(about.rowsTitle, name, rows, chosen, on.choose, "hw-rows");
    left.querySelectorAll("label").forEach((label, row) => {
      label.addEventListener("pointerenter", (event) => isMouse(event) && on.preview(row));
      label.addEventListener("pointerleave", () => on.preview(null));
    });
    const columns = tokensOf(record, kind, "columns").map((_, column) => {
      const value = make("span", { class: "hw-number" });
      const item = make("li", {}, word(record, kind, "columns", column), value);
      return { item, value };
    });
    const right = make("div", { class: "hw-columns" },
      make("p", { class: "hw-title" }, about.columnsTitle),
      make("ol", {}, ...columns.map(({ item }) => item)));
    const height = Math.max(rows.length, columns.length);
    const lines = document.createElementNS(SVG, "svg");
    lines.setAttribute("class", "hw-lines");
    lines.setAttribute("viewBox", `0 0 100 ${height}`);
    lines.setAttribute("preserveAspectRatio", "none");
    lines.setAttribute("aria-hidden", "true");
    lines.style.setProperty("--hw-count", height);
    const all = document.createElementNS(SVG, "g");
    const strong = document.createElementNS(SVG, "g");
    strong.setAttribute("class", "hw-strong");
    lines.append(all, strong);
    const element = make("div", { class: "hw-words" }, left, lines, right);

    return {
      element,
      show(matrix, row) {
        strong.replaceChildren(...curves([matrix[row]], [row], 0.01));
        const labels = left.querySelectorAll("label");
        labels.forEach((label, place) => label.classList.toggle("hw-on", place === row));
        columns.forEach(({ item, value }, column) => {
          const hidden = isHidden(kind, row, column);
          item.classList.toggle("hw-hidden", hidden);
          item.style.setProperty("--hw-weight", hidden || matrix[row][column] < 0.01 ? 0 : matrix[row][column]);
          value.textContent = hidden ? "not yet" : written(matrix[row][column]);
        });
      },
      draw(matrix, row) {
        all.replaceChildren(...curves(matrix, matrix.map((_, place) => place), FAINTEST));
        left.querySelectorAll("input")[row].checked = true;
      },
    };
  }

  /** Lines from rows to columns, the weak ones left out. */
  function curves(weights, rows, faintest) {
    const found = [];
    weights.forEach((line, place) => line.forEach((weight, column) => {
      if (weight < faintest) return;
      const path = document.createElementNS(SVG, "path");
      const [from, to] = [rows[place] + 0.5, column + 0.5];
      path.setAttribute("d", `M0 ${from}C45 ${from} 55 ${to} 100 ${to}`);
      path.setAttribute("stroke-opacity", shade(weight).toFixed(3));
      path.setAttribute("stroke-width", (1 + 4 * weight).toFixed(2));
      found.push(path);
    }));
    return found;
  }

  /** Patches or frames over a picture, the lighter the more they are looked at. */
  function pictureOf(record, parts) {
    const { png, rows, columns } = record.picture;
    const grid = make("div", { class: "hw-grid" }, ...parts);
    grid.style.setProperty("--hw-grid-rows", rows);
    grid.style.setProperty("--hw-grid-columns", columns);
    const alt = `${record.picture.kind}, ${record.decoder.length ? "text" : "class"} ${record.target}`;
    return make("div", { class: "hw-picture" }, make("img", { src: png, alt }), grid);
  }

  function lighten(part, weight, most) {
    const light = most > 0 ? Math.min(1, weight / most) : 1;
    part.style.setProperty("--hw-veil", (0.8 * (1 - light)).toFixed(3));
  }

  /** A text over a picture: the parts that the chosen token looks at are light. */
  function textView(name, record, kind, chosen, on) {
    const items = tokensOf(record, kind, "rows").map((token, row) => ({
      value: row,
      content: [word(record, kind, "rows", row)],
      label: nameOf(record, kind, "rows", row),
    }));
    const text = choices("Writing", name, items, chosen, on.choose, `hw-text hw-${record.picture.kind}`);
    const labels = [...text.querySelectorAll("label")];
    labels.forEach((label, row) => {
      label.addEventListener("pointerenter", (event) => isMouse(event) && on.preview(row));
      label.addEventListener("pointerleave", () => on.preview(null));
    });
    const parts = tokensOf(record, kind, "columns").slice(1).map((title) => make("i", { title }));
    const picture = pictureOf(record, parts);
    return {
      element: make("div", { class: `hw-${record.picture.kind}` }, picture, text),
      show(matrix, row) {
        labels.forEach((label, place) => label.classList.toggle("hw-on", place === row));
        const most = Math.max(...matrix[row].slice(1));
        parts.forEach((part, place) => lighten(part, matrix[row][place + 1], most));
      },
      draw(matrix, row) {
        labels[row].querySelector("input").checked = true;
      },
    };
  }

  /** A picture under its patches or frames: the chosen one has a border, and those it looks at are light. */
  function pictureView(name, record, kind, chosen, on) {
    const items = tokensOf(record, kind, "rows").map((token, row) => ({
      value: row,
      content: row === 0 ? [token] : [],
      label: token,
    }));
    const parts = choices("Reading", name, items, chosen, on.choose, `hw-parts hw-${record.picture.kind}`);
    const labels = [...parts.querySelectorAll("label")];
    labels.forEach((label, row) => {
      label.title = items[row].label;
      label.addEventListener("pointerenter", (event) => isMouse(event) && on.preview(row));
      label.addEventListener("pointerleave", () => on.preview(null));
    });
    parts.querySelector(".hw-items").append(pictureOf(record, labels.slice(1)));
    return {
      element: make("div", {}, parts),
      show(matrix, row) {
        const most = Math.max(...matrix[row].slice(1));
        labels.forEach((label, place) => {
          label.classList.toggle("hw-on", place === row);
          lighten(label, matrix[row][place], most);
        });
      },
      draw(matrix, row) {
        labels[row].querySelector("input").checked = true;
      },
    };
  }

  /** All weights as a table of shaded cells. */
  function matrixView(id, record, kind, matrix, caption, on) {
    const columns = tokensOf(record, kind, "columns");
    const head = make("tr", {}, make("td", { class: "hw-corner" }));
    columns.forEach((_, column) => {
      const label = nameOf(record, kind, "columns", column);
      const upright = make("div", {}, word(record, kind, "columns", column));
      head.append(make("th", { scope: "col", "aria-label": label }, upright));
    });
    const lines = matrix.map((weights, row) => {
      const label = nameOf(record, kind, "rows", row);
      const title = make("th", { scope: "row", "aria-label": label }, word(record, kind, "rows", row));
      const line = make("tr", {}, title);
      weights.forEach((weight, column) => line.append(cell(kind, row, column, weight)));
      return line;
    });
    const body = make("tbody", {}, ...lines);
    const place = (event) => {
      const found = event.target.closest("td");
      return found ? [found.parentElement.sectionRowIndex, found.cellIndex - 1] : [];
    };
    body.addEventListener("pointerover", (event) => isMouse(event) && on.preview(...place(event)));
    body.addEventListener("pointerleave", () => on.preview(null));
    body.addEventListener("click", (event) => place(event).length && on.choose(place(event)[0]));
    const title = make("caption", { id, class: "hw-out-of-sight" }, caption);
    const table = make("table", {}, title, make("thead", {}, head), body);
    // A wide table scrolls in a box of its own, which the keyboard must be able to reach.
    const box = { class: "hw-scroll", tabindex: "0", role: "region", "aria-labelledby": id };
    const element = make("div", box, table);
    return {
      element,
      show(row) {
        lines.forEach((line, number) => line.classList.toggle("hw-on", number === row));
      },
    };
  }

  function cell(kind, row, column, weight) {
    if (isHidden(kind, row, column)) {
      const why = make("span", { class: "hw-out-of-sight" }, "not yet written");
      return make("td", { class: "hw-hidden" }, why);
    }
    const shown = make("td", { title: weight.toFixed(4) }, written(weight));
    const dark = shade(weight);
    shown.style.setProperty("--hw-shade", dark.toFixed(3));
    shown.classList.toggle("hw-low", weight < 0.005);
    shown.classList.toggle("hw-white", dark >= WHITE_FROM);
    shown.classList.toggle("hw-black", dark >= BLACK_FROM);
    return shown;
  }

  /** Draw a matrix small, a pixel for each weight, in the canvas's own colour. */
  function drawSmall(canvas, matrix) {
    canvas.width = matrix[0].length;
    canvas.height = matrix.length;
    const context = canvas.getContext("2d");
    context.fillStyle = getComputedStyle(canvas).color;
    matrix.forEach((weights, row) => weights.forEach((weight, column) => {
      context.globalAlpha = shade(weight);
      context.fillRect(column, row, 1, 1);
    }));
  }

  window.HeadwiseExplorer.views = { make, choices, wordsView, textView, pictureView, matrixView, drawSmall };
})();

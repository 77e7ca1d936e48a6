/* A place to drop a file on, to choose one, to draw an image or to record a sound. */

import { make } from "./elements.js";

const SIDE = 280;
const PEN = 22;
/* Samples a second that every browser can resample to, and seconds that fit into an upload. */
const RATES = [8000, 96000];
const MOST_SECONDS = 60;

/* The part of a drawing that has something in it, in the middle of a square with a border. */
function inkOf(canvas) {
  const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      if (data[4 * (y * width + x)] > 40) {
        [left, right] = [Math.min(left, x), Math.max(right, x)];
        [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
      }
    }
  }
  if (right < 0) return null;
  const side = Math.max(right - left, bottom - top) + 1;
  const border = Math.round(0.2 * side);
  const square = make("canvas", { width: side + 2 * border, height: side + 2 * border });
  const context = square.getContext("2d");
  context.fillRect(0, 0, square.width, square.height);
  const [x, y] = [(square.width - (right - left + 1)) / 2, (square.height - (bottom - top + 1)) / 2];
  context.drawImage(canvas, left, top, right - left + 1, bottom - top + 1, x, y, right - left + 1, bottom - top + 1);
  return square;
}

function drawing(onFile, onClear) {
  const canvas = make("canvas", { width: SIDE, height: SIDE, class: "draw", role: "img",
    "aria-label": "Draw here with the mouse or a finger" });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const clear = () => context.fillRect(0, 0, SIDE, SIDE);
  clear();
  context.strokeStyle = "white";
  context.lineWidth = PEN;
  context.lineCap = context.lineJoin = "round";
  let last = null;
  let pen = null;
  const place = ({ clientX, clientY }) => {
    const box = canvas.getBoundingClientRect();
    return [(clientX - box.left) * SIDE / box.width, (clientY - box.top) * SIDE / box.height];
  };
  const lineTo = (next) => {
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(...next);
    context.stroke();
    last = next;
  };
  // One finger, or the main button of the mouse, draws at a time.
  canvas.addEventListener("pointerdown", (event) => {
    if (pen !== null || event.button !== 0) return;
    pen = event.pointerId;
    canvas.setPointerCapture(pen);
    last = place(event);
    lineTo(last);
  });
  canvas.addEventListener("pointermove", (event) => event.pointerId === pen && lineTo(place(event)));
  canvas.addEventListener("pointercancel", (event) => {
    if (event.pointerId === pen) pen = null;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (event.pointerId !== pen) return;
    pen = null;
    const square = inkOf(canvas);
    if (square) square.toBlob((blob) => onFile(blob, "drawing.png"), "image/png");
  });
  const again = make("button", { type: "button", class: "plain" }, "Clear the drawing");
  again.addEventListener("click", () => {
    clear();
    onClear();
  });
  return make("div", { class: "drawing-place" },
    make("p", { class: "dim" }, "Or draw, white on black:"), canvas, again);
}

/* Samples between -1 and 1 as a WAV file. */
function wavOf(samples, rate) {
  const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
  const text = (at, letters) => [...letters].forEach((letter, n) => view.setUint8(at + n, letter.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * samples.length, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, 2 * rate, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * samples.length, true);
  samples.forEach((sample, n) => view.setInt16(44 + 2 * n, Math.max(-1, Math.min(1, sample)) * 32767, true));
  return new Blob([view], { type: "audio/wav" });
}

async function recorded(stream, isOver, rate, longest) {
  const chunks = [];
  const recorder = new MediaRecorder(stream);
  recorder.addEventListener("dataavailable", ({ data }) => chunks.push(data));
  const stopped = new Promise((resolve) => { recorder.addEventListener("stop", resolve); });
  recorder.start();
  await Promise.race([isOver, new Promise((resolve) => { setTimeout(resolve, 1000 * longest); })]);
  recorder.stop();
  await stopped;
  const context = new OfflineAudioContext(1, 1, Math.min(Math.max(rate, RATES[0]), RATES[1]));
  const sound = await context.decodeAudioData(await new Blob(chunks).arrayBuffer());
  return wavOf(sound.getChannelData(0), sound.sampleRate);
}

function recording({ rate, longest_seconds: seconds }, onFile) {
  const longest = Math.min(seconds, MOST_SECONDS);
  const button = make("button", { type: "button" }, "Record");
  const says = make("p", { class: "dim", role: "status" });
  let stop = null;
  button.addEventListener("click", async () => {
    if (stop) {
      stop();
      return;
    }
    let stream = null;
    const isOver = new Promise((resolve) => { stop = resolve; });
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      button.textContent = "Stop";
      says.textContent = `Recording, for at most ${longest} seconds …`;
      onFile(await recorded(stream, isOver, rate, longest), "recording.wav");
      says.textContent = "";
    } catch (error) {
      says.textContent = `The microphone cannot be used: ${error.message}`;
    } finally {
      if (stream) stream.getTracks().forEach((track) => track.stop());
      stop = null;
      button.textContent = "Record";
    }
  });
  return make("div", {}, button, says);
}

/* An image with no more pixels than are read; another file as it is, for the server to judge. */
async function scaledDown(file, most) {
  let image = null;
  try {
    image = await createImageBitmap(file);
  } catch {
    return file;
  }
  const scale = Math.sqrt(most / (image.width * image.height));
  if (scale >= 1) return file;
  const [width, height] = [image.width, image.height].map((side) => Math.max(1, Math.floor(scale * side)));
  const canvas = make("canvas", { width, height });
  canvas.getContext("2d").drawImage(image, 0, 0, width, height);
  return new Promise((resolve) => { canvas.toBlob((blob) => resolve(blob || file), "image/jpeg", 0.95); });
}

/* A file that is dropped beside its place would be opened instead of the page. */
for (const kind of ["dragover", "drop"]) {
  document.addEventListener(kind, (event) => {
    if (event.dataTransfer && [...event.dataTransfer.types].includes("Files")) event.preventDefault();
  });
}

/* `onFile` is called with each file and its name, and `onClear` when its answer is not wanted any more. */
export function filePlace(panel, id, onFile, onClear) {
  const isImage = panel.input === "image";
  const input = make("input", { type: "file", id, accept: isImage ? "image/*" : "audio/*" });
  const says = make("p", { class: "dim", role: "status" });
  const take = async (files) => {
    if (!files.length) return;
    const [file] = files;
    says.textContent = files.length > 1 ? `Only the first of ${files.length} files is read: ${file.name}` : "";
    onFile(isImage ? await scaledDown(file, panel.most_pixels) : file, file.name);
  };
  // Otherwise the same file, chosen again, would be no change.
  input.addEventListener("click", () => { input.value = ""; });
  input.addEventListener("change", () => take(input.files));
  const place = make("div", { class: "drop" },
    make("label", { for: id }, `${panel.label}: choose a file, or drop one here`), input, says,
    // A square is no place for a line of text.
    isImage && panel.kind !== "transcriptions" ? drawing(onFile, onClear) : "");
  if (!isImage) {
    place.append(navigator.mediaDevices ? recording(panel, onFile) :
      make("p", { class: "dim" }, "Recording needs HTTPS."));
  }
  place.addEventListener("dragover", (event) => {
    event.preventDefault();
    place.classList.add("over");
  });
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    take(event.dataTransfer.files);
  });
  return place;
}

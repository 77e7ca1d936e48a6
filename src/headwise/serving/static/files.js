/* A place to drop a file on, to choose one, to draw an image or to record a sound. */

import { make } from "./elements.js";

const SIDE = 280;
const PEN = 22;
const RATE = 16000;
const LONGEST = 10;

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

function drawing(onFile) {
  const canvas = make("canvas", { width: SIDE, height: SIDE, class: "draw", role: "img",
    "aria-label": "Draw here with the mouse or a finger" });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const clear = () => context.fillRect(0, 0, SIDE, SIDE);
  clear();
  context.strokeStyle = "white";
  context.lineWidth = PEN;
  context.lineCap = context.lineJoin = "round";
  let last = null;
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
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    lineTo(last);
  });
  canvas.addEventListener("pointermove", (event) => last && lineTo(place(event)));
  canvas.addEventListener("pointercancel", () => { last = null; });
  canvas.addEventListener("pointerup", () => {
    last = null;
    const square = inkOf(canvas);
    if (square) square.toBlob((blob) => onFile(blob, "drawing.png"), "image/png");
  });
  const again = make("button", { type: "button", class: "plain" }, "Clear the drawing");
  again.addEventListener("click", clear);
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

async function recorded(stream, isOver) {
  const chunks = [];
  const recorder = new MediaRecorder(stream);
  recorder.addEventListener("dataavailable", ({ data }) => chunks.push(data));
  const stopped = new Promise((resolve) => { recorder.addEventListener("stop", resolve); });
  recorder.start();
  await Promise.race([isOver, new Promise((resolve) => { setTimeout(resolve, 1000 * LONGEST); })]);
  recorder.stop();
  await stopped;
  const context = new OfflineAudioContext(1, 1, RATE);
  const sound = await context.decodeAudioData(await new Blob(chunks).arrayBuffer());
  return wavOf(sound.getChannelData(0), sound.sampleRate);
}

function recording(onFile) {
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
      says.textContent = `Recording, for at most ${LONGEST} seconds …`;
      onFile(await recorded(stream, isOver), "recording.wav");
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

/* `onFile` is called with each file and its name. */
export function filePlace(panel, id, onFile) {
  const isImage = panel.input === "image";
  const input = make("input", { type: "file", id, accept: isImage ? "image/*" : "audio/*" });
  input.addEventListener("change", () => input.files.length && onFile(input.files[0], input.files[0].name));
  const place = make("div", { class: "drop" },
    make("label", { for: id }, `${panel.label}: choose a file, or drop one here`), input,
    // A square is no place for a line of text.
    isImage && panel.kind !== "transcriptions" ? drawing(onFile) : "");
  // Only secure pages have a microphone.
  if (!isImage && navigator.mediaDevices) place.append(recording(onFile));
  place.addEventListener("dragover", (event) => {
    event.preventDefault();
    place.classList.add("over");
  });
  place.addEventListener("dragleave", () => place.classList.remove("over"));
  place.addEventListener("drop", (event) => {
    event.preventDefault();
    place.classList.remove("over");
    const [file] = event.dataTransfer.files;
    if (file) onFile(file, file.name);
  });
  return place;
}

"use strict";

// The longer side of the drawing surface, and the width of the pen on it.
const SIDE = 280;
const PEN = 21;
const PENS = ["#ff00ff", "#00ff00"];
// Range of a slider on both sides of an atom's value.
const REACH = 0.5;
// The longer side of a map in pixels.
const MAP_SIDE = 208;
const RED = "239, 68, 68";
const BLUE = "59, 130, 246";

const $ = (id) => document.getElementById(id);
const canvas = $("drawing");
const pen = canvas.getContext("2d");

let network = null; // its description
let prediction = null; // for the image that is shown
let chosen = 0; // class whose atoms and couplings are shown
let atoms = []; // atoms of the chosen class, as set by the sliders

// --- Requests: one at a time; of those that wait, the last of each kind.

const waiting = new Map();
let isBusy = false;

async function ask(kind, question) {
  waiting.set(kind, question);
  if (isBusy) return;
  isBusy = true;
  while (waiting.size) {
    const [first, next] = waiting.entries().next().value;
    waiting.delete(first);
    try {
      await next();
    } catch (error) {
      say(error.message, true);
    }
  }
  isBusy = false;
}

async function request(path, options) {
  const answer = await fetch(path, options).catch(() => {
    throw new Error("demo.py does not answer. Is it running?");
  });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  return content;
}

const post = (path, body) => request(path, { method: "POST", body });

function say(text, isError = false) {
  $("message").textContent = text;
  $("message").classList.toggle("error", isError);
}

// --- Drawing.

let from = null; // end of the current stroke

function place(event) {
  const box = canvas.getBoundingClientRect();
  return [
    ((event.clientX - box.left) / box.width) * canvas.width,
    ((event.clientY - box.top) / box.height) * canvas.height,
  ];
}

function stroke(to) {
  pen.beginPath();
  pen.moveTo(...from);
  pen.lineTo(...to);
  pen.stroke();
  from = to;
}

function wipe() {
  // The colors of two pens add up; black covers both.
  pen.globalCompositeOperation = "source-over";
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.globalCompositeOperation = "lighter";
}

function predictDrawing() {
  ask("predict", async () => {
    // toBlob may wait for up to a second.
    const [, drawn] = canvas.toDataURL("image/png").split(",");
    const bytes = Uint8Array.from(atob(drawn), (c) => c.charCodeAt(0));
    await show(await post("drawing", bytes));
  });
}

function startDrawing() {
  const { height, width } = network;
  const scale = SIDE / Math.max(height, width);
  canvas.height = Math.round(height * scale);
  canvas.width = Math.round(width * scale);
  pen.lineWidth = PEN;
  pen.lineCap = pen.lineJoin = "round";
  wipe();
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.isPrimary) return;
    canvas.setPointerCapture(event.pointerId);
    const number = document.querySelector("input[name=pen]:checked").value;
    pen.strokeStyle = network.targets === 2 ? PENS[number] : "#fff";
    from = place(event);
    stroke(from);
    predictDrawing();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!from || !event.isPrimary) return;
    // Not available on pages from other machines.
    const passed = event.getCoalescedEvents?.() ?? [];
    for (const between of passed) stroke(place(between));
    stroke(place(event));
    predictDrawing();
  });
  const end = () => (from = null);
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  $("clear").addEventListener("click", () => {
    wipe();
    predictDrawing();
  });
}

// --- Files and test images.

function predictFile(file) {
  if (!file) return;
  ask("predict", async () => {
    const invert = $("invert").checked;
    const asked = new URLSearchParams({ name: file.name, invert });
    const found = await post(`file?${asked}`, file);
    if (waiting.has("predict")) return; // a newer request
    wipe();
    await show(found, `${file.name}: `);
  });
}

function takeFiles() {
  let file = null; // the last, in case that it is inverted
  const take = (taken) => predictFile((file = taken));
  $("file").addEventListener("change", () => {
    take($("file").files[0]);
    $("file").value = ""; // allows to choose the same file again
  });
  $("invert").addEventListener("change", () => predictFile(file));
  const forget = () => (file = null);
  canvas.addEventListener("pointerdown", forget);
  for (const button of document.querySelectorAll("#clear, .test")) {
    button.addEventListener("click", forget);
  }
  const invite = (isOver) => document.body.classList.toggle("dropping", isOver);
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    invite(true);
  });
  document.addEventListener("dragleave", () => invite(false));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    invite(false);
    take(event.dataTransfer.files[0]);
  });
}

function takeTestImages() {
  for (const button of document.querySelectorAll(".test")) {
    const { predicted } = button.dataset;
    button.disabled = !network.test_images;
    const next = async () => {
      const found = await post(`test_image?predicted=${predicted}`);
      if (waiting.has("predict")) return; // a newer request
      if (found.searched) {
        say(`Searched ${found.searched.toLocaleString("en")} test images…`);
        waiting.set("predict", next);
        return;
      }
      wipe();
      await show(found, `Test image, predicted ${predicted}: `);
    };
    button.addEventListener("click", () => ask("predict", next));
  }
  $("no-test-images").hidden = network.test_images;
}

// --- Bars.

const names = (classes) => classes.map((c) => network.classes[c]).join(" and ");

function makeBars() {
  const isNamed = network.classes.some((name) => name.length > 2);
  $("bars").replaceChildren(
    ...network.classes.map((name, number) => {
      const bar = document.createElement("button");
      bar.className = isNamed ? "bar named" : "bar";
      bar.title = name;
      const [label, track] = ["span", "i", "span"].map((tag) =>
        bar.appendChild(document.createElement(tag)),
      );
      track.appendChild(document.createElement("b"));
      label.textContent = name;
      bar.addEventListener("click", () => choose(number));
      return bar;
    }),
  );
}

function showBars({ lengths, predicted }) {
  [...$("bars").children].forEach((bar, number) => {
    bar.classList.toggle("predicted", predicted.includes(number));
    bar.querySelector("b").style.width = `${100 * Math.min(1, lengths[number])}%`;
    bar.lastChild.textContent = lengths[number].toFixed(3);
  });
}

// As in: This is a 7, probability 0.98
function sentence({ lengths, predicted }) {
  const objects = predicted.map((c) => {
    const name = network.classes[c];
    if (!/^\d+$/.test(name)) return `“${name}”`;
    return `${/^(8|1[18]$)/.test(name) ? "an" : "a"} ${name}`;
  });
  const found = predicted.map((c) => lengths[c].toFixed(2)).join(" and ");
  const verb = predicted.every((c) => lengths[c] > 0.5) ? "is" : "may be";
  return `This ${verb} ${objects.join(" and ")}, probability ${found}`;
}

// --- The chosen class: atoms, reconstruction, couplings.

function choose(number) {
  mark(number);
  if (network.decoder && prediction) reconstruct();
}

function mark(number) {
  chosen = number;
  const bars = $("bars").children;
  for (let i = 0; i < bars.length; i++) {
    bars[i].setAttribute("aria-pressed", i === chosen);
  }
  $("chosen").textContent = $("coupled").textContent = names([chosen]);
  if (!prediction) return;
  atoms = [...prediction.capsules[chosen]];
  if (network.decoder) showAtoms();
  if (prediction.couplings) showCouplings();
}

function showAtoms() {
  $("atoms").replaceChildren(
    ...atoms.map((value, number) => {
      const row = document.createElement("label");
      row.className = "atom";
      const slider = document.createElement("input");
      const output = document.createElement("output");
      row.append(document.createElement("span"), slider, output);
      row.firstChild.textContent = number;
      output.textContent = value.toFixed(2);
      const [min, max] = [value - REACH, value + REACH];
      Object.assign(slider, { type: "range", step: 0.005, min, max, value });
      slider.addEventListener("input", () => {
        atoms[number] = Number(slider.value);
        output.textContent = atoms[number].toFixed(2);
        reconstruct();
      });
      return row;
    }),
  );
}

function reconstruct() {
  // Two objects are drawn together, each in its color.
  const { predicted } = prediction;
  const classes = predicted.includes(chosen) ? predicted : [chosen];
  const capsules = classes.map((c) => (c === chosen ? atoms : prediction.capsules[c]));
  const shown = prediction;
  ask("reconstruct", async () => {
    const { reconstruction } = await post(
      "reconstruction",
      JSON.stringify({ classes, capsules }),
    );
    if (shown === prediction) showMoved(reconstruction, classes);
  });
}

function showMoved(reconstruction, classes) {
  $("moved").src = reconstruction;
  $("moved-caption").textContent = `${names(classes)}, with the atoms below`;
}

function showCouplings() {
  const { map, views, height, width } = network;
  const sees = views * width;
  const scale = Math.ceil(MAP_SIDE / Math.max(height, sees));
  const of = prediction.couplings.map((rows) => rows.map((r) => r.map((v) => v[chosen])));
  const furthest = prediction.couplings.flat(3).reduce(
    (most, value) => Math.max(most, Math.abs(value - map.equal)),
    0.01 * map.equal,
  );
  $("maps").replaceChildren(
    ...of.map((rows, iteration) => {
      const figure = document.createElement("figure");
      const surface = figure.appendChild(document.createElement("canvas"));
      const caption = figure.appendChild(document.createElement("figcaption"));
      caption.textContent = `iteration ${iteration + 1}`;
      surface.width = sees * scale;
      surface.height = height * scale;
      const brush = surface.getContext("2d");
      brush.imageSmoothingEnabled = false;
      // Dimmed, so that the colors stand out.
      brush.globalAlpha = 0.6;
      brush.drawImage($("seen"), 0, 0, surface.width, surface.height);
      brush.globalAlpha = 1;
      brush.scale(scale, scale);
      const [h, w] = [map.height / rows.length, map.width / rows[0].length];
      for (let view = 0; view < views; view++) {
        rows.forEach((row, y) =>
          row.forEach((value, x) => {
            const share = (value - map.equal) / furthest;
            const color = share > 0 ? RED : BLUE;
            brush.fillStyle = `rgba(${color}, ${0.85 * Math.abs(share)})`;
            const left = view * width + map.left;
            brush.fillRect(left + x * w, map.top + y * h, w, h);
          }),
        );
      }
      return figure;
    }),
  );
  $("scale").textContent = map.equal.toPrecision(3);
  $("scale-low").textContent = (map.equal - furthest).toPrecision(3);
  $("scale-high").textContent = (map.equal + furthest).toPrecision(3);
}

// --- A prediction.

async function show(found, text = "") {
  prediction = found;
  say(found ? text + sentence(found) : "");
  document.body.classList.toggle("empty", !found);
  if (!found) return;
  showBars(found);
  $("seen").src = found.image;
  $("truth").textContent = found.labels ? `true: ${names(found.labels)}` : "";
  if (network.decoder) {
    $("reconstruction").src = found.reconstruction;
    const colors = found.predicted.length === 2 ? " (magenta and green)" : "";
    $("reconstruction-caption").textContent =
      `from the longest capsule: ${names(found.predicted)}${colors}`;
    showMoved(found.reconstruction, found.predicted);
  }
  await $("seen").decode();
  if (found === prediction) mark(found.predicted[0]);
}

function describe() {
  $("name").textContent = network.name;
  document.title = `Capsules: ${network.name}`;
  $("pens").hidden = network.targets !== 2;
  $("no-decoder").hidden = network.decoder;
  for (const part of document.querySelectorAll(".of-decoder")) {
    part.hidden = !network.decoder;
  }
  $("couplings").hidden = !network.map;
  const where = network.targets === 2 ? "near where it was drawn" : "in the middle";
  $("preparation").textContent = network.digit_size
    ? `A drawn digit is scaled to ${network.digit_size} pixels and placed ${where}, ` +
      "as for training; files as by predict.py."
    : `Drawings and files are scaled to ${network.width}×${network.height}, as by predict.py.`;
}

async function start() {
  try {
    network = await request("description");
  } catch (error) {
    say(error.message, true);
    return;
  }
  describe();
  makeBars();
  $("back").addEventListener("click", () => choose(chosen));
  takeFiles();
  takeTestImages();
  startDrawing();
}

start();

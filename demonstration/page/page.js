"use strict";

// The longer side of the drawing surface, and the width of the pen on it.
const SIDE = 280;
const PEN = 21;
const PENS = ["#ff00ff", "#00ff00"];
// A slider goes as far to both sides of an atom's value.
const REACH = 0.5;
// The longer side of a map as shown; it has at least as many pixels.
const MAP_SIDE = 208;
const RED = "239, 68, 68";
const BLUE = "59, 130, 246";

const $ = (id) => document.getElementById(id);
const canvas = $("drawing");
const pen = canvas.getContext("2d");

let exhibit = null; // what the network is
let look = null; // what it makes of the image that is shown
let chosen = 0; // the class whose atoms and couplings are shown
let atoms = []; // of that class, as moved

// --- Asking the server: one question at a time, of those that wait the last
// of its kind: to look at an image, or to remake one from moved atoms.

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
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("demo.py does not answer: is it still running?");
  }
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

let from = null; // where the stroke is, while there is one

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
  // Two pens add up where they cross; black is drawn over all.
  pen.globalCompositeOperation = "source-over";
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.globalCompositeOperation = "lighter";
}

function lookAtDrawing() {
  ask("look", async () => {
    // Browsers let toBlob wait until they are idle, for up to a second.
    const [, drawn] = canvas.toDataURL("image/png").split(",");
    const bytes = Uint8Array.from(atob(drawn), (c) => c.charCodeAt(0));
    await show(await post("drawing", bytes));
  });
}

function startDrawing() {
  const { height, width } = exhibit;
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
    pen.strokeStyle = exhibit.targets === 2 ? PENS[number] : "#fff";
    from = place(event);
    stroke(from);
    lookAtDrawing();
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!from || !event.isPrimary) return;
    // Pages of other machines do not have them.
    const passed = event.getCoalescedEvents?.() ?? [];
    for (const between of passed) stroke(place(between));
    stroke(place(event));
    lookAtDrawing();
  });
  const end = () => {
    from = null;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  $("clear").addEventListener("click", () => {
    wipe();
    lookAtDrawing();
  });
}

// --- Files and test images.

function lookAtFile(file) {
  if (!file) return;
  ask("look", async () => {
    if (file.size > exhibit.most_bytes) {
      const most = exhibit.most_bytes.toLocaleString("en");
      throw new Error(`${file.name} has more than ${most} bytes`);
    }
    const invert = $("invert").checked;
    const asked = new URLSearchParams({ name: file.name, invert });
    const found = await post(`file?${asked}`, file);
    if (waiting.has("look")) return; // something newer
    wipe();
    await show(found, file.name);
  });
}

function takeFiles() {
  let file = null; // that was taken last, should it be inverted
  const take = (taken) => {
    file = taken;
    lookAtFile(file);
  };
  $("file").addEventListener("change", () => {
    take($("file").files[0]);
    $("file").value = ""; // so that the same file can be chosen again
  });
  $("invert").addEventListener("change", () => lookAtFile(file));
  const forget = () => {
    file = null;
  };
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
    button.disabled = !exhibit.test_images;
    const next = async () => {
      const found = await post(`test_image?predicted=${predicted}`);
      if (waiting.has("look")) return; // something newer
      if (found.searched) {
        say(`Looked at ${found.searched.toLocaleString("en")} test images…`);
        waiting.set("look", next);
        return;
      }
      wipe();
      await show(found, `Test image, predicted ${predicted}`);
    };
    button.addEventListener("click", () => ask("look", next));
  }
  $("no-test-images").hidden = exhibit.test_images;
}

// --- Bars.

const names = (classes) => classes.map((c) => exhibit.classes[c]).join(" and ");

function makeBars() {
  const isNamed = exhibit.classes.some((name) => name.length > 2);
  $("bars").replaceChildren(
    ...exhibit.classes.map((name, number) => {
      const bar = document.createElement("button");
      bar.className = isNamed ? "bar named" : "bar";
      bar.title = name;
      const [label, track, value] = ["span", "i", "span"].map((tag) =>
        bar.appendChild(document.createElement(tag)),
      );
      track.appendChild(document.createElement("b"));
      label.textContent = name;
      value.textContent = "–";
      bar.addEventListener("click", () => choose(number));
      return bar;
    }),
  );
}

function showBars() {
  const bars = $("bars").children;
  look.lengths.forEach((length, number) => {
    const bar = bars[number];
    bar.classList.toggle("predicted", look.predicted.includes(number));
    bar.querySelector("b").style.width = `${100 * Math.min(1, length)}%`;
    bar.lastChild.textContent = length.toFixed(3);
  });
}

// --- The chosen class: its atoms, its remake, its couplings.

function choose(number) {
  mark(number);
  if (exhibit.decoder && look) redraw();
}

function mark(number) {
  chosen = number;
  const bars = $("bars").children;
  for (let i = 0; i < bars.length; i++) {
    bars[i].setAttribute("aria-pressed", i === chosen);
  }
  $("chosen").textContent = $("coupled").textContent = names([chosen]);
  if (!look) return;
  atoms = [...look.capsules[chosen]];
  if (exhibit.decoder) showAtoms();
  if (look.couplings) showCouplings();
}

function makeAtoms(count) {
  $("atoms").replaceChildren(
    ...Array.from({ length: count }, (_, number) => {
      const row = document.createElement("label");
      row.className = "atom";
      const label = row.appendChild(document.createElement("span"));
      const slider = row.appendChild(document.createElement("input"));
      row.appendChild(document.createElement("output"));
      label.textContent = number;
      slider.type = "range";
      slider.step = 0.005;
      slider.addEventListener("input", () => {
        atoms[number] = Number(slider.value);
        row.lastChild.textContent = atoms[number].toFixed(2);
        redraw();
      });
      return row;
    }),
  );
}

function showAtoms() {
  if ($("atoms").children.length !== atoms.length) makeAtoms(atoms.length);
  atoms.forEach((value, number) => {
    const [, slider, output] = $("atoms").children[number].children;
    slider.min = value - REACH;
    slider.max = value + REACH;
    slider.value = value;
    output.textContent = value.toFixed(2);
  });
}

function redraw() {
  // Of two objects the other one is drawn with it, each in its colour.
  const isOne = look.predicted.includes(chosen);
  const classes = isOne ? look.predicted : [chosen];
  const capsules = classes.map((c) => (c === chosen ? atoms : look.capsules[c]));
  const shown = look;
  ask("remake", async () => {
    const { remake } = await post(
      "remake",
      JSON.stringify({ classes, capsules }),
    );
    if (shown === look) showMoved(remake, classes);
  });
}

function showMoved(remake, classes) {
  $("moved").src = remake;
  $("moved-caption").textContent = `${names(classes)}, atoms as below`;
}

function showCouplings() {
  const { map, views, height, width } = exhibit;
  const sees = views * width;
  const scale = Math.ceil(MAP_SIDE / Math.max(height, sees));
  const of = look.couplings.map((rows) => rows.map((r) => r.map((v) => v[chosen])));
  const furthest = look.couplings.flat(3).reduce(
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
      // Darker, so that the colours stand out.
      brush.globalAlpha = 0.6;
      brush.drawImage($("seen"), 0, 0, surface.width, surface.height);
      brush.globalAlpha = 1;
      brush.scale(scale, scale);
      const [h, w] = [map.height / rows.length, map.width / rows[0].length];
      for (let view = 0; view < views; view++) {
        rows.forEach((row, y) =>
          row.forEach((value, x) => {
            const share = (value - map.equal) / furthest;
            const colour = share > 0 ? RED : BLUE;
            brush.fillStyle = `rgba(${colour}, ${0.85 * Math.abs(share)})`;
            const left = view * width + map.left;
            brush.fillRect(left + x * w, map.top + y * h, w, h);
          }),
        );
      }
      return figure;
    }),
  );
  $("scale-low").textContent = (map.equal - furthest).toPrecision(3);
  $("scale-high").textContent = (map.equal + furthest).toPrecision(3);
}

// --- All that is known of an image.

async function show(found, text = "") {
  look = found;
  say(text);
  showBars();
  $("seen").src = found.image;
  $("truth").textContent = found.labels ? `true: ${names(found.labels)}` : "";
  if (exhibit.decoder) {
    $("remake").src = found.remake;
    const colours = ["magenta", "green"];
    const of = found.predicted.map((c, i) =>
      found.predicted.length === 2
        ? `${names([c])} (${colours[i]})`
        : names([c]),
    );
    $("remake-caption").textContent = `from the longest: ${of.join(", ")}`;
    showMoved(found.remake, found.predicted);
  }
  await $("seen").decode();
  if (found === look) mark(found.predicted[0]);
}

function describe() {
  $("name").textContent = exhibit.name;
  document.title = `Capsules: ${exhibit.name}`;
  $("pens").hidden = exhibit.targets !== 2;
  $("no-decoder").hidden = exhibit.decoder;
  for (const part of document.querySelectorAll(".of-decoder")) {
    part.hidden = !exhibit.decoder;
  }
  $("couplings").hidden = !exhibit.map;
  const size = `${exhibit.width}×${exhibit.height}`;
  const one = exhibit.targets === 2 ? "Each of the two digits" : "A drawing";
  const where = exhibit.targets === 2 ? "near where it was drawn" : "in the middle";
  $("preparation").textContent = exhibit.centred
    ? `${one} is prepared as MNIST's digits were: cut out, scaled to ` +
      `${exhibit.digit_size} pixels, and put into ${size} with its centre of mass ${where}. ` +
      "Files are prepared as by predict.py: only scaled."
    : `Drawings and files are scaled to ${size}, as by predict.py.`;
}

async function start() {
  try {
    exhibit = await request("exhibit");
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
  lookAtDrawing();
}

start();

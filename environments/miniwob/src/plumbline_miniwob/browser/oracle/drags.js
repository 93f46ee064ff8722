// Oracles of the tasks that are done by dragging, scrolling, marking text, and moving sliders.
const one = selector => document.querySelector(selector);
const all = selector => [...document.querySelectorAll(selector)];
const submit = () => ({ do: "click", on: one("#subbtn, #submit, #controls button") });
// The middle of an element in whole page pixels, moved by so much.
const near = (element, dx = 0, dy = 0) => {
  const box = element.getBoundingClientRect();
  return { x: Math.round(box.left + box.width / 2 + dx), y: Math.round(box.top + box.height / 2 + dy) };
};
const drag = (on, to) => ({ do: "drag", on, to });
const mark = (node, start, end) => {
  const range = document.createRange();
  range.setStart(node, start);
  range.setEnd(node, end);
  return { do: "drag", on: { text: range } };
};

oracles["drag-box"] = function* () {
  yield drag(one("#draggableSmall"), one("#draggableLarge"));
  yield submit();
};

const WAYS = { left: [-1, 0], right: [1, 0], up: [0, -1], down: [0, 1] };
const STEP = 30;
oracles["drag-circle"] = oracles["drag-single-shape"] = function* ({ utterance }) {
  const shape = one("svg > *");
  const [dx, dy] = WAYS[/left|right|up|down/.exec(utterance)[0]];
  yield drag(shape, near(shape, dx * STEP, dy * STEP));
  yield submit();
};

const SHAPES = { rectangles: "rect", circles: "circle", triangles: "polygon" };
oracles["drag-shapes"] = oracles["drag-shapes-2"] = function* ({ utterance }) {
  const boxes = all("#shape-container");
  const wanted = /Drag all (\w+)/.exec(utterance)[1];
  const fits = shape => shape.tagName === SHAPES[wanted] || shape.getAttribute("fill") === wanted;
  for (const shape of all("svg > :not(#shape-container)")) {
    const box = boxes[fits(shape) ? 0 : 1];
    if (box) yield drag(shape, box);
  }
  yield submit();
};

// The cube turns on after a drag; in a fresh page a drag from (80, 130) to here ends with this side in front.
const TURNS = {
  1: { x: 80, y: 110 }, 2: { x: 20, y: 70 }, 3: { x: 140, y: 70 }, 4: { x: 95, y: 70 }, 5: { x: 55, y: 70 },
};
oracles["drag-cube"] = function* ({ utterance }) {
  const side = /"(\d)"/.exec(utterance)[1];
  if (TURNS[side]) {
    yield drag({ x: 80, y: 130 }, TURNS[side]);
    yield { do: "wait", ms: 1000 };
  }
  yield submit();
};

// Sortable lists: an item that is dropped on another takes its place.
const items = () => all("#sortable li");
const CELLS = [
  "top left", "top center", "top right", "center left", "center", "center right",
  "bottom left", "bottom center", "bottom right",
];
const aim = (words, from, count) => {
  const [columns, place] = count === 9 ? [3, CELLS.indexOf(words)] : [1, parseInt(words) - 1];
  if (place >= 0) return place;
  if (words === "top") return 0;
  if (words === "bottom") return count - 1;
  return from + { up: -columns, down: columns, left: -1, right: 1 }[words];
};
oracles["drag-items"] = oracles["drag-items-grid"] = function* ({ utterance }) {
  const [, name, words] = /^Drag (\S+) (?:to the )?(.+?)(?: by one| by one position| position)?\.$/.exec(utterance);
  const list = items();
  const from = list.findIndex(item => item.textContent.trim() === name);
  yield drag(list[from], list[aim(words, from, list.length)]);
};

// The positions of a longest row of values that already rise.
const rising = values => {
  let best = [];
  for (let mask = 0; mask < 1 << values.length; mask++) {
    const row = values.map((_, place) => place).filter(place => mask & (1 << place));
    if (row.length > best.length && row.every((place, k) => !k || values[row[k - 1]] <= values[place])) best = row;
  }
  return best;
};
oracles["drag-sort-numbers"] = function* () {
  const value = item => Number(item.textContent);
  const kept = rising(items().map(value)).map(place => items()[place]);
  for (const item of items().filter(item => !kept.includes(item))) {
    const list = items();
    const rest = list.filter(other => other !== item);
    // After the last kept item that is not larger, before the first that is.
    const after = rest.findLast(other => kept.includes(other) && value(other) <= value(item));
    const before = rest.find(other => kept.includes(other) && value(other) > value(item));
    if (after && list.indexOf(item) < list.indexOf(after)) yield drag(item, after);
    else if (before && list.indexOf(before) < list.indexOf(item)) yield drag(item, before);
    kept.push(item);
  }
  yield submit();
};

oracles["resize-textarea"] = function* ({ utterance }) {
  const by = utterance.includes("larger") ? 20 : -20;
  const wide = utterance.includes("width");
  const handle = one(".ui-resizable-se");
  yield drag(handle, near(handle, wide ? by : 0, wide ? 0 : by));
  yield submit();
};

oracles["highlight-text"] = oracles["highlight-text-2"] = function* ({ utterance }) {
  const nth = /(\d)\w\w paragraph/.exec(utterance)?.[1];
  const node = (nth ? all("#randomText p")[nth - 1] : one("#randomText")).firstChild;
  yield mark(node, 0, node.data.trimEnd().length);
  yield submit();
};

oracles["scroll-text-2"] = function* ({ utterance }) {
  yield { do: "scroll", on: one("#text-area"), by: [0, utterance.includes("bottom") ? 1000 : -1000] };
  yield submit();
};
oracles["scroll-text"] = function* () {
  const words = one("#text-area").value.trim().split(/\s+/);
  yield { do: "type", on: one("#answer-input"), text: words.at(-1).replace(".", "") };
  yield submit();
};

const BUTTONS = { bold: ".ql-bold", italics: ".ql-italic", underlined: ".ql-underline" };
const COLOURS = {
  red: "#e60000", orange: "#ff9900", yellow: "#ffff00", green: "#008a00", blue: "#0066cc", purple: "#9933ff",
};
oracles["text-editor"] = function* ({ utterance }) {
  const [, word, kind, style] = /(?:give|make) (?:the text )?(.+) the (style|color) (\w+)/.exec(utterance);
  const node = one(".ql-editor p").firstChild;
  if (word === "everything") yield { do: "key", on: one(".ql-editor"), key: "Control+A" };
  else {
    const start = ` ${node.data} `.indexOf(` ${word} `);
    yield mark(node, start, start + word.length);
  }
  if (kind === "style") yield { do: "click", on: one(BUTTONS[style]) };
  else {
    yield { do: "click", on: one(".ql-color .ql-picker-label") };
    yield { do: "click", on: one(`.ql-color .ql-picker-item[data-value="${COLOURS[style]}"]`) };
  }
  yield submit();
};

// Colours are typed, as six hexadecimal digits. The picker then lies over the button, which answers to Enter.
const paint = colour => function* ({ utterance }) {
  yield { do: "type", on: one("#col"), text: colour(utterance) };
  yield { do: "key", on: one("#subbtn"), key: "Enter" };
};
oracles["use-colorwheel"] = paint(utterance => ui_utils.colorNameToHex(/Select (\w+)/.exec(utterance)[1]).slice(1));
oracles["use-colorwheel-2"] = paint(utterance => /#(\w{6})/.exec(utterance)[1]);

// A drag for the most of the way, arrow keys for what is less than a pixel or a few values away.
const slide = function* (slider, wanted, keys = 3) {
  const option = name => $(slider).slider("option", name);
  const handle = slider.querySelector(".ui-slider-handle");
  const upright = option("orientation") === "vertical";
  if (Math.abs(wanted - option("value")) > keys) {
    const pixels = (upright ? -slider.offsetHeight : slider.offsetWidth) / (option("max") - option("min"));
    const by = (wanted - option("value")) * pixels;
    yield drag(handle, near(handle, upright ? 0 : by, upright ? by : 0));
  }
  while (option("value") !== wanted) {
    yield { do: "key", on: handle, key: option("value") < wanted ? "ArrowRight" : "ArrowLeft" };
  }
};
oracles["use-slider"] = function* ({ utterance }) {
  yield* slide(one("#slider"), Number(/-?\d+/.exec(utterance)[0]));
  yield submit();
};
oracles["use-slider-2"] = function* ({ utterance }) {
  const wanted = JSON.parse(/\[.*\]/.exec(utterance)[0]);
  for (const [place, value] of wanted.entries()) yield* slide(one(`#slider-${place + 1}`), value, 1);
  yield submit();
};
oracles["use-spinner"] = function* ({ utterance }) {
  const field = one("#spinner");
  const wanted = Number(/-?\d+/.exec(utterance)[0]);
  const press = key => ({ do: "key", on: field, key });
  if (Math.abs(wanted) > 5) yield press(wanted > 0 ? "PageUp" : "PageDown");
  while (Number(field.value) !== wanted) yield press(Number(field.value) < wanted ? "ArrowUp" : "ArrowDown");
  yield submit();
};

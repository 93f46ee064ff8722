// Oracles of the tasks that are clicks: buttons, boxes, lists, links, tabs, menus, dialogs, colours and shapes, and sums.
const { all, one, textOf, shown, onTop, called, button, quoted, click, type, submit, wait } = shared;

// Buttons

function* namedButton({ utterance }) {
  yield click(button(quoted(utterance) ?? /button (\w+)\./.exec(utterance)?.[1]));
}

function* twoButtons({ utterance }) {
  const seconds = /wait (\d+) seconds/.exec(utterance)?.[1];
  yield click(button("ONE"));
  if (seconds) yield wait(1000 * seconds);
  yield click(button("TWO"));
}

function* dialog({ utterance }) {
  const name = quoted(utterance);
  yield click(name === "x" ? one(".ui-dialog-titlebar-close") : button(name));
}

function* textbox({ utterance }) {
  yield click(all("#area input")[(/\d/.exec(utterance)?.[0] ?? 1) - 1]);
}

function* widget({ utterance }) {
  yield click(one(`[data-type="${quoted(utterance)}"]`));
}

// Boxes and lists

/** The names of "Select a, b and click Submit." */
const listed = sentence => /^Select (?:words similar to )?(.*) and click Submit\.$/.exec(sentence)[1].split(", ");

function* tick(labels, wanted, action) {
  for (const label of labels)
    if (wanted.includes(textOf(label))) yield { do: action, on: one("input", label) };
  yield submit();
}

function* boxes({ utterance }) {
  yield* tick(all("#area label"), listed(utterance), "check");
}

function* similarWords({ utterance }) {
  const alike = word => SYNONYMS.filter(group => group.includes(word)).flat();
  yield* tick(all("#area label"), listed(utterance).flatMap(alike), "check");
}

function* radio({ utterance }) {
  yield* tick(all("#area label"), listed(utterance), "click");
}

function* chosen({ utterance }) {
  const list = one("select");
  const wanted = /^Select (.*) from the (?:scroll )?list/.exec(utterance)[1].split(", ");
  for (const name of wanted)
    if (![...list.selectedOptions].some(option => option.text === name)) yield { do: "select", option: name, on: list };
  yield submit();
}

/** The 28 boxes are a picture of seven rows; the page shows the pattern of each digit as a bitmap only. */
function* drawnDigit({ utterance }) {
  const pattern = PATTERNS[quoted(utterance)].flat();
  for (const [place, box] of all("#checkboxes input").entries())
    if (pattern[place]) yield { do: "check", on: box };
  yield submit();
}

// Links, tabs, sections and menus

/** A link, if need be behind the tabs or in the sections: one after another is opened until it is there. */
function* link({ utterance }) {
  const name = quoted(utterance);
  const there = () => called(".alink", name);
  for (const closed of all(".ui-accordion-header, .ui-tabs-tab:not(.ui-tabs-active)")) {
    if (there()) break;
    yield click(closed);
  }
  yield click(there());
}

function* section() {
  yield click(one(".ui-accordion-header"));
  yield submit();
}

function* tab({ utterance }) {
  yield click(called(".ui-tabs-tab", /Tab #\d/.exec(utterance)[0]));
}

/** The way to an item: the menu's button, then over the items that hold it; a submenu opens a while after. */
function* menuItem({ utterance }) {
  const icon = one("#query .ui-icon");
  const name = quoted(utterance.replace('"Menu"', "")) ?? utterance.split(/^Select |>/).pop();
  const wanted = icon
    ? one(`#menu .${[...icon.classList].join(".")}`).parentElement
    : all("#menu .ui-menu-item-wrapper").find(item => textOf(item) === name);
  const way = [];
  for (let item = wanted.closest("li"); item; item = item.parentElement.closest("li")) way.unshift(item.firstElementChild);
  if (!shown(way[0])) yield click(button("Menu"));
  for (const [depth, item] of way.slice(0, -1).entries()) {
    yield { do: "hover", on: item };
    if (!shown(way[depth + 1])) yield wait(300);
  }
  yield click(wanted);
}

/** The items lie under the plus sign in the middle, and fly out of it when it is clicked. */
function* pieItem({ utterance }) {
  const item = () => all("#divWheel text").find(text => textOf(text) === quoted(utterance) && onTop(text));
  yield click(called("#divWheel text", "+"));
  if (!item()) yield wait(1000);
  yield click(item());
}

// Colours and shapes

function* colour({ utterance }) {
  const name = /the (\w+) colored box/.exec(utterance)[1];
  yield click(one(`#area .color[data-color="${name}"]`));
}

function* shades({ utterance }) {
  const name = /shades of (\w+)/.exec(utterance)[1];
  for (const shade of all(`#area span[data-color="${name}"]`)) yield click(shade);
  yield submit();
}

/** The words that a shape of common/shapes.js answers to: its size, its colour, what it is, and of which kind. */
const wordsFor = shape => {
  const text = shape.tagName === "text" ? shape.textContent : "";
  const size = text ? parseFloat(shape.getAttribute("font-size")) : shape.getBBox().width;
  const kind = text === "" ? "shape" : /\d/.test(text) ? "digit" : "letter";
  const named = text || { circle: "circle", rect: "rectangle", polygon: "triangle" }[shape.tagName];
  return [size > 15 ? "large" : "small", shape.getAttribute("fill"), named, kind, "item"];
};

function* shape({ utterance }) {
  const asked = utterance.replace(/^Click on a /, "").split(" ");
  yield click(all("#area_svg > *").find(one => asked.every(word => wordsFor(one).includes(word))));
}

// Numbers

/** The numbers turn into black squares with the first click, so where each was is noted before. */
function* ascending() {
  const middle = box => ({ x: Math.round((box.left + box.right) / 2), y: Math.round((box.top + box.bottom) / 2) });
  const [first, ...rest] = all("#area_svg text").sort((one, other) => one.textContent - other.textContent);
  const places = rest.map(number => middle(number.getBoundingClientRect()));
  yield click(first);
  for (const place of places) yield click(place);
}

function* answer(value) {
  yield type(value, one("#math-answer"));
  yield submit();
}

function* sum() {
  const [left, sign, right] = textOf(one("#math-problem")).split(" ");
  yield* answer({ "+": +left + +right, "-": left - right, x: left * right }[sign]);
}

function* unknown() {
  const [left, sign, right, , result] = textOf(one("#math-problem")).split(" ");
  const known = left === "x" ? right : left;
  yield* answer(sign === "+" ? result - known : left === "x" ? +result + +known : known - result);
}

function* blocks() {
  yield* answer(all(".addition-block").length);
}

function* oddOrEven() {
  for (const row of all("#numbers .row"))
    yield click(one(textOf(one(".display-number", row)) % 2 ? ".odd" : ".even", row));
  yield submit();
}

function* guess() {
  for (let low = 0, high = 9; low <= high; ) {
    const tried = Math.floor((low + high) / 2);
    yield type(tried, one("#tt"));
    yield submit();
    if (shown(one("#lower"))) high = tried - 1;
    else low = tried + 1;
  }
}

function* generate({ utterance }) {
  const bound = /\d+/.exec(utterance)?.[0];
  const fits = number => {
    if (bound) return /less/.test(utterance) ? number < bound : number > bound;
    return number % 2 === (/odd/.test(utterance) ? 1 : 0);
  };
  do yield click(button("Generate"));
  while (!fits(textOf(one("#display-number"))));
  yield submit();
}

/** A card shows its number while it lies open, and only one does: all are looked at, and the greatest again. */
function* greatest() {
  const cards = all(".card");
  const numbers = [];
  for (const card of cards) {
    yield click(card);
    numbers.push(+textOf(card));
  }
  const best = numbers.indexOf(Math.max(...numbers));
  if (best < cards.length - 1) yield click(cards[best]);
  yield submit();
}

const tasks = [
  [namedButton, "click-button click-test click-test-2 click-test-transfer"],
  [twoButtons, "button-delay click-button-sequence"],
  [dialog, "click-dialog click-dialog-2"],
  [textbox, "focus-text focus-text-2"],
  [widget, "click-widget"],
  [boxes, "click-checkboxes click-checkboxes-large click-checkboxes-transfer"],
  [similarWords, "click-checkboxes-soft"],
  [radio, "click-option"],
  [chosen, "choose-list click-scroll-list"],
  [drawnDigit, "number-checkboxes"],
  [link, "click-link click-collapsible-2 click-collapsible-2-nodelay"],
  [link, "click-tab-2 click-tab-2-easy click-tab-2-medium click-tab-2-hard"],
  [section, "click-collapsible click-collapsible-nodelay"],
  [tab, "click-tab"],
  [menuItem, "click-menu click-menu-2"],
  [pieItem, "click-pie click-pie-nodelay"],
  [colour, "click-color"],
  [shades, "click-shades"],
  [shape, "click-shape"],
  [ascending, "ascending-numbers"],
  [sum, "simple-arithmetic"],
  [unknown, "simple-algebra"],
  [blocks, "visual-addition"],
  [oddOrEven, "odd-or-even"],
  [guess, "guess-number"],
  [generate, "generate-number"],
  [greatest, "find-greatest"],
];
for (const [oracle, names] of tasks) for (const name of names.split(" ")) oracles[name] = oracle;

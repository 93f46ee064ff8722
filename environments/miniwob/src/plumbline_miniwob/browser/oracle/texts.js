// Oracles of the tasks about typing: fields, tables, texts to copy, dates and flights.
const { all, one, shown, textOf, click, type, wait } = shared;
const quotes = text => [...text.matchAll(/"([^"]*)"/g)].map(found => found[1]);
const named = (names, oracle) => names.split(" ").forEach(name => (oracles[name] = oracle));

const submit = () => click(one("#subbtn"));
const press = (key, on) => (on ? { do: "key", key, on } : { do: "key", key });

/** Types each text into its field, then submits. */
function* fill(...texts) {
  for (const [selector, text] of texts) yield type(text, one(selector));
  yield submit();
}

// ---- fields -------------------------------------------------------------------------------------------------

named("enter-text enter-text-dynamic", ({ utterance }) => fill(["#tt", quotes(utterance)[0]]));

oracles["enter-text-2"] = ({ utterance }) => {
  const [text] = quotes(utterance);
  return fill(["#tt", utterance.includes("upper case") ? text.toUpperCase() : text.toLowerCase()]);
};

oracles["enter-password"] = ({ utterance }) => {
  const [password] = quotes(utterance);
  return fill(["#password", password], ["#verify", password]);
};

oracles["login-user"] = ({ utterance }) => {
  const [user, password] = quotes(utterance);
  return fill(["#username", user], ["#password", password]);
};

/** A question may cover the form when a field gets the focus: that field is clicked first and the question turned down. */
oracles["login-user-popup"] = function* ({ utterance }) {
  const [user, password] = quotes(utterance);
  for (const [selector, text] of [["#username", user], ["#password", password]]) {
    if (d3.select(selector).on("focus")) {
      yield click(one(selector));
      yield click(one("#popup-cancel"));
    }
    yield type(text, one(selector));
  }
  yield submit();
};

oracles["enter-date"] = ({ utterance }) => fill(["#tt", utterance.match(/\d+\/\d+\/\d+/)[0]]);
oracles["enter-time"] = ({ utterance }) => fill(["#tt", utterance.match(/\d+:\d+ [AP]M/)[0]]);
oracles["text-transform"] = () => fill(["#tt", textOf(one("#captcha"))]);

oracles["find-word"] = ({ utterance }) => {
  const words = textOf(one("#area p")).split(" ");
  const word = words[Number.parseInt(utterance.match(/the (\d+)/)[1], 10) - 1];
  return fill(["#answer-input", word.replace(/[^a-zA-Z]/g, "")]);
};

const table = () => new Map(all("#tab tr").map(row => all("td", row).map(textOf)));

oracles["read-table"] = ({ utterance }) =>
  fill(["#tt", table().get(utterance.match(/the value of (.+) into the text field/)[1])]);

oracles["read-table-2"] = () =>
  fill(...[1, 2].map(n => [`#tt${n}`, table().get(textOf(one(`#ll${n}`)).replace(/:$/, ""))]));

/** The text ends in a space that nobody sees, so that it is copied, not typed. */
named("copy-paste copy-paste-2", function* ({ utterance }) {
  const ordinal = Number.parseInt(utterance.match(/(\d)\w\w text area/)?.[1] ?? "1", 10);
  const from = all("#area textarea")[ordinal - 1];
  yield press("Control+A", from);
  yield press("Control+C", from);
  yield press("Control+V", one("#answer-input"));
  yield submit();
});

named("multi-layouts multi-orderings", function* ({ utterance }) {
  const [, genre, director, year] = utterance.match(/for (\S+) movies directed by (.+) from year (\d+)/);
  for (const field of all("#area input")) {
    const label = textOf(field.closest("p, .row, tr, .field, .ui-entry"));
    yield type(/genre/i.test(label) ? genre : /director/i.test(label) ? director : year, field);
  }
  yield click(one("#area button, #area .final, #area .ui-submit"));
});

const suggested = text => all(".ui-autocomplete li").find(item => shown(item) && textOf(item).includes(text));

named("use-autocomplete use-autocomplete-nodelay", function* ({ utterance }) {
  const [start, end = ""] = quotes(utterance);
  const country = ui_utils.COUNTRIES.find(name => name.startsWith(start) && name.endsWith(end));
  yield type(country, one("#tags"));
  if (suggested(country)) yield click(suggested(country)); // the list lies over the button
  yield submit();
});

oracles["unicode-test"] = function* ({ utterance }) {
  yield click(all("#area button").find(button => textOf(button) === quotes(utterance)[0]));
};

oracles["sign-agreement"] = function* ({ utterance }) {
  const [name, button = "Cancel"] = quotes(utterance);
  if (name) {
    const terms = one("#text-area");
    yield { do: "scroll", on: terms, by: [0, terms.scrollHeight - terms.clientHeight] };
    yield type(name, one("#name"));
  }
  yield click(all("#area button").find(each => textOf(each) === button));
};

/** The terminal takes what is typed into a field that nobody sees: a click on it leads there. */
oracles.terminal = function* ({ utterance }) {
  const end = utterance.match(/extension (\.\S+)$/)?.[1];
  const terminal = one("#terminal");
  yield type("ls", terminal);
  yield press("Enter");
  const files = textOf(all(".terminal-output").at(-1)).split(" ");
  const file = files.find(name => (end ? deletes(name, end.slice(1)) : !name.includes(".")));
  yield type(`rm ${file}`, terminal);
  yield press("Enter");
};

/** The page's own test of a file's ending, which fails where the ending also stands earlier in the name. */
const deletes = (file, end) => file.indexOf(end) + end.length === file.length;

// ---- several controls ---------------------------------------------------------------------------------------

/** The slider's handle is dragged to where the number is, or goes by keys where that is near. */
oracles["form-sequence"] = function* ({ utterance }) {
  const [, number, ordinal] = utterance.match(/Select (-?\d+) .* the (\d)\w\w checkbox/);
  const handle = one("#slider .ui-slider-handle");
  const steps = () => number - Number(textOf(one("#val")));
  if (Math.abs(steps()) > 3) {
    const { left, width, top, height } = one("#slider").getBoundingClientRect();
    const x = Math.round(left + ((+number + 10) / 20) * width);
    yield { do: "drag", on: handle, to: { x, y: Math.round(top + height / 2) } };
  }
  while (steps() !== 0) yield press(steps() < 0 ? "ArrowLeft" : "ArrowRight", handle);
  yield { do: "check", on: one(`#checkbox-${ordinal}`) };
  yield submit();
};

oracles["form-sequence-2"] = function* ({ utterance }) {
  const [, radio, field] = utterance.match(/(\d)\w\w radio .* (\d)\w\w textbox/);
  yield click(all("#area input[type=radio]")[radio - 1]);
  yield* fill([`#input-${field}`, quotes(utterance)[0]]);
};

oracles["form-sequence-3"] = function* ({ utterance }) {
  const height = utterance.match(/Choose (.+) from/)[1];
  yield click(one(".selectric"));
  yield click(all(".selectric-items li").find(item => textOf(item) === height));
  yield click(all("#buttons button").find(button => textOf(button) === quotes(utterance)[0]));
};

// ---- dates and flights --------------------------------------------------------------------------------------

/** Opens the calendar of a field, turns to the month and picks the day of 'MM/DD/YYYY'. */
function* pickDate(field, date) {
  const [month, day, year] = date.split("/").map(Number);
  const months = () => {
    const open = one("#ui-datepicker-div td[data-month]").dataset;
    return 12 * (year - open.year) + month - 1 - open.month;
  };
  yield click(field);
  while (months() !== 0) yield click(one(months() < 0 ? ".ui-datepicker-prev" : ".ui-datepicker-next"));
  yield click(all("#ui-datepicker-div td a").find(link => Number(textOf(link)) === day));
  if (shown(one("#ui-datepicker-div"))) yield wait(300); // it fades
}

named("choose-date choose-date-easy choose-date-medium choose-date-nodelay", function* ({ utterance }) {
  yield* pickDate(one("#datepicker"), utterance.match(/[\d/]+/)[0]);
  yield submit();
});

/** Types a place's name or code and picks it among what is suggested. */
function* pickAirport(field, place) {
  const offered = () => suggested(`(${place})`) ?? suggested(place);
  yield type(place, field);
  if (!offered()) yield wait(300);
  yield click(offered());
}

const least = (elements, figure) => elements.reduce((best, each) => (figure(each) < figure(best) ? each : best));
const price = trip => Number(one("[data-price]", trip).dataset.price);
const duration = trip => Number(one("[data-duration]", trip).dataset.duration);

named("book-flight book-flight-nodelay", function* ({ utterance }) {
  const [, wish, from, to, date] = utterance.match(/the (\w+) one-way flight from: (.+) to: (.+) on ([\d/]+)/);
  yield* pickAirport(one("#flight-from"), from);
  yield* pickAirport(one("#flight-to"), to);
  yield* pickDate(one("#datepicker"), date);
  yield click(one("#search"));
  yield click(one("button", least(all(".flight"), wish === "cheapest" ? price : duration)));
});

oracles["buy-ticket"] = function* ({ utterance }) {
  const figure = utterance.includes("cost") ? price : duration;
  const sign = /cheapest|shortest/.test(utterance) ? 1 : -1;
  yield click(one("button", least(all(".flight"), trip => sign * figure(trip))));
};

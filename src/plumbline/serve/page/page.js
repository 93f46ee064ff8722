// The page: asks /v1 and /try, and writes texts as texts only (textContent), never as HTML.

const $ = id => document.getElementById(id);
const OWN = "";  // the value of "a prompt of your own" in the list of examples
let listing = null;  // what /try/examples said last
let running = null;  // the AbortController of what is being answered

// -- small things -----------------------------------------------------------------------------------------------

function make(tag, text = "", name = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (name) element.className = name;
  return element;
}

function fill(select, values, labels = values) {
  select.replaceChildren(...values.map((value, place) => {
    const option = make("option", labels[place]);
    option.value = value;
    return option;
  }));
}

function headers(more = {}) {
  const token = $("token").value;
  return token ? {...more, authorization: `Bearer ${token}`} : more;
}

async function whyNot(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

async function ask(path, options = {}) {
  const response = await fetch(path, {...options, headers: headers(options.headers)});
  if (!response.ok) throw Object.assign(new Error(await whyNot(response)), {status: response.status});
  return response;
}

const fixed = (value, digits = 3) => value === null || value === undefined ? "none" : value.toFixed(digits);
const shorter = (text, most = 70) => text.length > most ? text.slice(0, most) + "…" : text;

// -- models and examples ----------------------------------------------------------------------------------------

async function showModels() {
  try {
    const names = (await (await ask("v1/models")).json()).data.map(one => one.id);
    $("access").hidden = !$("token").value;
    fill($("model"), names);
    fill($("second"), ["", ...names], ["no second model", ...names]);
    await showExamples();
  } catch (error) {
    $("access").hidden = error.status !== 401 && !$("token").value;
    $("said").textContent = error.status === 401 ? "This server wants a token." : error.message;
  }
}

async function showExamples(task = "", split = "", offset = 0) {
  const model = $("model").value;
  const query = new URLSearchParams({model, task, split, offset});
  $("said").textContent = "Looking for examples.";
  let found;
  try {
    found = await (await ask(`try/examples?${query}`, {method: "POST"})).json();
  } catch (error) {
    found = {tasks: [], splits: [], examples: [], total: 0, offset: 0, why: error.message};
  }
  if (model !== $("model").value) return;  // another one was picked meanwhile
  listing = {...found, model};
  fill($("task"), found.tasks);
  fill($("split"), found.splits);
  $("task").value = found.task;
  $("split").value = found.split;
  $("task").parentElement.hidden = found.tasks.length < 2;
  $("split").parentElement.hidden = !found.splits.length;
  const labels = found.examples.map((one, place) =>
    `${found.offset + place + 1}. ` + [one.stratum, shorter(lastOf(one.messages))].filter(Boolean).join(": "));
  fill($("example"), [...found.examples.map(one => one.id), OWN], [...labels, "a prompt of your own"]);
  const last = found.offset + found.examples.length;
  $("earlier").disabled = found.offset === 0;
  $("later").disabled = last >= found.total;
  $("said").textContent = found.why || `Examples ${found.offset + 1} to ${last} of ${found.total}.`;
  showPrompt();
}

const lastOf = messages => messages.length ? messages[messages.length - 1].content.trim().split("\n")[0] : "";
const example = () => listing?.examples.find(one => one.id === $("example").value);

function showPrompt() {
  const one = example();
  $("own").hidden = Boolean(one);
  $("messages").hidden = !one;
  $("gold").hidden = !one || one.gold === null;
  $("messages").querySelector("div").replaceChildren(...(one?.messages ?? []).flatMap(({role, content}) => {
    const text = make("pre", content);
    text.tabIndex = 0;
    text.setAttribute("role", "region");
    text.setAttribute("aria-label", role);
    return [make("span", role, "name"), text];
  }));
  $("gold").querySelector("pre").textContent = one?.gold ?? "";
}

// -- asking -----------------------------------------------------------------------------------------------------

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split(/\r?\n\r?\n/);
    held = parts.pop();
    for (const part of parts) {
      const data = part.split(/\r?\n/).filter(line => line.startsWith("data:")).map(line => line.slice(5).trim()).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

function newSide(model) {
  const side = $("side").content.firstElementChild.cloneNode(true);
  const title = side.querySelector("h2");
  title.textContent = model;
  title.id = `title-${$("sides").childElementCount}`;
  side.setAttribute("aria-labelledby", title.id);
  side.querySelector(".answer").setAttribute("aria-label", `Answer of ${model}`);
  $("sides").append(side);
  return side;
}

async function answer(side, body, signal) {
  const [shown, progress, count] = [".answer", ".progress", ".count"].map(name => side.querySelector(name));
  const got = {text: "", canvases: [], finish: null, usage: null, facts: {}};
  const began = performance.now();
  shown.setAttribute("aria-busy", "true");
  progress.textContent = "Waiting.";
  try {
    const headers = {"content-type": "application/json"};
    const response = await ask("v1/chat/completions", {method: "POST", headers, body: JSON.stringify(body), signal});
    for await (const chunk of events(response)) {
      if (chunk.error) throw new Error(chunk.error.message);
      take(got, chunk);
      const canvas = got.canvases.at(-1);
      shown.textContent = got.text || (canvas ?? "");
      shown.classList.toggle("canvas", !got.text && canvas !== undefined);
      say(progress, got.text || canvas === undefined ? "Writing." : "Denoising.");
      count.textContent = got.canvases.length ? `Step ${got.canvases.length}` : "";
      shown.scrollTop = shown.scrollHeight;
    }
    if (got.finish === null) throw new Error("the answer broke off");
  } catch (error) {
    side.querySelector(".error").textContent = error.name === "AbortError" ? "Stopped." : error.message;
  }
  shown.textContent = got.text;
  shown.classList.remove("canvas");
  shown.setAttribute("aria-busy", "false");
  say(progress, got.finish === null ? "" : "Answered.");
  count.textContent = "";
  showSteps(side, got);
  showFacts(side, got, (performance.now() - began) / 1000);
  return got.finish === null ? null : got.text;
}

// Into a live region, which is read out each time that it is written.
function say(region, text) {
  if (region.textContent !== text) region.textContent = text;
}

function take(got, chunk) {
  const choice = chunk.choices?.[0];
  const {canvas, ...facts} = {...chunk.plumbline, ...choice?.plumbline, ...choice?.delta?.plumbline};
  if (typeof canvas === "string") got.canvases.push(canvas);
  Object.assign(got.facts, facts);
  got.text += choice?.delta?.content ?? "";
  got.finish = choice?.finish_reason ?? got.finish;
  got.usage = chunk.usage ?? got.usage;
}

function showSteps(side, got) {
  const [steps, shown] = [side.querySelector(".steps"), side.querySelector(".answer")];
  const [slider, said] = [steps.querySelector("input"), steps.querySelector("output")];
  if (got.canvases.length < 2) return;
  slider.max = got.canvases.length;
  slider.value = slider.max;
  steps.hidden = false;
  const show = () => {
    const last = slider.value === slider.max;
    shown.textContent = last && got.finish !== null ? got.text : got.canvases[slider.value - 1];
    said.textContent = `${slider.value} of ${slider.max}`;
  };
  slider.addEventListener("input", show);
  show();
}

function showFacts(side, got, seconds) {
  const tokens = got.usage?.completion_tokens;
  const facts = {
    tokens: tokens,
    seconds: seconds.toFixed(2),
    "tokens a second": tokens === undefined ? undefined : (tokens / seconds).toFixed(1),
    "finish reason": got.finish,
    ...Object.fromEntries(Object.entries(got.facts).filter(([, value]) => !Array.isArray(value) || value.length)),
  };
  showList(side.querySelector(".facts"), facts);
}

function showList(list, values) {
  const entries = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  list.replaceChildren(...entries.flatMap(([name, value]) => [
    make("dt", name),
    make("dd", typeof value === "object" ? JSON.stringify(value) : String(value)),
  ]));
}

// -- judging ----------------------------------------------------------------------------------------------------

async function judge(side, place, text, signal) {
  const shown = side.querySelector(".verdict");
  const progress = side.querySelector(".progress");
  say(progress, "Judging.");
  try {
    const headers = {"content-type": "application/json"};
    const response = await ask("try/judge", {method: "POST", headers, body: JSON.stringify({...place, text}), signal});
    const found = await response.json();
    showVerdict(shown, found);
    say(progress, `Judged: score ${fixed(found.score)}.`);
  } catch (error) {
    say(progress, "");
    shown.replaceChildren(make("p", error.name === "AbortError" ? "Stopped." : error.message, "error"));
  }
}

function showVerdict(shown, found) {
  shown.replaceChildren(make("h3", "Verdict"));
  shown.append(make("p", found.how === "none" ? "It could not be read." : `Read as: ${found.how}.`));
  if (found.failure) shown.append(make("p", `It could not be judged. ${found.failure}`, "error"));
  if (found.score !== null) {
    const parts = make("ul", "", "parts");
    const of = (name, bound) => name === null ? bound?.score : bound?.parts[name];
    for (const [name, value] of [[null, found.score], ...Object.entries(found.parts)]) {
      parts.append(bar(name ?? "score", value, of(name, found.floor), of(name, found.ceiling)));
    }
    shown.append(parts, bounds(found));
  }
  if (found.said.length) shown.append(make("h3", "What was read"), told(found.said));
  const facts = make("dl");
  const {received, ...others} = found.facts;
  showList(facts, others);
  if (received) shown.append(make("h3", "What the server received"), table(received));
  if (found.pages.length) shown.append(make("h3", "The form as it was filled in"), ...found.pages.map(frame));
  if (facts.childElementCount) shown.append(folded("Facts", facts));
}

function bar(name, value, floor, ceiling) {
  const [item, track, filled] = [make("li"), make("div", "", "bar"), make("i")];
  filled.style.width = `${100 * (value ?? 0)}%`;
  track.append(filled);
  for (const [at, kind] of [[floor, "floor"], [ceiling, "ceiling"]]) {
    if (at === undefined || at === null) continue;
    const mark = make("u", "", kind);
    mark.style.left = `${100 * at}%`;
    track.append(mark);
  }
  track.setAttribute("aria-hidden", "true");
  item.append(make("b", name), track, make("span", fixed(value), "value"));
  return item;
}

function bounds({floor, ceiling}) {
  const said = make("p", "", "note");
  const one = (bound, kind, what) => {
    if (!bound) return [document.createTextNode(`No ${kind}. `)];
    const text = `${kind}: ${what} ${fixed(bound.score)}, mean over ${bound.n} examples of its kind. `;
    return [make("span", "", `key ${kind}`), document.createTextNode(text)];
  };
  said.append(...one(floor, "floor", `the baseline ${floor?.name} earns`), ...one(ceiling, "ceiling", "the gold answers earn"));
  return said;
}

function table(received) {
  if (!Object.keys(received).length) return make("p", "Nothing: the form was not sent.");
  const list = make("dl");
  const texts = Object.entries(received).map(([name, value]) => [name, [value].flat().join(", ") || "(empty)"]);
  showList(list, Object.fromEntries(texts));
  return list;
}

// What an answer says: pairs of a name and a value, or anything else (the rows that its query returns).
function told(said) {
  const list = make("dl");
  const items = Array.isArray(said) ? said : [said];
  const isPair = item => Array.isArray(item) && item.length === 2 && item.every(one => typeof one === "string");
  showList(list, Object.fromEntries(items.map((item, place) => isPair(item) ? item : [place + 1, item])));
  return list;
}

function folded(title, inner) {
  const details = make("details");
  details.append(make("summary", title), inner);
  return details;
}

// A page that a plan filled in: a frame that may run no script, send nothing, and is of no origin.
function frame(page, place) {
  const shown = make("iframe");
  shown.setAttribute("sandbox", "");
  shown.title = `Page ${place + 1} of the filled form`;
  const controls = page.match(/<(input|select|textarea)/g)?.length ?? 0;
  shown.style.height = `${Math.min(26, 7 + 3.8 * controls)}rem`;  // nobody can measure what is inside
  shown.srcdoc = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Form</title>` +
    `<link rel="stylesheet" href="page/shown.css"></head><body inert>${page}</body></html>`;
  return shown;
}

// -- the form ---------------------------------------------------------------------------------------------------

async function send(event) {
  event.preventDefault();
  if (running) return;
  const one = example();
  const messages = one ? one.messages : [{role: "user", content: $("prompt").value}];
  const options = {
    temperature: Number($("temperature").value),
    ...($("tokens").value && {max_tokens: Number($("tokens").value)}),
    seed: Number($("seed").value),
    stream: true,
    stream_options: {include_usage: true},
    plumbline: {canvas: true},
  };
  const place = one && {model: listing.model, task: listing.task, split: listing.split, example: one.id};
  const models = [$("model").value, $("second").value].filter(Boolean);
  running = new AbortController();
  const {signal} = running;
  $("send").disabled = true;
  $("stop").disabled = false;
  $("stop").focus();
  $("sides").replaceChildren();
  await Promise.all(models.map(newSide).map(async (side, index) => {
    const text = await answer(side, {model: models[index], messages, ...options}, signal);
    if (place && text !== null) await judge(side, place, text, signal);
  }));
  running = null;
  const held = document.activeElement === $("stop");
  $("send").disabled = false;
  $("stop").disabled = true;
  if (held || document.activeElement === document.body) $("send").focus();
}

$("ask").addEventListener("submit", send);
$("stop").addEventListener("click", () => running?.abort());
$("enter").addEventListener("click", showModels);
$("model").addEventListener("change", () => showExamples());
$("task").addEventListener("change", () => showExamples($("task").value));
$("split").addEventListener("change", () => showExamples(listing.task, $("split").value));
$("example").addEventListener("change", showPrompt);
for (const [id, by] of [["earlier", -1], ["later", 1]]) {
  $(id).addEventListener("click", () => showExamples(listing.task, listing.split, Math.max(0, listing.offset + by * 20)));
}
showModels();

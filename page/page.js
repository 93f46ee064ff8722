"use strict";

const find = (id) => document.getElementById(id);
const base = new URL(".", location.href).href;
// A worker of a blob has the page's content policy, one of an address has its own.
const source = new Blob([`const BASE=${JSON.stringify(base)};importScripts(BASE+"worker.js");`]);
const worker = new Worker(URL.createObjectURL(source));
let ready = false;
let asked = 0;

function make(tag, text = "", name = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = name;
  return element;
}

function state(text, step = null) {
  find("step").textContent = text;
  find("progress").hidden = step === null;
  if (step === "busy") find("progress").removeAttribute("value");
  else if (step !== null) find("progress").value = step + 0.5;
}

worker.onmessage = ({ data }) => {
  if (data.failed) {
    state("Python could not be loaded.");
    find("result").replaceChildren(make("p", data.failed, "banner"));
  } else if (data.id === undefined) {
    ready = data.step === 3;
    document.documentElement.dataset.ready = ready;
    if (!ready || !asked) state(data.text, ready ? null : data.step);
    else state("Checking", "busy");
  } else if (data.id === asked) {
    state("Ready for another log");
    show(data);
  }
};

/** Check files: a Map of the bytes of each by its path; the page says what is checked. */
function check(files, name = nameFiles([...files.keys()])) {
  if (!files.size) return;
  asked += 1;
  find("checked").replaceChildren("Log: ", make("b", name));
  find("checked").hidden = false;
  find("result").replaceChildren();
  delete find("result").dataset.status;
  if (ready) state("Checking", "busy");
  worker.postMessage({ id: asked, files });
}

/** What files are called together: their folder, or the first and how many more. */
function nameFiles(paths) {
  const parts = paths.map((path) => path.replace(/^\//, "").split("/"));
  const folders = new Set(parts.map((one) => (one.length > 1 ? one[0] : "")));
  if (parts.length === 1) return parts[0].join("/");
  const [folder] = folders;
  return folders.size === 1 && folder ? `${folder} (${parts.length} files)` : `${parts[0].join("/")} and ${parts.length - 1} more`;
}

async function read(list) {
  const files = new Map();
  for (const [path, file] of list) files.set(path, new Uint8Array(await file.arrayBuffer()));
  check(files);
}

// -- what came out -------------------------------------------------------------------------------

function show({ status, out, err }) {
  const result = find("result");
  result.dataset.status = status;
  if (!out) {
    result.replaceChildren(make("p", err || "There was no answer.", "banner"));
    return;
  }
  const values = JSON.parse(out);
  const runs = values.runs ? Object.entries(values.runs) : [["", values]];
  result.replaceChildren(...runs.flatMap(([name, run]) => showRun(name, run)), showJson(out));
}

function showRun(name, run) {
  const heading = name ? [make("h2", name)] : [];
  if (run.error) return [...heading, make("p", `${run.error}\n${run.fix}`, "banner")];
  return [...heading, ...run.stages.flatMap(showStage)];
}

function showStage(stage) {
  const above = stage.findings.filter((one) => !one.follows.length);
  const below = stage.findings.filter((one) => one.follows.length);
  const loud = above.filter((one) => one.level !== "note" || one.shown);
  const notes = above.filter((one) => !loud.includes(one));
  const orphans = below.filter((one) => !above.some((other) => other.check === one.follows[0]));
  const parts = [];
  if (stage.outcome) {
    const { better, verdict: what, summary } = stage.outcome;
    const verdict = make("div", "", `verdict ${what !== "fell" && what !== "rose" ? "" : better ? "better" : "worse"}`);
    verdict.append(make("p", stage.spent ? `${summary}; ${stage.spent.summary}` : summary, "sentence"));
    parts.push(verdict);
  }
  const skipped = stage.skipped ? `; ${stage.skipped} ${stage.skipped === 1 ? "line" : "lines"} could not be read` : "";
  parts.push(make("p", `${stage.stage} (${stage.origin}): ${stage.logged_steps} logged steps up to ` +
    `${stage.last_step}, ${stage.completions} completions${skipped}`, "note"));
  parts.push(...stage.remarks.map((remark) => make("p", remark, "note")));
  if (!loud.length) parts.push(make("p", "No fault was found. That is no proof of health: see what could not be checked."));
  parts.push(...loud.map((one) => showFinding(one, below)));
  if (notes.length + orphans.length) {
    const more = make("details");
    more.append(make("summary", `Notes (${notes.length + orphans.length})`));
    more.append(...[...notes, ...orphans].map((one) => showFinding(one, below)));
    parts.push(more);
  }
  const missing = Object.entries(stage.not_run);
  const rest = make("details");
  rest.append(make("summary", `${stage.clear.length} checks clear, ${missing.length} not made`));
  rest.append(make("p", `Clear: ${stage.clear.join(", ") || "none"}`, "note"));
  const list = make("ul", "", "note");
  list.append(...missing.map(([check, needs]) => make("li", `${check} needs ${needs.join(" and ").replaceAll("|", " or ").replace(/\/($| )/g, "/*$1")}`)));
  rest.append(list);
  return [...parts, rest];
}

function showFinding(finding, below) {
  const box = make("article", "", `finding ${finding.level}`);
  const head = make("h3");
  head.append(make("span", `${finding.level}: `, "level"), finding.what, " ", make("span", finding.check, "check"));
  const list = make("ul");
  for (const cause of finding.causes) list.append(make("li", `likely: ${cause.text}`));
  if (finding.fix) list.append(make("li", `do: ${finding.fix}`));
  for (const [key, value] of Object.entries(finding.change)) list.append(make("li", `set: ${key}: ${value}`));
  box.append(head);
  if (list.children.length) box.append(list);
  box.append(...below.filter((one) => one.follows[0] === finding.check).map((one) => showFinding(one, [])));
  return box;
}

function showJson(out) {
  const box = make("details");
  const save = make("button", "Save as a file");
  save.type = "button";
  save.onclick = () => {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([out], { type: "application/json" }));
    link.download = "plumbline-check.json";
    link.click();
    URL.revokeObjectURL(link.href);
  };
  const text = make("pre", out);
  text.id = "json";
  box.append(make("summary", "JSON, as plumbline check --json prints it"), save, text);
  return box;
}

// -- what is given -------------------------------------------------------------------------------

/** The name that a pasted text would have as a file. */
function guessName(text) {
  const lines = text.trim().split("\n");
  const isJson = (part) => { try { return typeof JSON.parse(part) === "object"; } catch { return false; } };
  if (isJson(text)) return text.includes('"log_history"') ? "trainer_state.json" : "log.json";
  if (isJson(lines[0])) return "log.jsonl";
  return /^[^\s:{]+(,[^\s:{]+)+$/.test(lines[0].trim()) ? "log.csv" : "train.log";
}

async function walk(entry, found = []) {
  if (entry.isFile) {
    found.push([entry.fullPath, await new Promise((done, fail) => entry.file(done, fail))]);
    return found;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((done, fail) => reader.readEntries(done, fail));
    if (!some.length) return found;
    for (const one of some) await walk(one, found);
  }
}

for (const id of ["files", "folder"]) {
  find(id).onchange = ({ target }) => {
    read([...target.files].map((file) => [file.webkitRelativePath || file.name, file]));
    target.value = "";
  };
}
find("check").onclick = () => {
  const text = find("text").value;
  const name = guessName(text);
  if (text.trim()) check(new Map([[name, new TextEncoder().encode(text)]]), `pasted text, read as ${name}`);
};
for (const kind of ["dragover", "dragleave", "drop"]) {
  addEventListener(kind, (event) => {
    event.preventDefault();
    find("drop").classList.toggle("over", kind === "dragover");
  });
}
addEventListener("drop", async ({ dataTransfer }) => {
  const entries = [...dataTransfer.items].map((item) => item.webkitGetAsEntry()).filter(Boolean);
  read((await Promise.all(entries.map((entry) => walk(entry)))).flat());
});

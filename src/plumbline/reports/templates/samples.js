"use strict";
const get = (id) => document.getElementById(id);
const {texts, rows} = JSON.parse(get("data").textContent);
const KINDS = {right: (r) => r >= 0.999, part: (r) => r > 0 && r < 0.999, nothing: (r) => r !== null && r <= 0, none: (r) => r === null};
const add = (to, tag, style, text) => {
const made = document.createElement(tag);
made.className = style;
made.textContent = text;
to.append(made);
return made;
};
const quote = (to, name, text) => {
if (!text) return;
add(to, "p", "why", name);
add(to, "pre", "", text).dir = "auto";
};
const show = ([where, id, reward, note, answer, prompt, gold, golden]) => {
const one = add(get("list"), "article", "sample", "");
add(one, "h3", "", id);
const earned = reward === null ? "" : KINDS.right(reward) ? "✓ " : reward <= 0 ? "✗ " : "";
add(one, "p", "why", [where, earned + (reward === null ? "not judged" : "reward " + reward.toFixed(3)), note].filter(Boolean).join(" · "));
quote(one, "Prompt", texts[prompt]);
quote(one, texts[golden], texts[gold]);
quote(one, "Answer", texts[answer] || "(empty)");
};
let found = [], shown = 0;
const more = () => { for (const row of found.slice(shown, shown + 50)) { show(row); shown += 1; } };
const search = () => {
const words = get("words").value.toLowerCase().split(/\s+/), where = get("where").value, kind = KINDS[get("earned").value];
found = rows.filter((row) => {
if ((where && row[0] !== where) || (kind && !kind(row[2]))) return false;
const text = [row[1], row[3], texts[row[4]], texts[row[5]]].join(" ").toLowerCase();
return words.every((word) => text.includes(word));
});
get("count").textContent = `${found.length} of ${rows.length} answers`;
get("list").replaceChildren();
shown = 0;
more();
};
for (const name of new Set(rows.map((row) => row[0]))) add(get("where"), "option", "", name).value = name;
for (const id of ["words", "where", "earned"]) get(id).addEventListener("input", search);
get("words").value = new URLSearchParams(`words=${location.hash.slice(1)}`).get("words");
new IntersectionObserver((seen) => { if (seen[0].isIntersecting) more(); }, {rootMargin: "800px"}).observe(get("end"));
search();

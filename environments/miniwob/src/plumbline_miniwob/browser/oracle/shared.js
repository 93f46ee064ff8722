// What oracles of several tasks need: ways to find what a page shows, and actions. An oracle is a generator function
// under its task's name: it reads the page, yields an action (what acts.js takes; a target may be an element), and goes
// on when that was done, until the page has answered.
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const one = (selector, within = document) => within.querySelector(selector);
const textOf = element => element.textContent.replace(/\s+/g, " ").trim();
const shown = element => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
/** Whether a click in the middle of it would meet it. */
const onTop = element => {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  const met = document.elementFromPoint((left + right) / 2, (top + bottom) / 2);
  return met !== null && element.contains(met);
};
/** The first shown element of a selector that has this text; without a text, the first that is shown. */
const called = (selector, text) =>
  all(selector).find(element => shown(element) && (text === undefined || textOf(element) === text));
const button = text => called("#wrap button, .ui-dialog button", text);
/** What a sentence has between its double quotes. */
const quoted = sentence => /"(.*)"/.exec(sentence)?.[1];

const click = on => ({ do: "click", on });
const type = (text, on) => ({ do: "type", text: String(text), on });
const submit = () => click(button("Submit"));
const wait = ms => ({ do: "wait", ms });
Object.assign(shared, { all, one, textOf, shown, onTop, called, button, quoted, click, type, submit, wait });

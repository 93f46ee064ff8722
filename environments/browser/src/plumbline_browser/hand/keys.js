// The keyboard: one key after the other with its events and what a browser does of itself after them.
(() => {
  const { page, refuse, tell, push, focus, settle, begin, selected, textual, editable, shown, roll, scrollable } = plumbline.mouse;
  const MOST_KEY = 40;
  const MOST_EDITS = 1000;
  let clipboard = "";
  const reset = () => { clipboard = ""; };
  // What was typed so far cannot be taken back any more: the browser's list of edits is used up, since it outlives fields.
  const settleEdits = () => {
    for (let left = MOST_EDITS; left && document.queryCommandEnabled("undo"); left--) document.execCommand("undo");
  };

  const KEYS = {
    Enter: 13, Tab: 9, Backspace: 8, Delete: 46, Escape: 27, ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40,
    Home: 36, End: 35, PageUp: 33, PageDown: 34, Control: 17, Shift: 16, Alt: 18, Meta: 91, Insert: 45,
  };
  const ALIASES = { Return: "Enter", Esc: "Escape", Space: " ", Left: "ArrowLeft", Right: "ArrowRight", Up: "ArrowUp", Down: "ArrowDown", Ctrl: "Control", Cmd: "Control", Del: "Delete" };
  const PUNCTUATION = { ";": 186, "=": 187, ",": 188, "-": 189, ".": 190, "/": 191, "`": 192, "[": 219, "\\": 220, "]": 221, "'": 222 };
  const codeOf = key => {
    if (KEYS[key]) return KEYS[key];
    const upper = key.toUpperCase();
    return /^[A-Z0-9 ]$/.test(upper) ? upper.charCodeAt(0) : PUNCTUATION[key] ?? 0;
  };
  const keyEvent = (type, key, held) => {
    const code = type === "keypress" ? (key === "Enter" ? 13 : key.codePointAt(0)) : codeOf(key);
    const focused = document.activeElement ?? document.body;
    return focused.dispatchEvent(new KeyboardEvent(type, {
      bubbles: true, cancelable: true, composed: true, view: window, key,
      code: key.length > 1 ? key : key === " " ? "Space" : /[a-z]/i.test(key) ? `Key${key.toUpperCase()}` : /\d/.test(key) ? `Digit${key}` : "",
      keyCode: code, which: code, charCode: type === "keypress" ? code : 0,
      ctrlKey: held.has("Control"), shiftKey: held.has("Shift"), altKey: held.has("Alt"), metaKey: held.has("Meta"),
    }));
  };
  const edit = (command, text) => {
    if (!editable(document.activeElement)) return;
    begin();
    document.execCommand(command, false, text);
  };
  const character = (key, held) => {
    const down = keyEvent("keydown", key, held);
    if (down && keyEvent("keypress", key, held)) edit("insertText", key);
    keyEvent("keyup", key, held);
  };
  const selectAll = () => {
    const focused = document.activeElement;
    if (textual(focused)) focused.select();
    else if (focused?.isContentEditable) document.execCommand("selectAll");
    else getSelection().selectAllChildren(page.content());
    selected();
  };
  const selection = () => {
    const focused = document.activeElement;
    if (textual(focused) && focused.selectionStart !== null) return focused.value.slice(focused.selectionStart, focused.selectionEnd);
    return getSelection().toString();
  };
  const clip = type => {
    const data = new DataTransfer();
    if (type === "paste") data.setData("text/plain", clipboard);
    const target = document.activeElement ?? document.body;
    if (!target.dispatchEvent(new ClipboardEvent(type, { bubbles: true, cancelable: true, clipboardData: data }))) {
      if (type !== "paste" && data.getData("text/plain")) clipboard = data.getData("text/plain");
      return;
    }
    if (type === "paste") { if (clipboard) edit("insertText", clipboard); return; }
    const text = selection();
    if (text) clipboard = text;
    if (type === "cut" && text) edit("delete");
  };
  const tab = back => {
    const all = [...document.querySelectorAll("input,textarea,select,button,a[href],[tabindex],[contenteditable='true']")]
      .filter(one => one.tabIndex >= 0 && !one.disabled && shown(one) && !one.closest(page.apart));
    if (!all.length) return;
    const here = all.indexOf(document.activeElement);
    const to = all[here < 0 ? (back ? all.length - 1 : 0) : (here + (back ? -1 : 1) + all.length) % all.length];
    focus(to);
    if (textual(to) && to.tagName === "INPUT") to.select();
  };
  const enter = () => {
    const focused = document.activeElement;
    if (focused instanceof HTMLTextAreaElement) edit("insertLineBreak");
    else if (focused?.isContentEditable) edit("insertParagraph");
    else if (focused instanceof HTMLButtonElement || (focused instanceof HTMLAnchorElement && focused.href) ||
      ["button", "submit"].includes(focused?.type)) push(focused);
    else if (focused instanceof HTMLInputElement) { settle(); focused.form?.requestSubmit(); }
  };
  const turn = (focused, key) => {
    const forward = key === "ArrowDown" || key === "ArrowRight";
    const told = () => tell(focused, "input", "change");
    if (focused instanceof HTMLSelectElement) {
      const to = focused.selectedIndex + (forward ? 1 : -1);
      if (to >= 0 && to < focused.options.length) { focused.selectedIndex = to; told(); }
    } else if (focused.type === "radio") {
      const all = [...document.getElementsByName(focused.name)].filter(one => one.type === "radio");
      const to = all[(all.indexOf(focused) + (forward ? 1 : -1) + all.length) % all.length];
      push(to);
    } else if (focused.type === "number" || focused.type === "range") {
      const up = focused.type === "range" ? key === "ArrowUp" || key === "ArrowRight" : key === "ArrowUp";
      if (focused.type === "number" && (key === "ArrowLeft" || key === "ArrowRight")) return;
      if (up) focused.stepUp(); else focused.stepDown();
      told();
    }
  };
  const steer = (key, held) => {
    const focused = document.activeElement;
    if (focused && (focused instanceof HTMLSelectElement || ["radio", "number", "range"].includes(focused.type))) return turn(focused, key);
    const words = held.has("Control");
    const [way, far] = {
      ArrowLeft: ["backward", words ? "word" : "character"], ArrowRight: ["forward", words ? "word" : "character"],
      ArrowUp: ["backward", "line"], ArrowDown: ["forward", "line"],
      Home: ["backward", words ? "documentboundary" : "lineboundary"], End: ["forward", words ? "documentboundary" : "lineboundary"],
    }[key];
    if (!editable(focused) && !held.has("Shift")) return undefined;
    getSelection().modify(held.has("Shift") ? "extend" : "move", way, far);
    return selected();
  };
  const defaultOf = (key, held) => {
    if (held.has("Control") || held.has("Meta")) {
      const letter = key.toLowerCase();
      if (letter === "a") return selectAll();
      if (letter === "c") return clip("copy");
      if (letter === "x") return clip("cut");
      if (letter === "v") return clip("paste");
      if (letter === "z") return edit("undo");
    }
    if (key === "Enter") return enter();
    if (key === "Tab") return tab(held.has("Shift"));
    if (key === "Backspace") return edit(held.has("Control") ? "deleteWordBackward" : "delete");
    if (key === "Delete") return edit("forwardDelete");
    if (/^Arrow|^Home$|^End$/.test(key)) return steer(key, held);
    if (key === "PageDown" || key === "PageUp") {
      const focused = document.activeElement ?? document.body;
      return roll(focused, 0, (key === "PageDown" ? 0.9 : -0.9) * (scrollable(focused)?.clientHeight ?? 0));
    }
    return undefined;
  };
  const stroke = name => {
    if (typeof name !== "string" || !name || name.length > MOST_KEY) refuse("no key");
    const parts = name === "+" ? ["+"] : name.split("+").map(part => part.trim() || "+");
    const held = new Set();
    let key = parts.pop();
    key = ALIASES[key] ?? key;
    for (const part of parts) {
      const modifier = ALIASES[part] ?? part;
      if (!["Control", "Shift", "Alt", "Meta"].includes(modifier)) refuse(`there is no key '${name}'`);
      held.add(modifier);
    }
    if ([...key].length > 1 && !KEYS[key]) refuse(`there is no key '${name}'`);
    if ([...key].length === 1 && held.has("Shift") && held.size === 1) key = key.toUpperCase();
    for (const modifier of held) keyEvent("keydown", modifier, held);
    const plain = [...key].length === 1 && !held.has("Control") && !held.has("Meta") && !held.has("Alt");
    if (plain && key === " " && !editable(document.activeElement)) space(held);
    else if (plain) character(key, held);
    else {
      let free = keyEvent("keydown", key, held);
      if (free && key === "Enter") free = keyEvent("keypress", key, held);
      if (free) defaultOf(key, held);
      keyEvent("keyup", key, held);
    }
    for (const modifier of held) keyEvent("keyup", modifier, new Set());
  };
  const space = held => {
    const focused = document.activeElement;
    const free = keyEvent("keydown", " ", held) && keyEvent("keypress", " ", held);
    const last = keyEvent("keyup", " ", held);
    if (free && last && (focused instanceof HTMLButtonElement || ["checkbox", "radio", "button", "submit"].includes(focused?.type))) push(focused);
  };

  plumbline.keys = { stroke, character, edit, selectAll, reset, settleEdits };
})();

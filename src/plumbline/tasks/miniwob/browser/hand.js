// Carries out actions as a user's hand would: with events that the page takes as a user's. Each action is an object
// (see ../actions.py), each ends as [status, reason]; status is "ok", "not found", "ambiguous" or "refused".
(() => {
  const { see, clock } = plumbline;
  const OK = ["ok", ""];
  const MOST_TEXT = 1000;
  const FAR = 10000;
  const LONGEST = 60000;
  const STEPS = 9;
  const MOMENT = 10;
  class Refusal extends Error {
    constructor(status, reason) { super(reason); this.status = status; }
  }
  const refuse = (reason, status = "refused") => { throw new Refusal(status, reason); };

  let pointer, over, clipboard, edited;
  const reset = () => { pointer = { x: 0, y: 0 }; over = null; clipboard = ""; edited = null; };
  reset();

  // ---- the mouse
  const hit = (x, y) => {
    const found = document.elementFromPoint(x, y);
    return found && found.id !== "sync-task-cover" ? found : found && document.body;
  };
  const mouse = (element, type, { x, y }, more = {}) => {
    const kind = type.startsWith("pointer") ? PointerEvent : type === "wheel" ? WheelEvent : MouseEvent;
    const inner = type.endsWith("enter") || type.endsWith("leave");
    return element.dispatchEvent(new kind(type, {
      bubbles: !inner, cancelable: !inner, composed: true, view: window, clientX: x, clientY: y, screenX: x, screenY: y,
      button: 0, buttons: 0, pointerId: 1, pointerType: "mouse", isPrimary: true, ...more,
    }));
  };
  const ancestors = element => { const all = []; for (let up = element; up; up = up.parentElement) all.push(up); return all; };
  const hover = (point, buttons) => {
    const element = hit(point.x, point.y) ?? document.documentElement;
    if (over !== element) {
      const old = over?.isConnected ? over : null;
      const left = old ? ancestors(old).filter(one => !one.contains(element)) : [];
      const entered = ancestors(element).filter(one => !old || !one.contains(old)).reverse();
      if (old) { mouse(old, "pointerout", point, { relatedTarget: element, buttons }); mouse(old, "mouseout", point, { relatedTarget: element, buttons }); }
      for (const one of left) mouse(one, "mouseleave", point, { relatedTarget: element, buttons });
      mouse(element, "pointerover", point, { relatedTarget: old, buttons });
      mouse(element, "mouseover", point, { relatedTarget: old, buttons });
      for (const one of entered) mouse(one, "mouseenter", point, { relatedTarget: old, buttons });
      over = element;
    }
    return element;
  };
  // What moves under a mouse that rests is entered and left, too.
  const rest = () => { if (over) hover(pointer, 0); };
  const move = (point, buttons = 0) => {
    const element = hover(point, buttons);
    pointer = point;
    mouse(element, "pointermove", point, { buttons });
    mouse(element, "mousemove", point, { buttons });
    return element;
  };
  const focusable = element => element?.closest(
    "input:not([type=hidden]),textarea,select,button,a[href],[tabindex],[contenteditable='true'],[contenteditable='']");
  const settle = () => {
    if (edited && edited.element.isConnected && edited.before !== edited.element.value) {
      edited.element.dispatchEvent(new Event("change", { bubbles: true }));
    }
    edited = null;
  };
  const focus = element => {
    if (document.activeElement === element) return;
    if (edited && edited.element !== element) settle();
    if (element && !element.disabled) element.focus({ preventScroll: true });
    else if (document.activeElement !== document.body) document.activeElement?.blur?.();
  };
  const caret = ({ x, y }) => {
    const found = document.caretPositionFromPoint?.(x, y);
    return found && found.offsetNode ? { node: found.offsetNode, offset: found.offset } : null;
  };
  const selected = () => document.dispatchEvent(new Event("selectionchange"));
  const choose = (from, to) => {
    if (!from || !to) return;
    if (from.node instanceof HTMLTextAreaElement || from.node instanceof HTMLInputElement) {
      if (to.node !== from.node || !textual(from.node) || from.node.type === "number") return;
      from.node.setSelectionRange(Math.min(from.offset, to.offset), Math.max(from.offset, to.offset));
    } else if (!(to.node instanceof HTMLTextAreaElement || to.node instanceof HTMLInputElement)) {
      getSelection().setBaseAndExtent(from.node, from.offset, to.node, to.offset);
    }
    selected();
  };
  const press = (point, detail = 1) => {
    const element = move(point);
    mouse(element, "pointerdown", point, { buttons: 1 });
    const free = mouse(element, "mousedown", point, { buttons: 1, detail });
    if (free) {
      const target = focusable(element);
      focus(target);
      const there = caret(point);
      if (target && textual(target)) { if (there?.node === target) choose(there, there); }
      else if (!element.closest("button") && getComputedStyle(element).userSelect !== "none") choose(there, there);
    }
    return { element, free, caret: free ? caret(point) : null };
  };
  const release = (pressed, point, detail = 1) => {
    const element = hit(point.x, point.y) ?? document.documentElement;
    mouse(element, "pointerup", point);
    mouse(element, "mouseup", point, { detail });
    const common = ancestors(pressed).find(one => one.isConnected && one.contains(element));
    if (common && !common.closest(":disabled")) mouse(common, "click", point, { detail });
    return common;
  };
  const clickAt = point => release(press(point).element, point);

  // ---- where a target is
  const shown = element => element.isConnected && element.checkVisibility({ visibilityProperty: true });
  const scrollers = element => ancestors(element).filter(one => one.scrollHeight > one.clientHeight || one.scrollWidth > one.clientWidth);
  const scrolling = (element, work) => {
    const before = scrollers(element).map(one => [one, one.scrollTop, one.scrollLeft]);
    work();
    for (const [one, top, left] of before) {
      if (one.scrollTop !== top || one.scrollLeft !== left) {
        (one === document.documentElement ? document : one).dispatchEvent(new Event("scroll", { bubbles: one === document.documentElement }));
      }
    }
  };
  const belongs = (element, found) => found && (element.contains(found) || found.closest("label")?.control === element);
  const PARTS = [[.5, .5], [.5, .25], [.5, .75], [.25, .5], [.75, .5], [.2, .2], [.8, .8], [.2, .8], [.8, .2], [.05, .5], [.95, .5], [.5, .05], [.5, .95]];
  const boxes = element => {
    const all = element instanceof SVGElement ? [element.getBoundingClientRect()] : [...element.getClientRects()];
    return all.filter(box => box.width > 0 && box.height > 0);
  };
  const open = element => {
    const through = getComputedStyle(element).pointerEvents === "none";
    for (const box of boxes(element)) {
      for (const [across, down] of PARTS) {
        const point = { x: box.left + across * box.width, y: box.top + down * box.height };
        const found = document.elementFromPoint(point.x, point.y);
        if (belongs(element, found) || (through && found?.contains(element))) return point;
      }
    }
    return null;
  };
  // A point of an element that the mouse can reach, after scrolling it into view.
  const reach = element => {
    if (!shown(element)) refuse("it is not shown now");
    let point = open(element);
    if (!point) {
      scrolling(element, () => element.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" }));
      point = open(element);
    }
    if (!point && !boxes(element).length) {
      for (const child of element.children) if (shown(child)) return reach(child);
    }
    if (!point) refuse("something else lies over it");
    return point;
  };
  const centre = element => {
    if (!shown(element)) refuse("it is not shown now");
    const inside = () => {
      const box = element.getBoundingClientRect();
      return { x: box.left + box.width / 2, y: box.top + box.height / 2 };
    };
    if (!open(element)) scrolling(element, () => element.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" }));
    return inside();
  };
  const number = value => typeof value === "number" && Number.isFinite(value) && Math.abs(value) <= FAR;
  const worded = value => typeof value === "string" && value.length <= MOST_TEXT;
  const what = target => [target.role, target.name === undefined ? "" : `'${see.tidy(target.name).slice(0, 60)}'`].filter(Boolean).join(" ");
  // The element of a target, or a point where it is only that.
  const resolve = (target, seen) => {
    if (target === null || typeof target !== "object") refuse("no target");
    if (target.ref !== undefined) {
      if (!Number.isInteger(target.ref)) refuse("a number of an element is an integer");
      const one = seen.elements[target.ref - 1];
      if (!one) refuse(`there is no [${target.ref}]`, "not found");
      if (!one.element.isConnected) refuse(`[${target.ref}] is gone`, "not found");
      return { element: one.element };
    }
    if (target.name !== undefined) {
      if (!worded(target.name) || !(target.role == null || worded(target.role))) refuse("a name is a text");
      const found = see.find(see.look(), target.role ?? null, target.name);
      if (target.nth === undefined || target.nth === null) {
        if (found.length > 1) refuse(`there are ${found.length} of ${what(target)}`, "ambiguous");
      } else if (!Number.isInteger(target.nth) || target.nth < 1) {
        refuse("nth is a number from 1");
      }
      const one = found[(target.nth ?? 1) - 1];
      if (!one) refuse(`there is no ${what(target)}`, "not found");
      return { element: one.element };
    }
    if (!number(target.x) || !number(target.y)) refuse("a point is two numbers");
    return { point: { x: target.x - scrollX, y: target.y - scrollY } };
  };
  const at = found => found.point ?? reach(found.element);

  // ---- the keyboard
  const textual = element => element instanceof HTMLTextAreaElement ||
    (element instanceof HTMLInputElement && !["checkbox", "radio", "button", "submit", "reset", "range", "color", "file", "image", "date", "time"].includes(element.type));
  const editable = element => element && (textual(element) ? !element.readOnly && !element.disabled : element.isContentEditable);
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
  const begin = () => {
    const focused = document.activeElement;
    if (textual(focused) && edited?.element !== focused) edited = { element: focused, before: focused.value };
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
    else getSelection().selectAllChildren(document.getElementById("area") ?? document.body);
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
      .filter(one => one.tabIndex >= 0 && !one.disabled && shown(one) && !one.closest("#reward-display"));
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
      ["button", "submit"].includes(focused?.type)) focused.click();
    else if (focused instanceof HTMLInputElement) { settle(); focused.form?.requestSubmit(); }
  };
  const turn = (focused, key) => {
    const forward = key === "ArrowDown" || key === "ArrowRight";
    const told = () => { for (const type of ["input", "change"]) focused.dispatchEvent(new Event(type, { bubbles: true })); };
    if (focused instanceof HTMLSelectElement) {
      const to = focused.selectedIndex + (forward ? 1 : -1);
      if (to >= 0 && to < focused.options.length) { focused.selectedIndex = to; told(); }
    } else if (focused.type === "radio") {
      const all = [...document.getElementsByName(focused.name)].filter(one => one.type === "radio");
      const to = all[(all.indexOf(focused) + (forward ? 1 : -1) + all.length) % all.length];
      focus(to);
      to?.click();
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
    if (!worded(name) || !name) refuse("no key");
    const parts = name === "+" ? ["+"] : name.split("+").map(part => part.trim() || "+");
    const held = new Set();
    let key = parts.pop();
    key = ALIASES[key] ?? key;
    for (const part of parts) {
      const modifier = ALIASES[part] ?? part;
      if (!["Control", "Shift", "Alt", "Meta"].includes(modifier)) refuse(`there is no key '${name.slice(0, 40)}'`);
      held.add(modifier);
    }
    if ([...key].length > 1 && !KEYS[key]) refuse(`there is no key '${name.slice(0, 40)}'`);
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
    if (free && last && (focused instanceof HTMLButtonElement || ["checkbox", "radio", "button", "submit"].includes(focused?.type))) focused.click();
  };

  // ---- the actions
  const roll = (element, across, down) => {
    const box = scrollable(element);
    if (!box) return false;
    scrolling(box, () => box.scrollBy({ left: across, top: down, behavior: "instant" }));
    return true;
  };
  const scrollable = element => ancestors(element).find(one => {
    if (one === document.documentElement) return true;
    const style = getComputedStyle(one);
    return (one.scrollHeight > one.clientHeight && /auto|scroll/.test(style.overflowY)) ||
      (one.scrollWidth > one.clientWidth && /auto|scroll/.test(style.overflowX));
  });
  const fieldOf = found => {
    if (found.point) {
      clickAt(found.point);
      return document.activeElement;
    }
    const { element } = found;
    const field = textual(element) || element.isContentEditable || ["date", "time"].includes(element.type) ? element
      : element.control ?? element.querySelector("input:not([type=hidden]),textarea,[contenteditable=true]") ?? element;
    if (field.readOnly) refuse("it is read-only");
    if (field.disabled) refuse("it is disabled");
    clickAt(reach(field));
    return document.activeElement;
  };
  const two = value => String(value).padStart(2, "0");
  const dated = (kind, text) => {
    let parts;
    if (kind === "date") {
      if ((parts = /^\s*(\d{4})-(\d{1,2})-(\d{1,2})\s*$/.exec(text))) return `${parts[1]}-${two(parts[2])}-${two(parts[3])}`;
      if ((parts = /^\s*(\d{1,2})\/(\d{1,2})\/(\d{4})\s*$/.exec(text))) return `${parts[3]}-${two(parts[1])}-${two(parts[2])}`;
      return null;
    }
    parts = /^\s*(\d{1,2}):(\d{2})\s*([ap])\.?m\.?\s*$/i.exec(text);
    if (parts) return Number(parts[1]) > 12 ? null : `${two(Number(parts[1]) % 12 + (parts[3].toLowerCase() === "p" ? 12 : 0))}:${parts[2]}`;
    parts = /^\s*(\d{1,2}):(\d{2})\s*$/.exec(text);
    return parts ? `${two(parts[1])}:${parts[2]}` : null;
  };
  const type = (found, text) => {
    if (!worded(text)) refuse(`a text is a string of at most ${MOST_TEXT} characters`);
    const field = fieldOf(found);
    if (field?.type === "date" || field?.type === "time") {
      const value = text === "" ? "" : dated(field.type, text);
      if (value === null) refuse(`it takes no such ${field.type}`);
      field.value = value;
      for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, { bubbles: true }));
      if (field.value !== value) refuse(`it takes no such ${field.type}`);
      return OK;
    }
    if (!editable(field)) refuse(field?.readOnly ? "it is read-only" : "no text can be typed there");
    selectAll();
    const none = new Set();
    if (text === "") stroke("Backspace");
    for (const one of text) {
      if (one === "\n" || one === "\t") stroke(one === "\n" ? "Enter" : "Tab");
      else character(one, none);
    }
    return OK;
  };
  const select = (found, option) => {
    if (!worded(option)) refuse("an option is a text");
    const element = found.element ?? hit(found.point.x, found.point.y);
    const list = element?.closest("select") ?? element?.control;
    if (!(list instanceof HTMLSelectElement)) refuse("it is no list of options");
    if (list.disabled) refuse("it is disabled");
    const all = [...list.options];
    const one = all.find(each => see.tidy(each.text) === see.tidy(option)) ??
      all.find(each => see.tidy(each.text).toLowerCase() === see.tidy(option).toLowerCase()) ?? all.find(each => each.value === option);
    if (!one) refuse(`there is no option '${see.tidy(option).slice(0, 60)}'`, "not found");
    clickAt(reach(list));
    const before = list.selectedIndex;
    if (list.multiple) one.selected = true;
    else list.selectedIndex = one.index;
    if (list.multiple || before !== one.index) for (const name of ["input", "change"]) list.dispatchEvent(new Event(name, { bubbles: true }));
    return OK;
  };
  const check = (found, on) => {
    const element = found.element ?? hit(found.point.x, found.point.y);
    const box = element?.type === "checkbox" || element?.type === "radio" ? element
      : element?.closest("label")?.control ?? element?.querySelector("input[type=checkbox],input[type=radio]");
    if (!box || (box.type !== "checkbox" && box.type !== "radio")) refuse("it is no checkbox");
    if (box.disabled) refuse("it is disabled");
    if (box.checked !== on) clickAt(shown(box) && boxes(box).length ? reach(box) : reach(box.labels[0] ?? box));
    return box.checked === on ? OK : ["refused", `it does not become ${on ? "checked" : "unchecked"}`];
  };
  // The way of a drag. Over an element it ends a little past the middle, first across and then down: only then does what
  // is sorted take the place of what it is dropped on.
  const way = (from, to, past) => {
    const points = Array.from({ length: STEPS - 1 }, (_, step) => {
      const part = (step + 1) / (STEPS - 1);
      return { x: from.x + part * (to.x - from.x), y: from.y + part * (to.y - from.y) };
    });
    const x = to.x + (past ? 2 * (Math.sign(Math.round(to.x - from.x)) || 1) : 0);
    const y = to.y + (past ? 2 * (Math.sign(Math.round(to.y - from.y)) || 1) : 0);
    return [...points, { x, y: to.y }, ...(past ? [{ x, y }] : [])];
  };
  // The corner by which a text area is made larger is the browser's own; it answers to no event.
  const corner = (element, point) => {
    if (!(element instanceof HTMLTextAreaElement) || getComputedStyle(element).resize === "none") return false;
    const box = element.getBoundingClientRect();
    return box.right - point.x <= 16 && box.bottom - point.y <= 16;
  };
  const drag = async (from, points) => {
    const pressed = press(from);
    const grows = pressed.free && corner(pressed.element, from);
    const box = grows ? pressed.element.getBoundingClientRect() : null;
    for (const point of points) {
      move(point, 1);
      if (grows) {
        pressed.element.style.width = `${Math.max(15, box.width + point.x - from.x)}px`;
        pressed.element.style.height = `${Math.max(15, box.height + point.y - from.y)}px`;
      } else if (pressed.caret && pressed.element.isConnected && getComputedStyle(pressed.element).userSelect !== "none") {
        choose(pressed.caret, caret(point));
      }
      await clock.advance(MOMENT);
    }
    release(pressed.element, points.at(-1));
    return OK;
  };
  const double = point => {
    clickAt(point);
    const { element, free, caret: there } = press(point, 2);
    if (free && there) { getSelection().modify("move", "backward", "word"); getSelection().modify("extend", "forward", "word"); selected(); }
    const common = release(element, point, 2);
    if (common) mouse(common, "dblclick", point, { detail: 2 });
    return OK;
  };
  const scroll = (found, by) => {
    if (!Array.isArray(by) || by.length !== 2 || !by.every(number)) refuse("by is two numbers of pixels");
    const element = found ? found.element ?? hit(found.point.x, found.point.y) : document.getElementById("area") ?? document.body;
    if (!element) refuse("there is nothing", "not found");
    if (!shown(element)) refuse("it is not shown now");
    const box = element.getBoundingClientRect();
    const free = mouse(element, "wheel", { x: box.left + box.width / 2, y: box.top + box.height / 2 }, { deltaX: by[0], deltaY: by[1] });
    if (free && !roll(element, by[0], by[1])) refuse("it cannot be scrolled");
    return OK;
  };
  const option = found => found.element instanceof HTMLOptionElement;
  const click = found => {
    if (option(found)) return select({ element: found.element.closest("select") }, found.element.text);
    clickAt(at(found));
    return OK;
  };
  const doing = {
    click: (act, find) => click(find(act.on)),
    double: (act, find) => double(at(find(act.on))),
    hover: (act, find) => { move(at(find(act.on))); return OK; },
    type: (act, find) => type(find(act.on), act.text),
    select: (act, find) => select(find(act.on), act.option),
    check: (act, find) => check(find(act.on), true),
    uncheck: (act, find) => check(find(act.on), false),
    drag: (act, find) => {
      const [one, other] = [find(act.on), find(act.to)];
      const first = at(one);
      const to = other.point ?? centre(other.element);
      const from = one.point ?? open(one.element) ?? first;
      return drag(from, way(from, to, !other.point));
    },
    scroll: (act, find) => scroll(act.on == null ? null : find(act.on), act.by),
    key: (act, find) => {
      if (act.on != null) {
        const found = find(act.on);
        if (found.point) clickAt(found.point);
        else focus(focusable(found.element) ?? found.element);
      }
      stroke(act.key);
      return OK;
    },
    wait: act => {
      if (!Number.isFinite(act.ms) || act.ms < 0 || act.ms > LONGEST) refuse(`ms is a number of milliseconds, at most ${LONGEST}`);
      return OK;
    },
  };
  // Carry out one action; numbers of elements are those of the page as it was `seen`.
  const carryOut = async (act, seen) => {
    try {
      if (act === null || typeof act !== "object" || !Object.hasOwn(doing, act.do)) refuse("there is no such action");
      return await doing[act.do](act, target => resolve(target, seen));
    } catch (error) {
      if (error instanceof Refusal) return [error.status, error.message];
      throw error;
    }
  };

  // ---- what an oracle means, in the words of a plan
  const rounded = point => ({ x: Math.round(point.x + scrollX), y: Math.round(point.y + scrollY) });
  const ends = range => {
    const rects = [...range.getClientRects()].filter(box => box.width > 0);
    const [head, tail] = [rects[0], rects.at(-1)];
    return [{ x: head.left, y: head.top + head.height / 2 }, { x: tail.right, y: tail.top + tail.height / 2 }];
  };
  const describe = (target, seen) => {
    if (target?.text instanceof Range) {
      const [from, to] = ends(target.text);
      return rounded({ x: (from.x + to.x) / 2, y: from.y });
    }
    if (target?.element instanceof Element) {
      const box = target.element.getBoundingClientRect();
      return rounded({ x: box.left + target.x, y: box.top + target.y });
    }
    if (!(target instanceof Element)) return target;
    const known = seen.elements.find(one => one.element === target);
    if (known) return { ref: known.ref };
    const now = see.look();
    const one = now.elements.find(each => each.element === target);
    if (one?.name) {
      const found = see.find(now, one.role, one.name);
      const place = found.indexOf(one);
      if (place >= 0) return found.length > 1 ? { role: one.role, name: one.name, nth: place + 1 } : { role: one.role, name: one.name };
    }
    return rounded(reach(target));
  };
  const describeAct = (act, seen) => {
    const told = { ...act };
    if (act.do === "drag" && act.on?.text instanceof Range && act.to === undefined) {
      [told.on, told.to] = ends(act.on.text).map(rounded);
      return told;
    }
    for (const key of ["on", "to"]) if (act[key] != null) told[key] = describe(act[key], seen);
    return told;
  };
  plumbline.hand = { carryOut, describe: describeAct, reset, rest, settle };
})();

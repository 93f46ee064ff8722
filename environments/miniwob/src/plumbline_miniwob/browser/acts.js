// Carries out actions by the hand, on what the page shows. Each action is an object (see ../actions.py), each ends as
// [status, reason]; status is "ok", "not found", "ambiguous" or "refused".
(() => {
  const { see, clock, hand } = plumbline;
  const {
    page, Refusal, refuse, hit, mouse, move, press, release, clickAt, focusable, focus, caret, mark, selected, textual, editable,
    shown, boxes, open, reach, centre, roll, stroke, character, selectAll, pick, choose, tick,
  } = hand;
  Object.assign(page, {
    content: () => document.getElementById("area") ?? document.body, cover: "#sync-task-cover", apart: "#reward-display, #reward-display *",
  });
  const OK = ["ok", ""];
  const MOST_TEXT = 1000;
  const FAR = 10000;
  const LONGEST = 60000;
  const STEPS = 9;
  const MOMENT = 10;

  // ---- where a target is
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

  // ---- the actions
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
  const focused = () => {
    const element = document.activeElement ?? document.body;
    return element === document.body ? refuse("nothing has the focus") : { element };
  };
  const type = (found, text) => {
    if (!worded(text)) refuse(`a text is a string of at most ${MOST_TEXT} characters`);
    const field = fieldOf(found);
    if (field?.type === "date" || field?.type === "time") {
      const value = text === "" ? "" : dated(field.type, text);
      if (value === null) refuse(`it takes no such ${field.type}`);
      pick(field, value);
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
    choose(one);
    return OK;
  };
  const check = (found, on) => {
    const element = found.element ?? hit(found.point.x, found.point.y);
    const box = element?.type === "checkbox" || element?.type === "radio" ? element
      : element?.closest("label")?.control ?? element?.querySelector("input[type=checkbox],input[type=radio]");
    if (!box || (box.type !== "checkbox" && box.type !== "radio")) refuse("it is no checkbox");
    if (box.disabled) refuse("it is disabled");
    tick(box, on, () => clickAt(shown(box) && boxes(box).length ? reach(box) : reach(box.labels[0] ?? box)));
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
        mark(pressed.caret, caret(point));
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
    const element = found ? found.element ?? hit(found.point.x, found.point.y) : page.content();
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
    type: (act, find) => type(act.on == null ? focused() : find(act.on), act.text),
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
  plumbline.acts = { carryOut, describe: describeAct };
})();

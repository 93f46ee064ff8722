// The mouse and what has the focus: events with coordinates, as a user's, and points of elements that can be reached.
(() => {
  const plumbline = (window.plumbline ??= {});
  // What a page has of its own: where its content lies, what covers it at the end, what no key comes to.
  const page = { content: () => document.body, cover: ":not(*)", apart: ":not(*)" };
  class Refusal extends Error {
    constructor(status, reason) { super(reason); this.status = status; }
  }
  const refuse = (reason, status = "refused") => { throw new Refusal(status, reason); };

  const tell = (control, ...types) => { for (const type of types) control.dispatchEvent(new Event(type, { bubbles: true })); };

  let pointer, over, edited;
  const reset = () => { pointer = { x: 0, y: 0 }; over = null; edited = null; };
  reset();

  const textual = element => element instanceof HTMLTextAreaElement ||
    (element instanceof HTMLInputElement && !["checkbox", "radio", "button", "submit", "reset", "range", "color", "file", "image", "date", "time"].includes(element.type));
  const editable = element => element && (textual(element) ? !element.readOnly && !element.disabled : element.isContentEditable);
  const begin = () => {
    const focused = document.activeElement;
    if (textual(focused) && edited?.element !== focused) edited = { element: focused, before: focused.value };
  };

  // ---- the mouse
  const hit = (x, y) => {
    const found = document.elementFromPoint(x, y);
    return found?.matches(page.cover) ? document.body : found;
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
    if (edited && edited.element.isConnected && edited.before !== edited.element.value) tell(edited.element, "change");
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
  const mark = (from, to) => {
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
    let there = null;
    if (free) {
      const target = focusable(element);
      focus(target);
      there = caret(point);
      if (target && textual(target)) { if (there?.node === target) mark(there, there); }
      else if (!element.closest("button") && getComputedStyle(element).userSelect !== "none") mark(there, there);
    }
    return { element, free, caret: there };
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
  // A click that has no place, as a key gives it: nothing is drawn for it, and nothing can lie over it.
  const push = control => { focus(control); control.click(); };

  // ---- points that the mouse can reach
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

  plumbline.mouse = {
    page, Refusal, refuse, tell, reset, hit, mouse, move, rest, press, release, clickAt, push, focusable, focus, settle, begin, caret, mark,
    selected, textual, editable, shown, boxes, open, reach, centre, roll, scrollable, ancestors,
  };
})();

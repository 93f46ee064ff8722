// The page's time, which stands still unless it is advanced, and what else a page must not decide for itself: dialogs
// are accepted and noted, no window is opened, and no link or form leads away from the page.
// Installed before the page's own scripts.
(() => {
  const plumbline = (window.plumbline = { oracles: {}, shared: {}, notes: [], listeners: new WeakMap(), drawn: new WeakMap() });

  // What a page draws while it is loaded is the same in every load; episodes seed it again.
  let state = 20260105;
  Math.random = () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return state / 2147483648;
  };
  const stopwatch = performance.now.bind(performance);

  const START = Date.UTC(2026, 0, 5, 12);
  // Animations go by the time, so that a slow screen shows the same at the end, for a third of the work.
  const FRAME = 50;
  const CALLS = 20000;
  let now = 0;
  let next = 1;
  const due = new Map();

  const plan = (run, wait, every, args) => {
    const delay = Math.max(every ? 4 : 1, Number(wait) || 0);
    const id = next++;
    due.set(id, { id, at: now + delay, every: every ? delay : 0, run: () => run(...args) });
    return id;
  };
  const drop = id => { due.delete(Number(id)); };
  window.setTimeout = (run, wait, ...args) => plan(run, wait, false, args);
  window.setInterval = (run, wait, ...args) => plan(run, wait, true, args);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = drop;
  window.requestAnimationFrame = run => {
    const id = next++;
    due.set(id, { id, at: (Math.floor(now / FRAME) + 1) * FRAME, every: 0, run: () => run(now) });
    return id;
  };
  performance.now = () => now;

  const Real = Date;
  function Virtual(...args) {
    if (!new.target) return new Real(START + now).toString();
    return args.length ? new Real(...args) : new Real(START + now);
  }
  Virtual.prototype = Real.prototype;
  Real.prototype.constructor = Virtual;
  Virtual.now = () => START + now;
  Virtual.parse = Real.parse;
  Virtual.UTC = Real.UTC;
  window.Date = Virtual;

  const note = text => { if (plumbline.notes.length < 20) plumbline.notes.push(String(text).slice(0, 200)); };
  const first = until => {
    let found = null;
    for (const one of due.values()) {
      if (one.at <= until && (!found || one.at < found.at || (one.at === found.at && one.id < found.id))) found = one;
    }
    return found;
  };
  // Let time pass: what falls due runs in its order, and after each the promises and observers that wait for it. Returns
  // how much has run.
  const advance = async milliseconds => {
    const until = now + milliseconds;
    let calls = 0;
    for (let one = first(until); one; one = first(until)) {
      if (++calls > CALLS) throw new Error("the page's timers do not come to an end");
      now = Math.max(now, one.at);
      if (one.every) one.at = now + one.every;
      else due.delete(one.id);
      try { one.run(); } catch (error) { note(`error: ${error.message}`); }
      await null;
    }
    now = until;
    await null;
    return calls;
  };
  // Let time pass at once: what falls due in it runs once, at its end, and animations see nothing of their middle.
  const skip = async milliseconds => { now += milliseconds; await advance(0); };
  // Back to the start: what an episode has begun is dropped; what the page began when it was loaded goes on.
  let loaded = 0;
  const reset = () => {
    loaded ||= next;
    for (const one of [...due.values()]) {
      if (one.id >= loaded) due.delete(one.id);
      else one.at = Math.max(1, one.at - now);
    }
    now = 0;
  };
  plumbline.clock = { advance, skip, reset, now: () => now, real: stopwatch };

  // Every line of it would be a message to whoever drives the browser.
  for (const name of ["log", "info", "warn", "debug"]) console[name] = () => undefined;
  window.addEventListener("error", event => note(`error: ${event.message}`));
  window.alert = text => note(`alert: ${text}`);
  window.confirm = text => { note(`confirm: ${text}`); return true; };
  window.prompt = (text, given) => { note(`prompt: ${text}`); return given ?? ""; };
  window.open = address => { note(`window: ${address}`); return null; };
  window.print = window.close = () => undefined;
  window.addEventListener("click", event => {
    if (event.target instanceof Element && event.target.closest("a[href]")) event.preventDefault();
  }, true);
  window.addEventListener("submit", event => event.preventDefault(), true);
  // These come with the browser's next frame, at a time of its own; the hand sends them where they belong.
  for (const late of ["scroll", "select", "selectionchange"]) {
    window.addEventListener(late, event => { if (event.isTrusted) event.stopImmediatePropagation(); }, true);
  }

  // Which elements listen to what: what has no role but answers to the mouse is shown as something to click.
  const add = EventTarget.prototype.addEventListener;
  const remove = EventTarget.prototype.removeEventListener;
  EventTarget.prototype.addEventListener = function (type, listener, options) {
    if (this instanceof Element && listener) {
      const types = plumbline.listeners.get(this) ?? new Map();
      plumbline.listeners.set(this, types);
      types.set(type, (types.get(type) ?? new Set()).add(listener));
    }
    return add.call(this, type, listener, options);
  };
  EventTarget.prototype.removeEventListener = function (type, listener, options) {
    if (this instanceof Element) plumbline.listeners.get(this)?.get(type)?.delete(listener);
    return remove.call(this, type, listener, options);
  };
  // The corners of what is drawn by lines, in pixels of the canvas.
  const canvas = CanvasRenderingContext2D.prototype;
  for (const name of ["moveTo", "lineTo", "clearRect"]) {
    const draw = canvas[name];
    canvas[name] = function (x, y, ...rest) {
      const at = this.getTransform().transformPoint({ x, y });
      const so = plumbline.drawn.get(this.canvas) ?? [];
      plumbline.drawn.set(this.canvas, name === "clearRect" ? [] : [...so, [at.x, at.y]].slice(-100));
      return draw.call(this, x, y, ...rest);
    };
  }
  // What moves by itself moves by this clock or not at all.
  document.addEventListener("DOMContentLoaded", () => {
    const style = document.createElement("style");
    style.textContent = "*, *::before, *::after { transition: none !important; animation: none !important; }";
    document.head.append(style);
  });
  plumbline.listens = (element, ...types) => types.some(type => plumbline.listeners.get(element)?.get(type)?.size);
  plumbline.note = note;
})();

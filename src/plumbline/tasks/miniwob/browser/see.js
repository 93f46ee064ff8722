// What the page shows: elements with a number, a role and a name, and the text that a model reads.
(() => {
  const SKIPPED = new Set(["reward-display", "sync-task-cover", "click-canvas", "query"]);
  const SILENT = new Set(["SCRIPT", "STYLE", "LINK", "META", "TITLE", "HEAD", "OPTION", "DEFS", "TEMPLATE", "NOSCRIPT"]);
  const LONG = 600;
  const tidy = text => text.replace(/\s+/g, " ").trim();
  const short = (text, most = LONG) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const unquoted = text => tidy(text).replace(/\s*:$/, "");

  const COLOURS = {
    black: [0, 0, 0], white: [255, 255, 255], red: [255, 0, 0], green: [0, 128, 0], lime: [0, 255, 0],
    blue: [0, 0, 255], yellow: [255, 255, 0], orange: [255, 165, 0], purple: [128, 0, 128], pink: [255, 192, 203],
    magenta: [255, 0, 255], aqua: [0, 255, 255], grey: [128, 128, 128], olive: [128, 128, 0], cyan: [0, 255, 255],
    brown: [165, 42, 42], teal: [0, 128, 128], navy: [0, 0, 128],
  };
  const colour = value => {
    const parts = /rgba?\(([^)]*)\)/.exec(value)?.[1].split(",").map(Number);
    if (!parts || parts[3] === 0) return "";
    let best = "", least = Infinity;
    for (const [name, [r, g, b]] of Object.entries(COLOURS)) {
      const distance = (parts[0] - r) ** 2 + (parts[1] - g) ** 2 + (parts[2] - b) ** 2;
      if (distance < least) { least = distance; best = name; }
    }
    return best;
  };

  const ROLES = {
    A: "link", BUTTON: "button", TEXTAREA: "textbox", SELECT: "select", IMG: "image", LI: "item",
    circle: "circle", rect: "rectangle", polygon: "polygon", path: "path", text: "text", line: "line", ellipse: "ellipse",
    image: "image", polyline: "polyline",
  };
  const INPUTS = {
    button: "button", submit: "button", reset: "button", checkbox: "checkbox", radio: "radio", range: "slider",
    password: "password", date: "date", time: "time", number: "number", image: "button",
  };
  const NAMED = new Set([
    "button", "link", "tab", "menuitem", "checkbox", "radio", "slider", "option", "treeitem", "switch", "gridcell",
  ]);
  const MOUSE = ["click", "mousedown", "mouseup", "dblclick", "mouseenter", "mouseover", "mousemove", "pointerdown"];
  const delegated = element => {
    const data = window.jQuery?._data;
    if (!data) return false;
    for (let up = element.parentElement; up && up !== document.body; up = up.parentElement) {
      const events = data(up, "events");
      if (events && MOUSE.some(type => events[type]?.some?.(one => one.selector && element.matches(one.selector)))) return true;
    }
    return false;
  };
  const SHAPES = new Set(["circle", "rect", "polygon", "path", "line", "ellipse", "image", "polyline", "text"]);
  const svg = element => element instanceof SVGElement && element.tagName !== "svg";
  const polygon = element => {
    const points = (element.getAttribute("points") ?? "").trim().split(/[\s,]+/).length / 2;
    return { 3: "triangle", 4: "quadrilateral", 5: "pentagon", 6: "hexagon", 7: "heptagon", 8: "octagon" }[points] ?? "polygon";
  };
  const roleOf = element => {
    if (svg(element)) {
      if (!SHAPES.has(element.tagName)) return "";
      if (element.tagName === "polygon") return polygon(element);
      if (element.tagName === "rect") {
        const box = element.getBoundingClientRect();
        return Math.abs(box.width - box.height) < 1 ? "square" : "rectangle";
      }
      return ROLES[element.tagName];
    }
    if (element.tagName === "INPUT") return element.type === "hidden" ? "" : INPUTS[element.type] ?? "textbox";
    if (["BUTTON", "TEXTAREA", "SELECT"].includes(element.tagName)) return ROLES[element.tagName];
    const said = element.getAttribute("role");
    if (NAMED.has(said)) return said === "gridcell" ? "cell" : said;
    if (element.tagName === "A") return "link";
    if (element.isContentEditable && !element.parentElement?.isContentEditable) return "textbox";
    if (element.classList.contains("ui-slider-handle")) return "slider";
    if (element.classList.contains("ui-sortable")) return "";
    if (!answers(element)) return "";
    if (element.tagName === "IMG" || !tidy(element.textContent)) return "icon";
    return "item";
  };
  const answers = element =>
    element.parentElement?.classList.contains("ui-sortable") || element.onclick || plumbline.listens(element, ...MOUSE) || delegated(element) ||
    element.classList.contains("ui-sortable-handle") || element.classList.contains("ui-draggable-handle") ||
    (getComputedStyle(element).cursor === "pointer" && element.parentElement &&
      getComputedStyle(element.parentElement).cursor !== "pointer");

  const hidden = (element, style) => {
    if (style.display === "none" || style.visibility !== "visible" || Number(style.opacity) === 0) return true;
    if (style.display === "contents" || element.tagName === "AREA") return false;
    const box = element.getBoundingClientRect();
    if (box.width === 0 && box.height === 0 && !element.children.length) return true;
    // What its container cuts off altogether, without a way to scroll there.
    if ((box.width === 0 || box.height === 0) && style.overflow !== "visible") return true;
    return box.right < 0 || box.bottom < -5000;
  };
  const called = element => {
    const marked = element.getAttribute("aria-label") || element.getAttribute("alt") || element.getAttribute("title");
    if (marked) return tidy(marked);
    const label = element.labels?.[0];
    if (label) return unquoted(label.innerText);
    if (element.tagName === "INPUT" && INPUTS[element.type] === "button") return tidy(element.value);
    return "";
  };
  const byClass = element => {
    const words = typeof element.className === "string" ? element.className.split(/\s+/) : [];
    const word = words.find(one => one && !/^(ui-|active|selected|clicked|hide|show|bold)/.test(one)) ?? element.id;
    return tidy((word ?? "").replace(/[-_]+/g, " "));
  };
  const SELECTED = /(^|[\s-])(active|selected|clicked|highlighted|checked)($|\s)/;
  const statesOf = element => {
    const states = [];
    if (element.checked) states.push("checked");
    if (element.disabled) states.push("disabled");
    if (element.readOnly) states.push("read-only");
    if (element.getAttribute("aria-expanded") === "true") states.push("open");
    else if (element.getAttribute("aria-expanded") === "false") states.push("closed");
    if (element.getAttribute("aria-selected") === "true" || (typeof element.className === "string" &&
      SELECTED.test(element.className.replace(/ui-state-default/g, "")))) states.push("selected");
    if (document.activeElement === element) states.push("focused");
    return states;
  };
  const valueOf = (element, role) => {
    if (role === "select") return [...element.selectedOptions].map(one => tidy(one.text)).join(", ");
    if (role === "checkbox" || role === "radio" || role === "button") return "";
    if (element.tagName === "INPUT" || element.tagName === "TEXTAREA") return element.value;
    if (element.isContentEditable) return tidy(element.innerText);
    return "";
  };
  const place = box => ({
    x: Math.round(box.left + box.width / 2 + scrollX), y: Math.round(box.top + box.height / 2 + scrollY),
  });

  // Look at the page: its elements in their order, and lines of text in which they stand.
  const look = () => {
    const elements = [];
    const lines = [];
    let line = [];
    const taken = new Set();
    const flush = () => { if (line.length) lines.push(line); line = []; };
    const say = (text, label) => {
      const clean = tidy(text);
      if (!clean) return;
      const before = line.at(-1);
      if (before?.wants && !before.name) { before.name = unquoted(clean); return; }
      if (before && !before.ref && !before.bar && !label && !before.label) before.text += " " + clean;
      else line.push({ text: clean, label });
    };
    const put = (element, role, box, name) => {
      const field = ["textbox", "password", "date", "time", "number", "select"].includes(role);
      if (!name && field) {
        const before = line.at(-1);
        if (before && before.text !== undefined) { name = unquoted(before.text); line.pop(); }
        else if (!line.length && lines.length) {
          const last = lines.at(-1);
          if (last.length === 1 && last[0].text && (last[0].label || /:$/.test(last[0].text))) {
            name = unquoted(last[0].text);
            lines.pop();
          }
        }
        if (!name && element.placeholder) name = tidy(element.placeholder);
      }
      const one = {
        ref: elements.length + 1, element, role, name, value: valueOf(element, role), states: statesOf(element),
        box: [Math.round(box.left + scrollX), Math.round(box.top + scrollY), Math.round(box.width), Math.round(box.height)],
        at: place(box), shape: svg(element), wants: !name && (role === "checkbox" || role === "radio"),
      };
      if (one.shape) one.look = shapeLook(element, role, box);
      elements.push(one);
      line.push(one);
      return one;
    };
    const shapeLook = (element, role, box) => {
      const style = getComputedStyle(element);
      const paint = role === "line" || style.fill === "none" ? style.stroke : style.fill;
      return [colour(paint), role === "text" ? "" : `${Math.round(box.width)}x${Math.round(box.height)}`].filter(Boolean).join(" ");
    };
    const children = (node, within) => { for (const child of node.childNodes) walk(child, within); };
    const walk = (node, within) => {
      if (node.nodeType === Node.TEXT_NODE) {
        if (!within) say(node.data, node.parentElement.closest("label") !== null);
        return;
      }
      if (!(node instanceof Element) || SILENT.has(node.tagName) || SKIPPED.has(node.id)) return;
      const style = getComputedStyle(node);
      if (hidden(node, style)) return;
      if (node.tagName === "BR") { if (!within) flush(); return; }
      if (node.tagName === "LABEL" && node.control && node.control !== node && !node.contains(node.control)) {
        const other = roleOf(node.control);
        if (other && !hidden(node.control, getComputedStyle(node.control))) return;
      }
      const block = !/^(inline|contents|ruby)/.test(style.display) && !(node instanceof SVGElement);
      const cell = style.display === "table-cell";
      if (block && !cell && !within) flush();
      if (cell && !within && line.length) line.push({ bar: true });
      const role = roleOf(node);
      if (role) enter(node, role, within);
      else children(node, within);
      if (block && !cell && !within) flush();
    };
    const enter = (node, role, within) => {
      const box = node.getBoundingClientRect();
      let name = called(node);
      const container = role === "item" || role === "icon" ? box.width * box.height > 9000 : false;
      if (container && node.children.length) { children(node, within); return; }
      if (role === "select" || node.tagName === "INPUT" || role === "textbox") {
        const label = node.closest("label");
        if (label && !name) name = unquoted(label.innerText);
        put(node, role, box, name);
        return;
      }
      if (!name) name = short(tidy(node.innerText ?? node.textContent), 200);
      if (!name && role === "icon") name = byClass(node);
      put(node, role, box, name);
      for (const child of node.children) walk(child, true);
    };
    children(document.body, false);
    flush();
    return { elements, lines };
  };

  const quote = text => `'${text}'`;
  const written = (one, crowd) => {
    const parts = [`[${one.ref}]`, one.role];
    if (one.name) parts.push(quote(one.name));
    if (one.look) parts.push(one.look);
    if (one.value) parts.push(`= ${quote(short(one.value))}`);
    if (one.role === "select") {
      parts.push(`of ${[...one.element.options].map(option => quote(tidy(option.text))).join(", ")}`);
    }
    if (one.shape || (!one.name && crowd > 1)) parts.push(`at (${one.at.x}, ${one.at.y})`);
    if (one.states.length) parts.push(`(${one.states.join(", ")})`);
    return parts.join(" ");
  };
  const textOf = seen => {
    const crowd = {};
    for (const one of seen.elements) if (!one.name) crowd[one.role] = (crowd[one.role] ?? 0) + 1;
    return seen.lines.map(line => line.map(piece =>
      piece.bar ? "|" : piece.ref ? written(piece, crowd[piece.role]) : short(piece.text)).join(" ")).join("\n");
  };

  const same = (one, other) => one.toLowerCase() === other.toLowerCase();
  // The elements that are called so now, in their order; an exact name goes before one in other letters.
  const find = (seen, role, name) => {
    const fit = seen.elements.filter(one => !role || one.role === role);
    const exact = fit.filter(one => one.name === name);
    return exact.length ? exact : fit.filter(one => same(one.name, name));
  };
  plumbline.see = { look, textOf, find, tidy, colour };
})();

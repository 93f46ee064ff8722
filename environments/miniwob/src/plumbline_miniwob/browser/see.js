// What the page shows: elements with a number, a role and a name, and the text that a model reads.
// An element is { ref, element, role, name, value, states, box: [left, top, width, height], at: {x, y} }. Roles: button,
// link, checkbox, radio, textbox, textarea, password, number, date, time, select, slider, tab, section, menuitem, option,
// cell, item (anything else with words that answers to the mouse), icon (without words), box (only a colour), area (large),
// image, and the shapes of drawings: circle, rectangle, triangle, ..., line, path, text.
// Lines of text are the lines that one sees. Values of more than LONG characters are shortened in their middle.
(() => {
  const SKIPPED = new Set(["reward-display", "sync-task-cover", "click-canvas", "query"]);
  const SILENT = new Set(["SCRIPT", "STYLE", "LINK", "META", "TITLE", "HEAD", "OPTION", "DEFS", "TEMPLATE", "NOSCRIPT"]);
  const LONG = 260;
  const WIDE = 200, HIGH = 240;
  const tidy = text => text.replace(/\s+/g, " ").trim();
  const short = (text, most = LONG) =>
    text.length > most ? `${text.slice(0, Math.ceil(most / 2))} … ${text.slice(-Math.floor(most / 3))}` : text;
  const bare = text => tidy(text).replace(/\s*:$/, "");

  // ---- colours
  const HUES = [[15, "red"], [45, "orange"], [70, "yellow"], [165, "green"], [195, "cyan"], [260, "blue"], [290, "purple"], [330, "magenta"], [361, "red"]];
  const PLAIN = {
    "0,0,0": "black", "255,255,255": "white", "128,128,128": "grey", "255,0,0": "red", "0,128,0": "green", "0,255,0": "lime",
    "0,0,255": "blue", "255,255,0": "yellow", "255,165,0": "orange", "128,0,128": "purple", "255,192,203": "pink",
    "255,0,255": "magenta", "0,255,255": "cyan", "128,128,0": "olive", "0,128,128": "teal", "0,0,128": "navy", "165,42,42": "brown",
  };
  const colour = (value, written) => {
    if (/^[a-z]+$/.test(written ?? "") && !/^(none|transparent|inherit|initial|currentcolor)$/.test(written)) return written;
    const parts = /rgba?\(([^)]*)\)/.exec(value)?.[1].split(",").map(Number);
    if (!parts || parts[3] === 0) return "";
    const [red, green, blue] = parts;
    if (PLAIN[`${red},${green},${blue}`]) return PLAIN[`${red},${green},${blue}`];
    const most = Math.max(red, green, blue), least = Math.min(red, green, blue), wide = most - least;
    const light = (most + least) / 510;
    if (wide < 14) return light < 0.15 ? "black" : light > 0.92 ? "white" : "grey";
    let hue = most === red ? (green - blue) / wide : most === green ? 2 + (blue - red) / wide : 4 + (red - green) / wide;
    hue = (hue * 60 + 360) % 360;
    const name = HUES.find(([end]) => hue < end)[1];
    return light < 0.3 ? `dark ${name}` : light > 0.75 ? `light ${name}` : name;
  };

  const hex = value => `#${value.match(/\d+/g).slice(0, 3).map(part => Number(part).toString(16).padStart(2, "0")).join("")}`;

  // ---- roles
  const INPUTS = {
    button: "button", submit: "button", reset: "button", image: "button", checkbox: "checkbox", radio: "radio",
    range: "slider", password: "password", date: "date", time: "time", number: "number",
  };
  const TAGS = { BUTTON: "button", TEXTAREA: "textarea", SELECT: "select" };
  const SAID = new Set(["button", "link", "tab", "menuitem", "checkbox", "radio", "slider", "option", "treeitem", "switch"]);
  const FIELDS = new Set(["textbox", "textarea", "password", "date", "time", "number", "select"]);
  const SHAPES = { circle: "circle", ellipse: "ellipse", rect: "rectangle", polygon: "polygon", polyline: "line", line: "line", path: "path", text: "text", image: "image" };
  const CORNERS = { 3: "triangle", 4: "quadrilateral", 5: "pentagon", 6: "hexagon", 7: "heptagon", 8: "octagon" };
  const MOUSE = ["click", "mousedown", "mouseup", "dblclick", "mouseenter", "mouseover", "mousemove", "pointerdown"];
  // Names that neither words nor a label give, for pages where much depends on them.
  const HOUR = element => {
    const hour = tidy(element.closest(".hour").querySelector(".hour-label").textContent);
    return element.previousElementSibling ? hour.replace(/(am|pm)/, ":30$1") : hour;
  };
  const SHADE = element => {
    const [name, shades] = Object.entries(window.COLOR_MAP ?? {}).find(([, all]) => all.includes(element.dataset.value)) ?? [];
    return name ? [name, `light ${name}`, `pale ${name}`, `dark ${name}`, `very dark ${name}`][[0, 2, 1, 3, 4].indexOf(shades.indexOf(element.dataset.value))] : "";
  };
  const HINTS = [
    [".half-hour", HOUR],
    [".ttt-row > [data-index]", one => `row ${Math.floor(one.dataset.index / 3) + 1} column ${one.dataset.index % 3 + 1}`],
    [".ui-spinner-up", () => "up"], [".ui-spinner-down", () => "down"],
    [".ql-editor", () => "editor"], [".ql-color .ql-picker-label", () => "color"], [".ql-picker-item[data-value]", SHADE],
    ["[class*=ql-]:is(button)", one => /ql-(\w+)/.exec(one.className)[1]],
    [".ui-resizable-se", () => "corner"], [".hitarea", () => "expand"], [".selectric", () => "dropdown"],
  ];
  // What stands for one thing, whatever it is made of; and what only repeats or serves another.
  const CELLS = ".ttt-row > *, .half-hour";
  const WHOLE = `${CELLS}, .selectric`;
  const MARKED = /highlight-text/;
  const BESIDES = ".hour-label, .event, .selectric-input, .ui-helper-hidden-accessible, desc, .cube-image:not(.active)";
  const svg = element => element instanceof SVGElement && element.tagName !== "svg";
  // Looked up once in a look: styles, and what an element listens to for those within it, as jQuery knows it.
  let styles = new Map(), watched = new Map();
  const styleOf = element => styles.get(element) ?? styles.set(element, getComputedStyle(element)).get(element);
  const watches = element => {
    if (!watched.has(element)) {
      const events = window.jQuery._data(element, "events");
      const all = events ? MOUSE.flatMap(type => events[type] ?? []).map(one => one.selector) : [];
      watched.set(element, all.filter(one => one && CSS.supports(`selector(${one})`)).join(", "));
    }
    return watched.get(element);
  };
  const delegated = element => {
    if (!window.jQuery?._data) return false;
    for (let up = element.parentElement; up && up !== document.body; up = up.parentElement) {
      const where = watches(up);
      if (where && element.matches(where)) return true;
    }
    return false;
  };
  const answers = (element, style) =>
    element.onclick || plumbline.listens(element, ...MOUSE) || delegated(element) ||
    element.matches(".ui-sortable > *") || element.classList.contains("ui-draggable-handle") ||
    (style.cursor === "pointer" && element.parentElement && styleOf(element.parentElement).cursor !== "pointer");
  const roleOf = (element, style) => {
    const tag = element.tagName;
    if (tag === "svg") {
      const bare = answers(element, style) && ![...element.querySelectorAll("*")].some(one => answers(one, styleOf(one)));
      return bare ? "area" : "";
    }
    if (svg(element)) {
      if (tag !== "polygon") return SHAPES[tag] ?? "";
      return CORNERS[(element.getAttribute("points") ?? "").trim().split(/[\s,]+/).length / 2] ?? "polygon";
    }
    if (tag === "INPUT") return element.type === "hidden" ? "" : INPUTS[element.type] ?? "textbox";
    if (TAGS[tag]) return TAGS[tag];
    if (element.matches(CELLS)) return "cell";
    const classes = element.classList;
    if (classes.contains("ui-accordion-header")) return "section";
    if (classes.contains("ui-slider-handle")) return "slider";
    if (classes.contains("ui-resizable-handle")) return classes.contains("ui-resizable-se") && !element.closest(".ui-dialog") ? "icon" : "";
    if (classes.contains("ui-slider") || classes.contains("ui-spinner")) return "";
    const said = element.getAttribute("role");
    if (SAID.has(said)) return said;
    if (tag === "A") return element.firstChild || answers(element, style) ? "link" : "";
    if (element.isContentEditable) return element.parentElement?.isContentEditable ? "" : "textarea";
    if (!answers(element, style)) return "";
    if (!tidy(element.textContent)) {
      const named = byClass(element) || element.title;
      return !named && style.backgroundImage === "none" && colour(style.backgroundColor) ? "box" : "icon";
    }
    return style.textDecorationLine === "underline" ? "link" : "item";
  };

  const isHidden = (element, style) => {
    if (element.matches(BESIDES) || style.display === "none" || Number(style.opacity) === 0) return true;
    if (style.visibility !== "visible") return !element.children.length;
    const box = element.getBoundingClientRect();
    if (svg(element)) {
      if (!SHAPES[element.tagName]) return false;
      const drawing = element.ownerSVGElement.getBoundingClientRect();
      const cut = box.right <= drawing.left || box.left >= drawing.right || box.bottom <= drawing.top || box.top >= drawing.bottom;
      return cut || Math.max(box.width, box.height) < 3 || box.right < 1 || box.bottom < 1 || box.left > WIDE || box.top > HIGH + 300;
    }
    if ((box.width === 0 || box.height === 0) && !element.childNodes.length) return true;
    return (box.width === 0 || box.height === 0) && style.overflow !== "visible";
  };

  // ---- names, values, states
  const marked = element => {
    const hint = HINTS.find(([where]) => element.matches(where));
    if (hint) return hint[1](element);
    const said = element.getAttribute("aria-label") || element.getAttribute("alt") || element.getAttribute("title");
    if (said) return tidy(said);
    if (element.labels?.length) return bare([...element.labels].map(one => one.innerText).join(" "));
    if (element.tagName === "INPUT" && INPUTS[element.type] === "button") return tidy(element.value);
    return "";
  };
  const byClass = element => {
    const words = element.getAttribute("class")?.split(/\s+/) ?? [];
    const word = words.find(one => one && !/^(ui-|active|selected|clicked|hide|show|bold|color$|hover)/.test(one)) ?? element.id;
    return tidy((word ?? "").replace(/[-_]+/g, " "));
  };
  const CHOSEN = /(^|[\s-])(active|selected|clicked|highlighted|checked)($|\s)/;
  // The events that lie on a half hour of a calendar: they have no place in the order of its elements.
  const eventsOn = cell => {
    const { top, bottom } = cell.getBoundingClientRect();
    return [...document.querySelectorAll(".event")].filter(event => {
      const box = event.getBoundingClientRect();
      return box.top < (top + bottom) / 2 && (top + bottom) / 2 < box.bottom;
    }).map(event => event.innerText);
  };
  const statesOf = (element, role) => {
    const states = element.matches(".half-hour") ? eventsOn(element) : [];
    if (element.checked) states.push("checked");
    if (element.disabled) states.push("disabled");
    if (element.readOnly && FIELDS.has(role)) states.push("read-only");
    if (element.multiple) states.push("several");
    const open = role === "tab" ? null : element.getAttribute("aria-expanded");
    if (open) states.push(open === "true" ? "open" : "closed");
    else if (element.getAttribute("aria-selected") === "true" || CHOSEN.test(element.getAttribute("class") ?? "")) states.push("selected");
    if (FIELDS.has(role) && document.activeElement === element) states.push("focused");
    if (role === "menuitem" && element.getAttribute("aria-haspopup") === "true") states.push("submenu");
    if (role === "textarea" && element.scrollHeight > element.clientHeight + 4) {
      states.push(`scrolled ${Math.round(element.scrollTop)} of ${element.scrollHeight - element.clientHeight}`);
    }
    return states;
  };
  const valueOf = (element, role) => {
    if (role === "select") return [...element.selectedOptions].map(one => tidy(one.text)).join(", ");
    if (role === "slider" && element.type !== "range") {
      const slider = window.jQuery?.(element).closest(".ui-slider");
      if (!slider?.length || !slider.slider("instance")) return "";
      const all = slider.find(".ui-slider-handle");
      return String(all.length > 1 ? slider.slider("values", all.index(element)) : slider.slider("value"));
    }
    if (["checkbox", "radio", "button"].includes(role)) return "";
    if (element.tagName === "INPUT" || element.tagName === "TEXTAREA") return element.value;
    if (element.isContentEditable) return tidy(element.innerText);
    if (element.matches(".selectric")) return tidy(element.querySelector(".label")?.textContent ?? "");
    if (element.matches(".ttt-row > [data-index]")) return /mark-(\w)/.exec(element.className + (element.firstElementChild?.className ?? ""))?.[1].toUpperCase() ?? "";
    return "";
  };
  const point = (x, y) => `(${Math.round(x + scrollX)}, ${Math.round(y + scrollY)})`;
  const extent = box => `${Math.round(box.width)}x${Math.round(box.height)}`;
  const iconOf = element => /ui-icon-([a-z]+(-[a-z]+)*)/.exec(element?.className ?? "")?.[1] ?? "";
  // What a drawing or a coloured box looks like.
  const looksOf = (element, role, style, box) => {
    if (svg(element)) {
      const stroked = role === "line" || style.fill === "none" || colour(style.fill) === "";
      const paint = stroked ? colour(style.stroke, element.getAttribute("stroke")) : colour(style.fill, element.getAttribute("fill"));
      if (element.tagName === "line") {
        const [x1, y1, x2, y2] = ["x1", "y1", "x2", "y2"].map(name => element[name].baseVal.value);
        const matrix = element.getScreenCTM();
        const ends = [[x1, y1], [x2, y2]].map(([x, y]) => new DOMPoint(x, y).matrixTransform(matrix));
        return `${paint} ${point(ends[0].x, ends[0].y)}-${point(ends[1].x, ends[1].y)}`;
      }
      const size = role === "text" ? parseFloat(style.fontSize) : Math.max(box.width, box.height);
      const grid = element.ownerSVGElement?.id === "area_svg";
      const outline = stroked && element.tagName !== "path" ? "outline " : "";
      return `${paint} ${outline}${grid && size < 25 ? (size <= 15 ? "small" : "large") : role === "text" ? "" : extent(box)}`.trim();
    }
    if (role === "slider") {
      const track = element.closest(".ui-slider")?.getBoundingClientRect();
      const slider = track && window.jQuery(element.closest(".ui-slider"));
      if (!slider?.slider("instance")) return "";
      const upright = track.height > track.width;
      const ends = upright ? [point(track.left + track.width / 2, track.bottom), point(track.left + track.width / 2, track.top)]
        : [point(track.left, track.top + track.height / 2), point(track.right, track.top + track.height / 2)];
      return `from ${slider.slider("option", "min")} ${ends[0]} to ${slider.slider("option", "max")} ${ends[1]}`;
    }
    const icon = role === "menuitem" && iconOf(element.querySelector(".ui-icon:not(.ui-menu-icon)"));
    if (icon) return `icon ${icon}`;
    const drawn = ["icon", "box", "button", "area"].includes(role) && !tidy(element.textContent);
    const filled = style.backgroundImage === "none" ? colour(style.backgroundColor, element.style.backgroundColor) : "";
    if (element.classList.contains("ui-draggable-handle") && !element.closest(".ui-dialog")) return `${filled} ${extent(box)}`.trim();
    if (role === "area") return extent(box);
    return drawn && (role === "box" || filled !== "white") ? filled : "";
  };

  // ---- the whole page
  // One look: its elements in their order, and the lines in which they stand.
  const look = () => {
    styles = new Map();
    watched = new Map();
    const elements = [];
    const lines = [];
    let line = [];
    const roles = new Map();
    const role = element => roles.get(element) ?? roles.set(element, roleOf(element, styleOf(element))).get(element);

    const covered = new Map();
    const hidden = element => covered.get(element) ?? covered.set(element, isHidden(element, styleOf(element))).get(element);

    const middle = piece => {
      if (piece.box) return piece.box;
      const range = document.createRange();
      range.selectNodeContents(piece.node);
      return range.getBoundingClientRect();
    };
    // Blocks that stand side by side share a line.
    const beside = (before, piece) => {
      const [one, other] = [middle(before), middle(piece)];
      return other.left > one.left + one.width / 2 && Math.abs(one.top + one.height / 2 - other.top - other.height / 2) < 7 && Math.max(one.height, other.height) < 45;
    };
    // From where to where the mouse marks a text.
    const span = (node, start = 0, end = node.length) => {
      const range = document.createRange();
      range.setStart(node, start);
      range.setEnd(node, end);
      const boxes = [...range.getClientRects()].filter(box => box.width);
      const [head, tail] = [boxes[0], boxes.at(-1)];
      return head ? `from ${point(head.left, head.top + head.height / 2)} to ${point(tail.right, tail.top + tail.height / 2)}` : "";
    };
    // Whether there is a space before the next text: letters that each have an element of their own are one word.
    let gap = true;
    const flush = () => { if (line.length) lines.push(line); line = []; gap = true; };
    const add = piece => {
      if (!line.length && lines.length && !piece.bar) {
        const last = lines.at(-1).at(-1);
        if (!last.bar && beside(last, piece)) line = lines.pop();
      }
      line.push(piece);
    };
    const say = (text, node) => {
      const clean = tidy(text);
      const before = line.at(-1);
      const close = !gap && !/^\s/.test(text) && before?.node !== undefined;
      gap = clean ? /\s$/.test(text) : true;
      if (!clean) return;
      if (before?.wants && !before.name) { before.name = bare(clean); return; }
      if (before?.node && before.node.parentElement === node.parentElement) before.text += (close ? "" : " ") + clean;
      else add({ text: MARKED.test(location.pathname) ? `${clean} ${span(node)}` : clean, node, close });
    };
    const strong = piece => piece.node && !/[.!?…]$/.test(piece.text) && (piece.node.parentElement.closest("label") || /:$/.test(piece.text) ||
      Number(styleOf(piece.node.parentElement).fontWeight) >= 600);
    // A field without a label is called by the words before it.
    const nameBefore = () => {
      const take = (from, count) => { const { text } = from[from.length - count]; from.splice(-count); return bare(text); };
      if (line.at(-1)?.text) return take(line, 1);
      if (line.at(-1)?.bar && line.at(-2)?.text) return take(line, 2);
      const last = lines.at(-1);
      if (!line.length && last?.length === 1 && last[0].text && strong(last[0])) { lines.pop(); return bare(last[0].text); }
      return "";
    };
    const put = (element, kind, name) => {
      const style = styleOf(element);
      const box = element.getBoundingClientRect();
      if (!name && FIELDS.has(kind)) name = tidy(element.placeholder ?? "").replace(/:$/, "") || nameBefore();
      if (!name && kind === "textarea") name = byClass(element);
      const one = {
        ref: elements.length + 1, element, role: kind, name, value: valueOf(element, kind), states: statesOf(element, kind),
        looks: looksOf(element, kind, style, box), box,
        at: { x: Math.round(box.left + box.width / 2 + scrollX), y: Math.round(box.top + box.height / 2 + scrollY) },
        placed: (svg(element) && element.tagName !== "line") || element.matches(".ui-draggable-handle, .ui-resizable-handle") || kind === "box" || (kind === "icon" && !name) || kind === "area",
        wants: !name && (kind === "checkbox" || kind === "radio"),
      };
      elements.push(one);
      add(one);
    };
    const LEAVES = new Set(["button", "link", "tab", "section", "option", "slider", "icon", "box", "cell"]);
    const HOLDERS = new Set(["item", "icon", "section", "box"]);
    // Words of size 0, such as those of a card that lies face down, are not to be seen.
    const small = node => parseFloat(styleOf(node).fontSize) === 0;
    const ownText = node => {
      if (small(node)) return "";
      const list = node.querySelector?.("ul,ol,[role=menu]");
      return tidy(list ? [...node.childNodes].filter(one => one !== list && !one.contains(list)).map(one => one.textContent).join(" ") : node.innerText ?? node.textContent);
    };
    // An element that holds others with words is not one to act on, but what holds them.
    const holds = node => [...node.querySelectorAll("*")].some(one => {
      const kind = role(one);
      return kind && kind !== "icon" && !svg(one) && !hidden(one);
    });
    const children = (node, quiet) => { for (const child of node.childNodes) walk(child, quiet); };
    // Each word on a line of its own, with its place: what the mouse is to mark.
    const wordsIn = node => {
      const all = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
      for (let text = all.nextNode(); text; text = all.nextNode()) {
        for (const { 0: word, index } of text.data.matchAll(/\S+/g)) {
          flush();
          line.push({ text: `${word} ${span(text, index, index + word.length)}`, node: text });
        }
      }
      flush();
    };
    const enter = (node, kind, quiet) => {
      if (FIELDS.has(kind) || node.tagName === "INPUT") {
        put(node, kind, marked(node));
        if (node.isContentEditable) wordsIn(node);
        return;
      }
      if (HOLDERS.has(kind) && node.firstElementChild && !node.matches(WHOLE) && holds(node)) { children(node, quiet); return; }
      const box = node.getBoundingClientRect();
      const words = ownText(node);
      if (kind === "area") { put(node, "area", ""); children(node, quiet); return; }
      if (box.width * box.height > 9000 && (words.length > 60 || !words) && (kind === "item" || kind === "icon") && !svg(node)) {
        put(node, "area", marked(node) || byClass(node));
        children(node, quiet);
        return;
      }
      let name = marked(node) || short(words, 160);
      if (!name && (kind === "icon" || kind === "item") && !node.matches(HINTS.map(([where]) => where).join())) name = byClass(node);
      put(node, kind, name);
      if (LEAVES.has(kind) || node.matches(WHOLE)) return;
      for (const child of node.children) walk(child, true);
    };
    const block = /^(block|flex|grid|table|table-row|list-item|flow-root|table-caption)$/;
    const walk = (node, quiet) => {
      if (node.nodeType === Node.TEXT_NODE) {
        if (!quiet && !small(node.parentElement)) say(node.data, node);
        return;
      }
      if (!(node instanceof Element) || SILENT.has(node.tagName) || SKIPPED.has(node.id)) return;
      const style = styleOf(node);
      if (node.tagName === "BR") { if (!quiet) flush(); return; }
      if (hidden(node)) return;
      if (node.tagName === "LABEL" && node.control && !hidden(node.control) && role(node.control)) {
        if (node.contains(node.control)) children(node, true);
        return;
      }
      const floats = style.float !== "none" && !node.matches(".ui-sortable > *");
      const breaks = block.test(style.display) && !floats && !svg(node) && !node.matches(".half-hour") && (!quiet || line.at(-1)?.role !== "item");
      const cell = style.display === "table-cell";
      if (breaks) flush();
      if (cell && !quiet && line.length) line.push({ bar: true });
      const kind = role(node);
      if (kind) enter(node, kind, quiet);
      else if (!quiet && !node.firstChild) picture(node, style);
      else if (!quiet && style.position === "absolute" && !node.children.length && tidy(node.textContent).length < 20) {
        const box = node.getBoundingClientRect();
        add({ text: `${tidy(node.textContent)} at ${point(box.left + box.width / 2, box.top + box.height / 2)}`, box, apart: true });
      } else children(node, quiet);
      if (breaks) flush();
    };
    // Small boxes that only have a colour, such as blocks to be counted; and lines that a script draws.
    const picture = (node, style) => {
      const box = node.getBoundingClientRect();
      const digit = window.PATTERNS?.[/ch_(\d)\.png$/.exec(node.src ?? "")?.[1]];
      if (digit) {
        // The bitmap of a digit, dot by dot.
        for (const row of digit) { line.push({ text: row.map(dot => (dot ? "#" : ".")).join(""), box }); flush(); }
      } else if (node.alt) {
        add({ text: tidy(node.alt), box });
      } else if (node.tagName === "CANVAS") {
        const drawn = plumbline.drawn.get(node) ?? [];
        if (drawn.length) add({ text: `drawing of lines through ${drawn.map(([x, y]) => point(box.left + x, box.top + y)).join(" ")}`, box });
      } else if (box.width >= 6 && box.width <= 30 && box.height >= 6 && box.height <= 30 && colour(style.backgroundColor) && node.tagName !== "IMG") {
        const before = line.at(-1);
        if (before?.blocks) { before.text += "■"; before.box = box; }
        else line.push({ text: "■", blocks: true, box });
      }
    };
    children(document.body, false);
    flush();
    return { elements, lines };
  };

  // ---- the text
  // Without a name they are told apart by their order and their lines.
  const ORDERED = new Set([...FIELDS, "checkbox", "radio", "line"]);
  const quote = text => `'${text}'`;
  const written = (one, crowd) => {
    const parts = [`[${one.ref}]`, one.role];
    if (one.name) parts.push(quote(one.name));
    if (one.looks && one.role !== "slider") parts.push(one.looks);
    if (one.value) parts.push(`= ${quote(short(one.value))}`);
    if (one.role === "slider" && one.looks) parts.push(one.looks);
    if (one.role === "select") parts.push(`of ${[...one.element.options].map(option => quote(tidy(option.text))).join(", ")}`);
    if (one.placed || (!one.name && crowd > 1 && !ORDERED.has(one.role))) parts.push(`at (${one.at.x}, ${one.at.y})`);
    if (one.states.length) parts.push(`(${one.states.join(", ")})`);
    return parts.join(" ");
  };
  const textOf = seen => {
    const crowd = {};
    for (const one of seen.elements) if (!one.name) crowd[one.role] = (crowd[one.role] ?? 0) + 1;
    const text = piece => (piece.bar ? "|" : piece.ref ? written(piece, crowd[piece.role]) : piece.text);
    return seen.lines.map(line => line.map((piece, place) => (place && !piece.close ? " " : "") + text(piece)).join("")).join("\n");
  };

  const KINDS = { field: FIELDS, input: FIELDS, textbox: new Set(["textbox", "textarea", "password", "number"]) };
  const same = (one, other) => tidy(one).toLowerCase() === tidy(other).toLowerCase();
  // The elements that are called so now, in their order; an exact name goes before one in other letters.
  const find = (seen, role, name) => {
    const of = kinds => seen.elements.filter(one => kinds(one.role) && (one.name === name || same(one.name, name)));
    let fit = role ? of(kind => kind === role) : of(() => true);
    if (!fit.length && Object.hasOwn(KINDS, role ?? "")) fit = of(kind => KINDS[role].has(kind));
    const exact = fit.filter(one => one.name === name);
    return exact.length ? exact : fit;
  };
  plumbline.see = { look, textOf, find, tidy, colour, hex, iconOf };
})();

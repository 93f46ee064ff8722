// Oracles of the tasks that are a drawing or a game: figures of geometry, shapes, what moves, what answers back.
const one = selector => document.querySelector(selector);
const all = selector => [...document.querySelectorAll(selector)];
const click = on => ({ do: "click", on });
const submit = () => click(one("#subbtn, #controls button"));
const number = (element, name) => Number(element.getAttribute(name));
const apart = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);
const middle = element => {
  const box = element.getBoundingClientRect();
  return { x: Math.floor(box.left + box.width / 2), y: Math.floor(box.top + box.height / 2) };
};

// Figures. These pages put the dot at the mouse's page position less 50 in y, in the drawing's own coordinates; as the
// drawing begins at (2, 52), a dot appears two pixels right of the mouse and two below it.
const HEAD = 50;
const dot = selector => ({ x: number(one(selector), "cx"), y: number(one(selector), "cy") });
const clickDot = ({ x, y }) => click({ x: Math.round(x), y: Math.round(y) + HEAD });
// The whole point of the drawing with the best score, of points that are as good the one nearest to `wish`.
const best = (score, wish) => {
  let found, most = -Infinity;
  for (let x = 3; x < 150; x++) {
    for (let y = 3; y < 122; y++) {
      const value = score({ x, y }) - apart({ x, y }, wish) / 20000;
      if (value > most) [found, most] = [{ x, y }, value];
    }
  }
  return found;
};
const angle = (a, v, b) => {
  const cosine = ((a.x - v.x) * (b.x - v.x) + (a.y - v.y) * (b.y - v.y)) / (apart(a, v) * apart(b, v));
  return (Math.acos(Math.max(-1, Math.min(1, cosine))) * 180) / Math.PI;
};

oracles["circle-center"] = function* () {
  yield clickDot(dot("svg circle"));
  yield submit();
};
oracles["find-midpoint"] = function* () {
  const [a, b] = all(".black-circle").map(circle => ({ x: number(circle, "cx"), y: number(circle, "cy") }));
  yield clickDot({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
  yield submit();
};
oracles["bisect-angle"] = function* () {
  const v = dot(".init-blue");
  const [a, b] = all(".init-black").map(circle => ({ x: number(circle, "cx"), y: number(circle, "cy") }));
  // The bisector meets the far side where that is divided as the two legs.
  const share = apart(v, a) / (apart(v, a) + apart(v, b));
  const foot = { x: a.x + (b.x - a.x) * share, y: a.y + (b.y - a.y) * share };
  const score = c => -Math.max(angle(a, v, c), angle(b, v, c)) / (angle(a, v, b) / 2);
  yield clickDot(best(score, foot));
  yield submit();
};
oracles["right-angle"] = function* () {
  const [a, v] = [dot("#init-black"), dot("#init-blue")];
  const turned = sign => ({ x: v.x - sign * (a.y - v.y), y: v.y + sign * (a.x - v.x) });
  const inside = p => p.x > 3 && p.x < 150 && p.y > 3 && p.y < 122;
  const wish = [turned(1), turned(-1)].find(inside) ?? turned(1);
  // The page measures from the boxes of the dots, and the new dot's radius is smaller by a half.
  const score = ({ x, y }) => -Math.abs(90 - angle(a, v, { x: x + 0.5, y: y + 0.5 })) / 90;
  yield clickDot(best(score, wish));
  yield submit();
};
oracles["grid-coordinate"] = function* ({ utterance }) {
  yield click(document.getElementById(/\(.*\)/.exec(utterance)[0]));
};

// A stroke is one straight drag, with the dot in its middle.
oracles["draw-line"] = function* ({ utterance }) {
  const { x, y } = middle(one("#circ"));
  const [dx, dy] = utterance.includes("horizontal") ? [20, 0] : [0, 20];
  yield { do: "drag", on: { x: x - dx, y: y - dy }, to: { x: x + dx, y: y + dy } };
  yield submit();
};

// No drag is round: this is a straight stroke across the way to the mark, as far from it as the drawing allows, where
// all of its points are about equally far from the mark, which is what the page measures.
oracles["draw-circle"] = function* () {
  const { x, y } = middle(one("#circ"));
  const box = one("svg").getBoundingClientRect();
  const ways = [[1, 1], [1, -1], [-1, 1], [-1, -1]].map(([right, down]) => {
    const far = Math.min(right > 0 ? box.right - x : x - box.left, down > 0 ? box.bottom - y : y - box.top);
    return { right, down, far: Math.floor(far) - 14 };
  });
  const { right, down, far } = ways.reduce((a, b) => (b.far > a.far ? b : a));
  const end = sign => ({ x: x + right * (far + sign * 11), y: y + down * (far - sign * 11) });
  yield { do: "drag", on: end(-1), to: end(1) };
  yield submit();
};

// Shapes: what they are, counted and named.
const KINDS = { rect: "rectangle", circle: "circle", polygon: "triangle" };
const shapeOf = element => {
  const written = element.tagName === "text";
  const text = written ? element.textContent : KINDS[element.tagName];
  const size = written ? parseFloat(element.getAttribute("font-size")) : element.getBBox().width;
  return {
    text, type: !written ? "shape" : /\d/.test(text) ? "digit" : "letter",
    size: size > 15 ? "large" : "small", color: element.getAttribute("fill"),
  };
};
oracles["count-shape"] = function* ({ utterance }) {
  const [, size, color, kind] =
    /^How many (?:(small|large) )?(?:(red|green|blue|aqua|black|magenta|yellow) )?(\w+)s are/.exec(utterance);
  const fits = shape => (!size || shape.size === size) && (!color || shape.color === color) &&
    (kind === "item" || shape.text === kind || shape.type === kind);
  const count = all("#area_svg > *").map(shapeOf).filter(fits).length;
  yield click(all("#count-buttons button").find(button => Number(button.textContent) === count));
};
oracles["identify-shape"] = function* () {
  const { type, text } = shapeOf(one("#area_svg > *"));
  yield click(one(`button[data-type="${type === "shape" ? text : type}"]`));
};
oracles["count-sides"] = function* () {
  // The outline ends where it begins.
  const sides = plumbline.drawn.get(one("#c")).length - 1;
  yield click(one(`button[data-sides="${sides}"]`));
};

// Seek a spot by how hot a place is: each place rules out the spots that would have felt otherwise.
const FELT = [[5, "HOT"], [10, "WARM"], [40, "COLD"], [Infinity, "ICE COLD"]];
const felt = (spot, place) => FELT.find(([within]) => apart(spot, place) < within)[1];
oracles["hot-cold"] = function* () {
  let spots = [];
  for (let x = 5; x < 155; x++) for (let y = 55; y < 170; y++) spots.push({ x, y });
  for (;;) {
    // Of some of the spots that are left, and some in a grid, the place whose answers divide the rest best.
    const places = spots.length > 40 ? spots.filter((_, k) => k % Math.ceil(spots.length / 40) === 0) : spots;
    let place, least = Infinity;
    for (const p of places) {
      const counts = {};
      for (const spot of spots) counts[felt(spot, p)] = (counts[felt(spot, p)] ?? 0) + 1;
      const left = Object.values(counts).reduce((sum, count) => sum + count * count, 0);
      if (left < least) [place, least] = [p, left];
    }
    if (spots.every(spot => felt(spot, place) === "HOT")) return yield click(place);
    yield { do: "hover", on: place };
    const answer = one("#signal").textContent;
    if (answer === "HOT") return yield click(place);
    spots = spots.filter(spot => felt(spot, place) === answer);
  }
};

// What moves: d3 keeps where a circle goes and since when.
const pathOf = circle => {
  const kept = circle.__transition__;
  const going = kept && Object.values(kept).find(one => one?.tween?.get("attr.cx"));
  const here = { x: number(circle, "cx"), y: number(circle, "cy") };
  if (!going) return null;
  const done = now => going.ease(Math.min(1, Math.max(0, (now - going.time) / going.duration)));
  const [end, share] = [target(circle, going, here), done(Date.now())];
  const origin = axis => (share < 0.999 ? (here[axis] - end[axis] * share) / (1 - share) : end[axis]);
  const start = { x: origin("x"), y: origin("y") };
  return {
    until: going.time + going.duration,
    at: now => ({ x: start.x + (end.x - start.x) * done(now), y: start.y + (end.y - start.y) * done(now) }),
  };
};
// A transition's tween sets the attribute itself: let it go to its end, look, and put the circle back.
const target = (circle, going, here) => {
  for (const name of ["cx", "cy"]) going.tween.get(`attr.${name}`).call(circle)?.call?.(circle, 1);
  const end = { x: number(circle, "cx"), y: number(circle, "cy") };
  circle.setAttribute("cx", here.x);
  circle.setAttribute("cy", here.y);
  return end;
};
const inPage = ({ x, y }) => {
  const box = one("svg").getBoundingClientRect();
  return { x: Math.round(x + box.left), y: Math.round(y + box.top) };
};
oracles["chase-circle"] = function* () {
  for (let path; (path = pathOf(one("#circ"))); ) {
    const now = Date.now();
    // Stay as long as one place is inside of the circle from now till then.
    let stay = 100;
    while (now + stay < path.until && apart(path.at(now), path.at(now + stay + 100)) < 40) stay += 100;
    const [from, to] = [path.at(now), path.at(now + stay)];
    yield { do: "hover", on: inPage({ x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 }) };
    if (stay > 100) yield { do: "wait", ms: stay - 100 };
  }
};
oracles["moving-items"] = function* () {
  while (one(".item")) {
    const shown = all(".item").find(circle => number(circle, "cx") > 5 && number(circle, "cx") < 155);
    // A circle may have its middle below the drawing.
    const at = shown && inPage({ x: number(shown, "cx"), y: Math.min(150, number(shown, "cy")) });
    yield shown ? click(at) : { do: "wait", ms: 1000 };
  }
  yield { do: "wait", ms: 5000 };
};
oracles["simon-says"] = function* () {
  const lit = () => one("#area button.push");
  const order = [];
  yield { do: "wait", ms: 700 };
  for (; lit(); yield { do: "wait", ms: 600 }) order.push(lit());
  for (const button of order) yield click(button);
};

// Noughts and crosses, with the random numbers that the opponent will draw known beforehand: of the lines of play
// that win, the first in the order in which a careful player tries them (win, block, centre, corners, sides).
const ROWS = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]];
const ORDER = [4, 0, 2, 6, 8, 1, 3, 5, 7];
const won = (board, mark) => ROWS.some(row => row.every(cell => board[cell] === mark));
const careful = board => {
  const rank = place => (won(board.with(place, 1), 1) ? 0 : won(board.with(place, -1), -1) ? 1 : 2);
  return ORDER.filter(place => !board[place]).sort((a, b) => rank(a) - rank(b));
};
// The page still draws the same numbers in the same order: these are only drawn early.
const foresee = () => {
  const draw = Math.random;
  const early = [];
  Math.random = () => (early.length ? early.shift() : draw());
  return k => {
    while (early.length <= k) early.push(draw());
    return early[k];
  };
};
const answerTo = (board, free, drawn, k) => {
  if (Math.floor(drawn(k) * 100) >= RANDOM_CHANCE) {
    const kept = gameState;
    gameState = board;
    const place = determineSpace(-1, 1);
    gameState = kept;
    if (place !== undefined) return [place, k + 1];
  }
  return [free[Math.floor(drawn(k + 1) * free.length)], k + 2];
};
const winning = (board, free, drawn, k) => {
  for (const place of careful(board)) {
    const mine = board.with(place, 1);
    const left = free.filter(other => other !== place);
    if (won(mine, 1)) return [place];
    if (left.length < 2) continue;
    const [answer, next] = answerTo(mine, left, drawn, k);
    const both = mine.with(answer, -1);
    const rest = !won(both, -1) && winning(both, left.filter(other => other !== answer), drawn, next);
    if (rest) return [place, ...rest];
  }
  return null;
};
oracles["tic-tac-toe"] = function* () {
  const places = winning(gameState, freeSpaces, foresee(), 0) ?? careful(gameState);
  for (const place of places) yield click(one(`#ttt-${place}`));
};

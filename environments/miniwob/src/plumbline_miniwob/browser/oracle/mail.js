// Oracles of the tasks about mail, posts, contacts, menus and calendars.
const { all, one, textOf, click, type, wait } = shared;
const quotes = text => [...text.matchAll(/"([^"]*)"/g)].map(found => found[1]);
const named = (names, oracle) => names.split(" ").forEach(name => (oracles[name] = oracle));

// ---- mail ---------------------------------------------------------------------------------------------------

/** What is asked for: the page says it apart where people worded it. */
function errand({ utterance, fields }) {
  if (fields?.by) return { task: fields.to ? "forward" : fields.task, ...fields };
  const [, by, what] = utterance.match(/by (.+?) and (reply|forward|click the trash|click the star)/);
  const task = { reply: "reply", forward: "forward", "click the trash": "delete", "click the star": "star" }[what];
  return { task, by, message: quotes(utterance)[0], to: utterance.match(/that email to (.+)\.$/)?.[1] };
}

const inboxes = ["", "-noscroll", "-delete", "-important", "-reply", "-star-reply", "-nl-turk", "-forward"];
const forwards = ["-forward-nl", "-forward-nl-turk"];
named([...inboxes, ...forwards].map(end => `email-inbox${end}`).join(" "), function* (page) {
  const { task, by, message, to } = errand(page);
  const mail = all("#main .email-thread").find(each => textOf(one(".email-sender", each)) === by);
  if (task === "delete") return yield click(one(".trash", mail));
  if (task === "star") return yield click(one(".star", mail));
  yield click(mail);
  yield click(one(`#email .email-${task}`));
  yield task === "reply" ? type(message, one("#reply-text")) : type(to, one(".forward-sender"));
  yield click(one(`#send-${task}`));
});

// ---- posts --------------------------------------------------------------------------------------------------

const posts = user => all(".media").filter(post => textOf(one(".username", post)) === user);

oracles["social-media"] = function* ({ utterance }) {
  const [, user, button] = utterance.match(/user (@\S+), click on the "(.+)" button/);
  const [post] = posts(user);
  if (["Reply", "Retweet", "Like"].includes(button)) return yield click(one(`.${button.toLowerCase()}`, post));
  yield click(one(".more", post));
  yield click(all("li", post).find(item => textOf(item).startsWith(button)));
};

named("social-media-all social-media-some", function* ({ utterance }) {
  const [button] = quotes(utterance);
  const [, user] = utterance.match(/by (@\S+) and/);
  const wanted = utterance.match(/on (\d+) posts?/)?.[1];
  for (const post of posts(user).slice(0, wanted)) yield click(one(`.${button.toLowerCase()}`, post));
  yield click(one("#submitRow button"));
});

// ---- pages and trees ----------------------------------------------------------------------------------------

oracles["phone-book"] = function* ({ utterance }) {
  const [, person, what] = utterance.match(/Find (.+) in the contact book and click on their (\w+)/);
  while (textOf(one("#contact .name")) !== person) yield click(one("#pagination .next a"));
  yield click(one(`#contact .${what}`));
};

oracles["search-engine"] = function* ({ utterance }) {
  const place = Number(utterance.match(/the (\d)\w\w search result/)[1]) - 1;
  const page = Math.floor(place / 3);
  yield type(quotes(utterance)[0], one("#search-text"));
  yield click(one("#search"));
  if (page > 0) yield click(all("#pagination .page-item a").find(link => textOf(link) === String(page + 1)));
  yield click(all(".search-title")[place % 3]);
};

/** Opens the folders around what is looked for, or around what of that name is nearest to the top. */
oracles["navigate-tree"] = function* ({ utterance }) {
  const around = item => {
    const inside = item.closest("li").parentElement.closest("#tree li");
    return inside ? [...around(one(":scope > span", inside)), inside] : [];
  };
  const name = utterance.match(/named "(.+)"\.$/)[1];
  const wanted = all("#tree span").filter(item => textOf(item) === name);
  const [item] = wanted.sort((left, right) => around(left).length - around(right).length);
  for (const folder of around(item)) {
    if (folder.matches(".expandable")) yield click(one(":scope > span", folder));
  }
  yield click(item.matches(".file") ? item.closest("li") : item);
};

// ---- menu and calendar --------------------------------------------------------------------------------------

oracles["order-food"] = function* ({ utterance }) {
  const items = all(".food-item");
  const names = utterance.match(/each item: (.+)$/)?.[1].split(", ");
  const [, amount, kind] = utterance.match(/Order (\d) items that are (.+)$/) ?? [];
  const wanted = items.filter(item =>
    names ? names.includes(textOf(one(".item-name", item))) : one(`img[alt="${kind}"]`, item),
  );
  const count = names ? wanted.length : Number(amount);
  for (let n = 0; n < count; n += 1) yield click(one(".add", wanted[n % wanted.length]));
  yield click(one("#submit-order button"));
};

/** Drags over the first free half hours of the time asked for, names the event and creates it. */
oracles["daily-calendar"] = function* ({ utterance }) {
  const [, amount, unit, name, first, last] = utterance.match(
    /a ([\d.]+) (hours?|mins) event named "(.+)", between (\w+) and (\w+)/,
  );
  const length = unit === "mins" ? amount / 30 : amount * 2;
  const half = time => 2 * ((Number.parseInt(time, 10) % 12) + (time.endsWith("PM") ? 12 : 0));
  const taken = all(".event").map(event => event.getBoundingClientRect());
  const isFree = n => {
    const { top, bottom } = one(`#hh-${n}`).getBoundingClientRect();
    const middle = (top + bottom) / 2;
    return taken.every(event => middle < event.top || middle > event.bottom);
  };
  let start = half(first);
  while (![...Array(length).keys()].every(n => isFree(start + n)) && start + length < half(last)) start += 1;
  yield { do: "drag", on: one(`#hh-${start}`), to: one(`#hh-${start + length - 1}`) };
  yield type(name, one("#event-name"));
  yield click(one("#create-event .create"));
};

/** Looks at the price now and then. The limit is the price of the 76th tick, 7.6 s after the start, if none before. */
oracles["stock-market"] = function* ({ utterance }) {
  const limit = Number(utterance.match(/less than \$([\d.]+)\.$/)[1]);
  const price = () => Number(textOf(one("#stock-price")).slice(1));
  yield wait(100);
  while (price() > limit) yield wait(1500);
  yield click(one("#buy"));
};

// Episodes: a seed is started, acts are carried out one after the other, the page's reward is read. And the oracles.
(() => {
  const { see, hand, acts: does, clock, oracles, shared } = plumbline;
  const STEP = 100;
  const FRAME = 16;
  // What an episode has begun is over after so long; what that begins in its turn has a few frames.
  const AFTER = 12000, SETTLING = 500;
  let live = null;
  let seen = { elements: [], lines: [] };

  const over = () => window.WOB_DONE_GLOBAL === true;
  // An action takes 100 ms in all, those that it spends itself included. Time passes by frames, so that the mouse feels
  // what moves away from it.
  const pass = async (act, began) => {
    const until = began + (act?.do === "wait" && Number.isFinite(act.ms) ? act.ms : STEP);
    while (clock.now() < until && !over()) if (await clock.advance(Math.min(FRAME, until - clock.now()))) hand.rest();
  };
  const look = () => { seen = see.look(); return see.textOf(seen); };
  const utterance = () => {
    const said = core.getUtterance();
    const swatch = document.querySelector("#query .cc");
    if (swatch) return { utterance: said.replace("color", `color ${see.hex(getComputedStyle(swatch).backgroundColor)}`), fields: {} };
    // An icon in the instruction is said by its name.
    const icon = see.iconOf(document.querySelector("#query .ui-icon"));
    if (icon) return { utterance: said.replace(/the icon/, `the ${icon} icon`), fields: {} };
    return typeof said === "string" ? { utterance: said, fields: {} } : { utterance: said.utterance, fields: said.fields ?? {} };
  };

  // Once a page is there: pictures that its styles name are loaded, since an icon without its picture has no size; and a
  // row of the calendar stays one row where fonts are wider than those that it was drawn with.
  const pictures = () => [...document.querySelectorAll("style")].flatMap(one =>
    [...one.textContent.matchAll(/url\(["']?([^"')]+)/g)].map(found => Object.assign(new Image(), { src: found[1] })));
  const prepared = [];
  const prepare = async () => {
    if (prepared.length) return;
    document.head.insertAdjacentHTML("beforeend", "<style>.hour { white-space: nowrap; }</style>");
    // A page that shows what is typed as HTML (terminal) would run what the HTML says: no script comes in from here on.
    const guard = { httpEquiv: "Content-Security-Policy", content: "script-src 'unsafe-eval'" };
    document.head.append(Object.assign(document.createElement("meta"), guard));
    prepared.push(document.head, ...pictures());
    await Promise.all(prepared.slice(1).map(image => image.decode().catch(() => null)));
  };

  // End what went on before, so that nothing of it falls due in the next episode.
  const finish = async () => {
    hand.settleEdits();
    document.activeElement?.blur?.();
    window.jQuery?.datepicker?._hideDatepicker?.();
    if (window.jQuery?.fn.menu) jQuery(".ui-menu").each((_, one) => { jQuery(one).menu("instance")?.collapseAll(null, true); });
    if (core.EP_TIMER !== null) core.endEpisode(-1, false, "left");
    await clock.skip(AFTER);
    await clock.advance(SETTLING);
  };
  const start = async seed => {
    await prepare();
    live = null;
    await finish();
    clock.reset();
    hand.reset();
    plumbline.notes.length = 0;
    window.WOB_EPISODE_ID = 0;
    Math.seedrandom(seed);
    core.startEpisodeReal();
    await Promise.all([...document.images].map(image => image.decode().catch(() => null)));
    await clock.advance(0);
  };
  const first = async seed => {
    await start(seed);
    const text = look();
    const elements = seen.elements.map(({ ref, role, name, value, states, box }) => ({
      ref, role, name, value, states, box: [box.left, box.top, box.width, box.height].map(Math.round),
    }));
    return { text, elements, ...utterance() };
  };
  const act = async one => {
    const began = clock.now();
    const told = await does.carryOut(one, seen);
    await pass(told[0] === "ok" ? one : null, began);
    return told;
  };
  const result = (attempts, cut, text) => ({
    raw: over() ? Number(window.WOB_RAW_REWARD_GLOBAL) : 0, answered: over(), reason: String(window.WOB_REWARD_REASON ?? "").slice(0, 200),
    attempts, cut, text, notes: [...plumbline.notes], ms: clock.now(),
  });
  // Acts up to where the page has answered; says whether a limit on acts or on the page's time ended them. That real time
  // runs out says nothing of the plan, only of the machine: it breaks the episode off.
  const perform = async (acts, attempts, limits) => {
    const until = clock.real() + 1000 * limits.seconds;
    for (const one of acts) {
      if (over()) return false;
      if (attempts.length >= limits.acts || clock.now() > limits.ms) return true;
      if (clock.real() > until) throw new Error(`the episode takes more than ${limits.seconds} s`);
      attempts.push(await act(one));
    }
    return false;
  };
  const numbered = one => one?.on?.ref !== undefined || one?.to?.ref !== undefined;
  // One plan in an episode of its own; numbers of elements are those of the first page text.
  const run = async (seed, acts, limits, shows) => {
    await start(seed);
    if (acts.some(numbered)) look();
    const attempts = [];
    const cut = await perform(acts, attempts, limits);
    return result(attempts, cut, shows ? look() : "");
  };
  // Plans of one seed, each in an episode of its own; `shows` says whether anybody reads what the page shows at the end.
  const group = async (seed, plans, limits, shows) => {
    const results = [];
    for (const acts of plans) results.push(await run(seed, acts, limits, shows));
    return results;
  };
  // An episode turn by turn, each a list of acts whose numbers are those of the page text before it. Where this page has
  // had the turns before, it goes on from there; otherwise they are carried out again, which comes to the same.
  const turns = async (key, seed, all, limits) => {
    let done = live && live.key === key && live.turns === all.length - 1 ? live : null;
    live = null;
    let text = "";
    if (!done) {
      await start(seed);
      look();
      done = { key, turns: 0, attempts: [], cut: false };
    }
    for (; done.turns < all.length; done.turns++) {
      done.cut ||= await perform(all[done.turns], done.attempts, limits);
      text = look();
    }
    live = done;
    return { ...result(done.attempts, done.cut, text), elements: seen.elements.map(({ role, name }) => [role, name]) };
  };

  const pageOf = () => {
    const page = Object.create(shared);
    Object.assign(page, utterance(), {
      root: document.getElementById("area") ?? document.getElementById("wrap") ?? document.body,
      seen: (role, name) => see.find(see.look(), role, name)[0]?.element ?? null,
      text: () => see.textOf(see.look()),
    });
    return page;
  };
  // The oracle at work: what it did in the words of a plan, and what it earned.
  const gold = async (task, seed, limits) => {
    const begun = await first(seed);
    const acts = [];
    const told = why => ({ first: begun, acts, why, ...result([], false, see.textOf(see.look())) });
    if (!oracles[task]) return told("there is no oracle");
    try {
      const steps = oracles[task](pageOf());
      for (let step = steps.next(); !step.done && !over();) {
        if (acts.length >= limits.acts || clock.now() > limits.ms) return told("too many acts");
        const one = does.describe(step.value, seen);
        acts.push(one);
        const [status, reason] = await act(one);
        if (status !== "ok") return told(`act ${acts.length}: ${status}: ${reason}`);
        step = steps.next([status, reason]);
      }
    } catch (error) {
      return told(String(error.stack ?? error).slice(0, 600));
    }
    return told(over() ? "" : "the page has not answered");
  };
  plumbline.episodes = { first, run, group, turns, gold, start, look, act, shown: () => seen };
})();

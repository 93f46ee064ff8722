// Episodes: a seed is started, acts are carried out one after the other, the page's reward is read. And the oracles.
(() => {
  const { see, hand, clock, oracles, shared } = plumbline;
  const STEP = 100;
  const AFTER = 3000;
  let seen = { elements: [], lines: [] };

  const over = () => window.WOB_DONE_GLOBAL === true;
  // An action takes 100 ms in all, those that it spends itself included.
  const pass = (act, began) => clock.advance(Math.max(0, (act?.do === "wait" && Number.isFinite(act.ms) ? act.ms : STEP) - (clock.now() - began)));
  const look = () => { seen = see.look(); return see.textOf(seen); };
  const utterance = () => {
    const said = core.getUtterance();
    // An icon in the instruction is said by its name.
    const icon = see.iconOf(document.querySelector("#query .ui-icon"));
    if (icon) return { utterance: said.replace(/the icon/, `the ${icon} icon`), fields: {} };
    return typeof said === "string" ? { utterance: said, fields: {} } : { utterance: said.utterance, fields: said.fields ?? {} };
  };

  // End what went on before, so that nothing of it falls due in the next episode.
  const finish = async () => {
    if (core.EP_TIMER !== null) core.endEpisode(-1, false, "left");
    await clock.advance(AFTER);
  };
  const start = async seed => {
    await finish();
    clock.reset();
    hand.reset();
    plumbline.notes.length = 0;
    document.activeElement?.blur?.();
    window.WOB_EPISODE_ID = 0;
    Math.seedrandom(seed);
    core.startEpisodeReal();
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
    const told = await hand.carryOut(one, seen);
    await pass(told[0] === "ok" ? one : null, began);
    return told;
  };
  const result = (attempts, cut) => ({
    raw: over() ? window.WOB_RAW_REWARD_GLOBAL : 0, answered: over(), reason: String(window.WOB_REWARD_REASON ?? "").slice(0, 200),
    attempts, cut, text: see.textOf(see.look()), notes: [...plumbline.notes], ms: clock.now(),
  });
  // One plan in an episode of its own: up to where the page has answered.
  const run = async (seed, acts, most) => {
    await start(seed);
    look();
    const attempts = [];
    for (const one of acts.slice(0, most)) {
      if (over()) break;
      attempts.push(await act(one));
    }
    return result(attempts, acts.length > most && !over());
  };
  const group = async (seed, plans, most) => {
    const results = [];
    for (const acts of plans) results.push(await run(seed, acts, most));
    return results;
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
  const gold = async (task, seed, most) => {
    await start(seed);
    look();
    const acts = [];
    const told = why => ({ acts, why, ...result([], false) });
    if (!oracles[task]) return told("there is no oracle");
    try {
      const steps = oracles[task](pageOf());
      for (let step = steps.next(); !step.done && !over();) {
        if (acts.length >= most) return told("too many acts");
        const one = hand.describe(step.value, seen);
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
  plumbline.episodes = { start, first, act, look, run, group, gold, result };
})();

// Episodes in which the model looks again: after each of its answers, and the oracle's plan told step by step so.
(() => {
  const { see, episodes } = plumbline;

  // Acts in stretches; the numbers of each are those of the page as it was before it. The text after each comes back.
  const run = async (seed, stretches, most) => {
    await episodes.start(seed);
    episodes.look();
    const attempts = [], texts = [], elements = [];
    let left = most;
    for (const acts of stretches) {
      for (const one of acts.slice(0, left)) {
        if (window.WOB_DONE_GLOBAL === true) break;
        attempts.push(await episodes.act(one));
      }
      left -= Math.min(left, acts.length);
      texts.push(episodes.look());
      elements.push(see.look().elements.map(({ ref, role, name }) => ({ ref, role, name })));
    }
    return { ...episodes.result(attempts, left === 0 && !window.WOB_DONE_GLOBAL), texts, elements };
  };
  const group = async (seed, plans, most) => {
    const results = [];
    for (const stretches of plans) results.push(await run(seed, stretches, most));
    return results;
  };

  const renumbered = (target, first, now) => {
    if (target == null) return target;
    let one;
    if (target.ref !== undefined) {
      const { element } = first.elements[target.ref - 1];
      one = now.elements.find(each => each.element === element);
      return one ? { ref: one.ref } : null;
    }
    if (target.name === undefined) return target;
    one = see.find(now, target.role ?? null, target.name)[(target.nth ?? 1) - 1];
    return one ? { ref: one.ref } : null;
  };
  // A plan for the first page as one action a turn, each with the page that it is about; null where one cannot be told.
  const told = async (seed, acts) => {
    await episodes.start(seed);
    const first = see.look();
    const turns = [];
    for (const act of acts) {
      const one = { ...act };
      const now = see.look();
      for (const key of ["on", "to"]) {
        if (act[key] == null) continue;
        one[key] = renumbered(act[key], first, now);
        if (one[key] === null) return null;
      }
      turns.push({ page: episodes.look(), act: one });
      await episodes.act(one);
    }
    return window.WOB_RAW_REWARD_GLOBAL === 1 ? turns : null;
  };

  // What a record is made of: the first page, the oracle's plan, and what that plan earns in a fresh episode.
  const solve = async (task, seed, most) => {
    const first = await episodes.first(seed);
    const gold = await episodes.gold(task, seed, most);
    const again = gold.raw === 1 ? await episodes.run(seed, gold.acts, most) : gold;
    return {
      first, acts: gold.acts, why: gold.why || (again.raw === 1 ? "" : "the plan earns nothing the second time"),
      raw: Math.min(gold.raw, again.raw), turns: again.raw === 1 ? await told(seed, gold.acts) : null,
    };
  };
  plumbline.turns = { run, group, solve };
})();

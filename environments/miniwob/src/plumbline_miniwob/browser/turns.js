// The oracle's plan told again one action a turn, as somebody would write it who looks at the page before each.
(() => {
  const { see, episodes } = plumbline;

  // The number that what a target of the first page text means has now; null where it is not shown.
  const renumbered = (target, first, now) => {
    if (target.ref === undefined && target.name === undefined) return target;
    const one = target.ref !== undefined
      ? now.elements.find(each => each.element === first.elements[target.ref - 1].element)
      : see.find(now, target.role ?? null, target.name)[(target.nth ?? 1) - 1];
    return one ? { ref: one.ref } : null;
  };
  // Each action with the page text that it is about; null where one cannot be told so, or they earn less this way.
  const told = async (seed, acts) => {
    await episodes.start(seed);
    const first = see.look();
    const turns = [];
    for (const act of acts) {
      const page = episodes.look();
      const now = episodes.shown();
      const one = { ...act };
      for (const key of ["on", "to"]) {
        if (act[key] == null) continue;
        one[key] = renumbered(act[key], first, now);
        if (one[key] === null) return null;
      }
      turns.push({ page, act: one });
      await episodes.act(one);
    }
    return window.WOB_DONE_GLOBAL === true && window.WOB_RAW_REWARD_GLOBAL === 1 ? turns : null;
  };
  plumbline.turns = { told };
})();

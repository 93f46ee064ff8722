// What is done to a form's controls as a whole, and the hand with all that it can do: `plumbline.hand`.
(() => {
  const { mouse, keys } = plumbline;
  const { tell, push, focus, settle } = mouse;

  // By the browser's own editing command, so that maxlength and filters act as on typed text.
  const write = (control, text) => {
    focus(control);
    control.select();
    keys.edit(text === "" ? "delete" : "insertText", text);
    settle();
  };
  // A value that pages let users pick: a date, a time, a colour.
  const pick = (control, value) => {
    focus(control);
    control.value = value;
    tell(control, "input", "change");
  };
  const choose = (option, on = true) => {
    const list = option.closest("select");
    const same = !list.multiple && list.selectedIndex === option.index;
    if (list.multiple) option.selected = on;
    else list.selectedIndex = option.index;
    if (!same) tell(list, "input", "change");
  };
  // `on` null: the other way than it is.
  const tick = (box, on, click = push) => { if (on === null || box.checked !== on) click(box); };
  const attach = (control, file) => {
    const held = new DataTransfer();
    const there = control.multiple ? [...control.files].filter(one => one.name !== file.name) : [];
    for (const one of [...there, file]) held.items.add(one);
    control.files = held.files;
    tell(control, "input", "change");
  };

  const reset = () => { mouse.reset(); keys.reset(); };
  plumbline.hand = { ...mouse, ...keys, write, pick, choose, tick, attach, reset };
})();

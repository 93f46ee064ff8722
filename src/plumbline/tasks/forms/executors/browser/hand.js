// Carries out operations on the page that is open, as a user's hand would: one call for as many as there are.
// An operation is an object with `op` and the place of its control among the controls of the first form.
// Text goes in by the browser's own editing command, so that maxlength and filters act as on typed text. Only minlength
// does not: browsers check it after keys that a user pressed, and not after a script's edits, so it is checked here.
(() => {
  const formOf = () => document.forms[0];
  const controls = () => [...(formOf()?.querySelectorAll("input,textarea,select,button") ?? [])];
  const usable = control => !control.matches(":disabled") && !control.closest("[hidden]");
  const tell = (control, ...names) =>
    names.forEach(name => control.dispatchEvent(new Event(name, { bubbles: true })));

  const edited = new WeakSet();
  const write = (control, text) => {
    edited.add(control);
    control.focus();
    control.select();
    document.execCommand(text === "" ? "delete" : "insertText", false, text);
    tell(control, "change");
  };
  const PICKED = ["date", "month", "week", "time", "datetime-local", "range", "color"];
  const enter = (control, step) => {
    if (PICKED.includes(control.type)) {
      control.focus();
      control.value = step.text;
      tell(control, "input", "change");
    } else {
      write(control, step.clear ? step.text : control.value + step.text);
    }
    const bad = control.validity.badInput;
    if (bad) write(control, "");
    return step.refused || bad ? ["refused", `${step.called} takes no such ${control.type}`] : ["ok", ""];
  };
  const choose = (control, step) => {
    const option = control.options[step.place];
    if (!option) return ["not found", "the page has no such option now"];
    if (control.multiple) option.selected = step.on;
    else control.selectedIndex = step.place;
    tell(control, "input", "change");
    return ["ok", ""];
  };
  const tick = (control, step) => {
    if (step.on === null || control.checked !== step.on) control.click();
    return ["ok", ""];
  };
  const put = (control, step) => {
    const held = new DataTransfer();
    const there = control.multiple ? [...control.files].filter(file => file.name !== step.name) : [];
    there.forEach(file => held.items.add(file));
    held.items.add(new File([step.content], step.name, { type: step.type }));
    control.files = held.files;
    tell(control, "input", "change");
    return ["ok", ""];
  };
  const doing = { enter, choose, tick, put, touch: control => (control.focus(), ["ok", ""]) };

  // Why the browser would not send the form, or "" where it would; in the words of the direct executor, because a model
  // may read them, and not in those of this browser's language.
  const REASONS = [
    ["valueMissing", () => "missing"],
    ["typeMismatch", control => `not a valid ${control.type}`],
    ["patternMismatch", () => "not in the format that is asked for"],
    ["tooShort", () => "too short"],
    ["rangeUnderflow", () => "out of range (min)"],
    ["rangeOverflow", () => "out of range (max)"],
    ["stepMismatch", () => "out of range (step)"],
  ];
  const reason = control => {
    const found = REASONS.find(([flag]) => control.validity[flag]);
    return found ? found[1](control) : control.validationMessage || "too short";
  };
  const problem = (form, called) => {
    if (!form) return "there is no form on this page";
    if (form.noValidate) return "";
    const lines = ["text", "search", "tel", "url", "email", "password", "textarea"];
    const short = control =>
      edited.has(control) && lines.includes(control.type) && control.minLength > 0 && control.value && control.value.length < control.minLength;
    const wrong = control => control.willValidate && (!control.validity.valid || short(control));
    const there = controls();
    const place = there.findIndex(wrong);
    if (place < 0) return "";
    // A foreign page's script may have added controls since its model was read.
    return `not sent, ${called[place] ?? `'${there[place].name}'`}: ${reason(there[place])}`;
  };
  const pressed = () => {
    const last = window.plumblineLast;
    if (!last || last.type === "file" || last.tagName === "SELECT") return "idle";
    if (last.tagName !== "TEXTAREA") return "send";
    write(last, last.value + "\n");
    return "idle";
  };

  // Operations up to the first that sends the form, which is left to the caller.
  // Returns what became of each, whether the form is to be sent now, and where the time is up, that.
  const carryOut = (steps, milliseconds) => {
    const until = performance.now() + milliseconds;
    const attempts = [];
    for (const step of steps) {
      if (performance.now() > until) return { attempts, send: false, cut: true };
      let sends = step.op === "send";
      if (step.op === "return") {
        sends = pressed() === "send";
        if (!sends) { attempts.push(["ok", ""]); continue; }
      }
      if (sends) {
        const why = problem(formOf(), step.called);
        if (!why) return { attempts, send: true, cut: false };
        attempts.push(["refused", why]);
        continue;
      }
      const control = controls()[step.index];
      if (!control) { attempts.push(["not found", "the page has changed"]); continue; }
      if (!usable(control)) { attempts.push(["refused", `${step.called} is not shown now`]); continue; }
      window.plumblineLast = control;
      attempts.push(doing[step.op](control, step));
    }
    return { attempts, send: false, cut: false };
  };

  // What the form would send: names and values; a file by its name.
  const entries = () => [...new FormData(formOf())].map(([name, value]) =>
    value instanceof File ? [name, value.name, true] : [name, value, false]);

  // A page written anew in this one, and operations on it.
  const onNewPage = (html, steps, milliseconds) => {
    window.plumblineLast = null;
    document.open();
    document.write(html);
    document.close();
    const result = carryOut(steps, milliseconds);
    return { ...result, entries: result.send ? entries() : null };
  };

  const press = () => {
    const form = formOf();
    const button = controls().find(control => control.type === "submit" && usable(control));
    if (button) button.click();
    else form.requestSubmit();
  };
  // Operations on the page that is open; where they send the form, that comes right after the answer to this call.
  const onThisPage = (steps, milliseconds) => {
    const result = carryOut(steps, milliseconds);
    if (result.send) setTimeout(press, 0);
    return result;
  };
  return { onNewPage, onThisPage };
})()

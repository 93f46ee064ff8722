// Carries out operations on the page that is open, as a user's hand would: one call for as many as there are.
// An operation is an object with `op` and the place of its control among the controls of the page.
// Text goes in by the browser's own editing command, so that maxlength and filters act as on typed text. Only minlength
// does not: browsers check it after keys that a user pressed, and not after a script's edits, so it is checked here.
// A control may be called `action` or `submit`, so attributes and methods of a form are not read from the form itself.
(() => {
  const controls = () => [...document.querySelectorAll("input,textarea,select,button")]
    .filter(control => !control.parentElement.closest("select"));
  const usable = control =>
    !control.matches(":disabled") && !control.closest("[hidden],[inert],datalist,dialog:not([open])");
  // What is not rendered takes no focus, and keys would go elsewhere.
  const takesFocus = control => (control.focus(), document.activeElement === control);
  const unfold = control => {
    for (let part = control; (part = part.closest("details:not([open])"));) part.open = true;
  };
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
  const push = control => {
    control.focus();
    control.click();
    if (control.type === "reset") controls().filter(one => one.form === control.form).forEach(one => edited.delete(one));
    return ["ok", ""];
  };
  const doing = { enter, choose, tick, put, push, touch: control => (control.focus(), ["ok", ""]) };

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
  const problem = (form, button, called) => {
    if (form.hasAttribute("novalidate") || button?.hasAttribute("formnovalidate")) return "";
    const lines = ["text", "search", "tel", "url", "email", "password", "textarea"];
    const short = control =>
      edited.has(control) && lines.includes(control.type) && control.minLength > 0 && control.value &&
      control.value.length < control.minLength;
    const wrong = control =>
      control.form === form && control.willValidate && (!control.validity.valid || short(control));
    const there = controls();
    const place = there.findIndex(wrong);
    return place < 0 ? "" : `not sent, ${called(there[place])}: ${reason(there[place])}`;
  };

  const ENTERED = ["text", "search", "tel", "url", "email", "password", "number",
    "date", "month", "week", "time", "datetime-local"];
  const submits = form => controls().filter(one => one.form === form && ["submit", "image"].includes(one.type));
  const formInUse = () =>
    window.plumblineLast?.form ?? [...document.forms].find(form => submits(form).length) ?? document.forms[0];
  // The button that Enter clicks, or null, and why Enter sends nothing.
  const defaultButton = (form, called) => {
    const [first = null] = submits(form);
    if (first) return [first, first.matches(":disabled") ? `not sent, ${called(first)} is not shown now` : ""];
    const several = controls().filter(one => one.form === form && ENTERED.includes(one.type)).length > 1;
    return [null, several ? "not sent, the form has no button that sends it" : ""];
  };
  // What a form, or its button, says about how it is sent.
  const how = (form, button) => {
    const said = name => button?.getAttribute("form" + name) ?? form.getAttribute(name) ?? "";
    return { action: said("action"), method: said("method"), enctype: said("enctype") };
  };
  const elsewhere = (action, base) => {
    try { return new URL(action, base).origin !== new URL(base).origin; } catch { return true; }
  };
  // What is to be sent by which button, or what became of it.
  const sending = (step, base) => {
    const there = controls();
    // A foreign page's script may have added controls since its model was read.
    const called = control => step.called[there.indexOf(control)] ?? `'${control.name}'`;
    let button = there[step.button] ?? null;
    if (button && !usable(button)) return { attempt: ["refused", `${called(button)} is not shown now`] };
    const form = button ? button.form : formInUse();
    if (!form) return { attempt: ["not found", "there is no form on this page"] };
    let why = "";
    if (!button) [button, why] = defaultButton(form, called);
    why ||= problem(form, button, called);
    const { action, method } = how(form, button);
    if (!why && elsewhere(action, base)) why = "not sent, its address is not one of this site";
    if (why) return { attempt: ["refused", why] };
    return method.toLowerCase() === "dialog" ? { attempt: ["ok", ""] } : { form, button };
  };
  // Whether Enter in the control that was used last sends its form.
  const pressed = () => {
    const last = window.plumblineLast;
    if (!last || ["file", "color"].includes(last.type) || last.tagName === "SELECT") return false;
    if (["button", "reset"].includes(last.type)) push(last);
    else if (last.tagName === "TEXTAREA") write(last, last.value + "\n");
    else return Boolean(last.form) && !defaultButton(last.form, () => "")[1];
    return false;
  };

  // Operations up to the first that sends a form, which is left to the caller.
  // Returns what became of each, what is to be sent now, and whether the time is up.
  const carryOut = (steps, milliseconds, base) => {
    const until = performance.now() + milliseconds;
    const attempts = [];
    for (const step of steps) {
      if (performance.now() > until) return { attempts, sent: null, cut: true };
      if (step.op === "return" && !pressed()) { attempts.push(["ok", ""]); continue; }
      if (step.op === "send" || step.op === "return") {
        const { attempt, ...sent } = sending(step, base);
        if (!attempt) return { attempts, sent, cut: false };
        attempts.push(attempt);
        continue;
      }
      const control = controls()[step.index];
      if (!control) { attempts.push(["not found", "the page has changed"]); continue; }
      unfold(control);
      if (!usable(control) || (step.op === "enter" && !takesFocus(control))) {
        attempts.push(["refused", `${step.called} is not shown now`]);
        continue;
      }
      window.plumblineLast = control;
      attempts.push(doing[step.op](control, step));
    }
    return { attempts, sent: null, cut: false };
  };

  // What a form would send: names and values; a file by its name.
  const entries = ({ form, button }) => [...new FormData(form, button)].map(([name, value]) =>
    value instanceof File ? [name, value.name, true] : [name, value, false]);

  // A page written again in this one, and operations on it.
  const onNewPage = (html, steps, milliseconds) => {
    window.plumblineLast = null;
    document.open();
    document.write(html);
    document.close();
    const { attempts, sent, cut } = carryOut(steps, milliseconds, "http://site/");
    const given = sent && { entries: entries(sent), how: how(sent.form, sent.button) };
    return { attempts, send: Boolean(sent), cut, ...given };
  };

  const press = ({ form, button }) => {
    form.removeAttribute("target");
    button?.removeAttribute("formtarget");
    if (button) button.click();
    else HTMLFormElement.prototype.requestSubmit.call(form);
  };
  // Operations on the page that is open; where they send the form, that comes right after the answer to this call.
  const onThisPage = (steps, milliseconds) => {
    const { attempts, sent, cut } = carryOut(steps, milliseconds, location.href);
    if (sent) setTimeout(press, 0, sent);
    return { attempts, send: Boolean(sent), cut };
  };
  // The page as it is now. Where the parser tied a control to a form that it does not stand in, attributes say so.
  const read = () => {
    const forms = [...document.forms];
    const apart = controls().filter(one => one.form && !one.hasAttribute("form") && one.form !== one.closest("form"));
    const marked = apart.length ? [...forms, ...apart] : [];
    for (const one of marked) one.setAttribute("data-plumbline-owner", forms.indexOf(forms.includes(one) ? one : one.form));
    const html = document.documentElement.outerHTML;
    for (const one of marked) one.removeAttribute("data-plumbline-owner");
    return html;
  };
  return { onNewPage, onThisPage, read };
})()

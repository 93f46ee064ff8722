// Carries out operations on the page that is open, by the hand: one call for as many as there are.
// An operation is an object with `op` and the place of its control among the controls of the page.
// Browsers check minlength after keys that a user pressed, and not after a script's edits, so it is checked here.
// A control may be called `action` or `submit`, so attributes and methods of a form are not read from the form itself.
(() => {
  const { focus, write, pick, choose, tick, attach, push } = plumbline.hand;
  const OK = ["ok", ""];
  let last = null;
  const controls = () => [...document.querySelectorAll("input,textarea,select,button")]
    .filter(control => !control.parentElement.closest("select"));
  const usable = control =>
    !control.matches(":disabled") && !control.closest("[hidden],[inert],datalist,dialog:not([open])");
  // What is not rendered takes no focus, and keys would go elsewhere.
  const takesFocus = control => (focus(control), document.activeElement === control);
  const unfold = control => {
    for (let part = control; (part = part.closest("details:not([open])"));) part.open = true;
  };

  const edited = new WeakSet();
  const edit = (control, text) => {
    edited.add(control);
    write(control, text);
  };
  const PICKED = ["date", "month", "week", "time", "datetime-local", "range", "color"];
  const enter = (control, step) => {
    if (PICKED.includes(control.type)) pick(control, step.text);
    else edit(control, step.clear ? step.text : control.value + step.text);
    const bad = control.validity.badInput;
    if (bad) edit(control, "");
    return step.refused || bad ? ["refused", `${step.called} takes no such ${control.type}`] : OK;
  };
  const opt = (control, step) => {
    const option = control.options[step.place];
    if (!option) return ["not found", "the page has no such option now"];
    choose(option, step.on);
    return OK;
  };
  const click = control => {
    push(control);
    if (control.type === "reset") controls().filter(one => one.form === control.form).forEach(one => edited.delete(one));
    return OK;
  };
  const doing = {
    enter,
    choose: opt,
    tick: (control, step) => (tick(control, step.on), OK),
    put: (control, step) => (attach(control, new File([step.content], step.name, { type: step.type })), OK),
    push: click,
    touch: control => (focus(control), OK),
  };

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
    last?.form ?? [...document.forms].find(form => submits(form).length) ?? document.forms[0];
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
    return method.toLowerCase() === "dialog" ? { attempt: OK } : { form, button };
  };
  // Whether Enter in the control that was used last sends its form.
  const pressed = () => {
    if (!last || ["file", "color"].includes(last.type) || last.tagName === "SELECT") return false;
    if (["button", "reset"].includes(last.type)) click(last);
    else if (last.tagName === "TEXTAREA") edit(last, last.value + "\n");
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
      if (step.op === "return" && !pressed()) { attempts.push(OK); continue; }
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
      last = control;
      attempts.push(doing[step.op](control, step));
    }
    return { attempts, sent: null, cut: false };
  };

  // What a form would send: names and values; a file by its name.
  const entries = ({ form, button }) => [...new FormData(form, button)].map(([name, value]) =>
    value instanceof File ? [name, value.name, true] : [name, value, false]);

  // A page written again in this one, and operations on it.
  const onNewPage = (html, steps, milliseconds) => {
    last = null;
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
    if (button) push(button);
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
  plumbline.form = { onNewPage, onThisPage, read };
})();

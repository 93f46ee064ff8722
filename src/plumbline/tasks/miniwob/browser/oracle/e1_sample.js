oracles["click-button"] = function* (page) {
  const name = /"(.*)"/.exec(page.utterance)[1];
  yield { do: "click", on: [...page.root.querySelectorAll("button")].find(one => one.textContent === name) };
};
oracles["enter-text"] = function* (page) {
  yield { do: "type", on: page.root.querySelector("input"), text: /"(.*)"/.exec(page.utterance)[1] };
  yield { do: "click", on: page.seen("button", "Submit") };
};

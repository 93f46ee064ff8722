// Functions that oracles share: each is a method of the `page` that an oracle is given.
shared.button = function (name) { return this.seen("button", name); };

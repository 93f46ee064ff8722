"""Published models that one command turns into an ordinary model directory, by pip alone."""

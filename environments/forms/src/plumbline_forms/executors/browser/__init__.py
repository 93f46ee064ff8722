"""Plans carried out in a real Chromium, on the site as it is served or in a page that is written anew for each plan."""

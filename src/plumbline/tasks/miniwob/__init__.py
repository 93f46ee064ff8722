"""The web tasks of MiniWoB++, in a real Chromium."""

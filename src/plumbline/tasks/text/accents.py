"""Letters without their accents, for whoever compares what was written by what it says."""

import unicodedata


def without_accents(text: str) -> str:
    """A text in Unicode's compatibility decomposition (NFKD), less its combining marks: "São" becomes "Sao"."""
    if text.isascii():
        return text
    return "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))

"""The sections of the HTML report, one file each, in the order of the page."""

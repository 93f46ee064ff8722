"""`python -m plumbline` is the `plumbline` command."""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] in {"", os.getcwd()}:  # noqa: PTH109
    del sys.path[0]  # `python -m` puts the working directory first, and a file there must hide no module

from plumbline.cli import main

if __name__ == "__main__":
    main()

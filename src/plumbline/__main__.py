"""`python -m plumbline` is the `plumbline` command."""

from plumbline.cli import main

if __name__ == "__main__":
    main()

"""Know how `python -m servebench.cli` starts: as the command `servebench` does."""

from servebench.cli.start import main

main()

"""Know how the checking process is started: `python -m servebench.acceptance DESCRIPTOR`."""

import sys

from servebench.acceptance.process import serve

if __name__ == "__main__":
    serve(int(sys.argv[1]))

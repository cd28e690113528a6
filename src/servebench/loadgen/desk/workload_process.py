"""Know how a workload file is read in a process of its own: JSON on stdout, faults on stderr."""

import sys

from servebench.core.errors import ServebenchError
from servebench.workload.codec import encode_workload
from servebench.workload.load import load_workload


def main() -> int:
    """Read the workload named by the only argument; return the exit code."""
    try:
        workload = load_workload(sys.argv[1])
    except ServebenchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.buffer.write(encode_workload(workload))
    return 0


if __name__ == "__main__":
    sys.exit(main())

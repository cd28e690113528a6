"""Know what to do when the disk does not take a file."""

import errno
from pathlib import Path

from servebench.core.errors import HarnessError

_WAYS_OUT = {
    errno.ENOSPC: "free space on that disk, or give another folder with --out",
    errno.EDQUOT: "raise the disk quota, or give another folder with --out",
    errno.EFBIG: "raise the file size limit (ulimit -f)",
    errno.EROFS: "give a writable folder with --out",
    errno.EACCES: "give a writable folder with --out",
    errno.EPERM: "give a writable folder with --out",
    errno.ENOENT: "leave the run folder in place while the run goes on",
    errno.EEXIST: "a part is never overwritten; give each worker incarnation its own name",
    errno.EISDIR: "move away the folder of that name",
    errno.ENOTDIR: "move away the file of that name",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.EIO: "check that disk, or give another folder with --out",
}


def refused(path: Path, error: OSError) -> HarnessError:
    """Return the error that says which file could not be written, why, and the way out."""
    way_out = _WAYS_OUT.get(error.errno or 0, "see the reason above; finished parts stay readable")
    return HarnessError(f"cannot write {path}: {error.strerror or error}; {way_out}")

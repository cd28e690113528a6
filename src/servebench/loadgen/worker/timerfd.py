"""Know how to sleep until an absolute time under gevent, and how another greenlet moves that time.

libev waits in whole milliseconds, so `gevent.sleep` is late by 0.5-1 ms at the median. A timerfd on CLOCK_MONOTONIC
with TFD_TIMER_ABSTIME is a plain file descriptor to the loop and is late by tens of microseconds.
"""

import contextlib
import ctypes
import os
import sys

import gevent

from servebench.core.errors import HarnessError
from servebench.core.units import NS_PER_S
from servebench.loadgen.next_due import NextDue

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_READ = 1
_FIRST = 2
"""libev's highest priority: of what is ready in one iteration, this is served first."""


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


class TimerFd:
    """One wake-up at a time for one sleeping greenlet, before everything else that the loop has to do then.

    `next_due` hears of each wake-up, so that others make room for it.
    """

    def __init__(self, next_due: NextDue | None = None) -> None:
        self._next_due = next_due or NextDue()
        self._asleep = False
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = _create(self._libc)
        self._watcher = gevent.get_hub().loop.io(self._fd, _READ, priority=_FIRST)

    def arm(self, at_ns: int) -> None:
        """Move the wake-up to monotonic `at_ns`; any greenlet, does not block.

        A time in the past wakes the sleeper at once. It moves the sleep in progress; the next `sleep_until` sets
        its own time.
        """
        if self._asleep:
            self._next_due.at_ns = at_ns
        seconds, rest = divmod(max(at_ns, 1), NS_PER_S)  # an all-zero value would disarm the timer
        if sys.version_info >= (3, 13):
            os.timerfd_settime_ns(self._fd, flags=os.TFD_TIMER_ABSTIME, initial=max(at_ns, 1))
            return
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, rest))
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None):
            raise _failure("timerfd_settime")

    def sleep_until(self, at_ns: int) -> None:
        """Block the calling greenlet until monotonic `at_ns`, or the time that `arm` moved it to.

        Lets the loop run even when the time has passed. Only one greenlet may sleep at a time.
        """
        self._asleep = True
        self.arm(at_ns)
        gevent.get_hub().wait(self._watcher)
        self._asleep = False
        self._next_due.clear()
        with contextlib.suppress(BlockingIOError):  # moved to a later time after it had fired: woken too early
            os.read(self._fd, 8)

    def close(self) -> None:
        """Free the timer; no greenlet may be asleep on it. Does not block; a second call changes nothing."""
        if self._fd < 0:
            return
        self._next_due.clear()
        self._watcher.stop()
        self._watcher.close()
        os.close(self._fd)
        self._fd = -1


def _create(libc: ctypes.CDLL) -> int:
    if sys.version_info >= (3, 13):
        return os.timerfd_create(_CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
    fd = int(libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    if fd < 0:
        raise _failure("timerfd_create")
    return fd


def _failure(call: str) -> HarnessError:
    return HarnessError(f"{call}: {os.strerror(ctypes.get_errno())}; servebench needs Linux with timerfd")

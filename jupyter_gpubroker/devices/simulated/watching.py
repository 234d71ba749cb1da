# SPDX-License-Identifier: BSD-3-Clause
"""Learn of changes in folders from the kernel (inotify), without looking at them."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...core.model import Seconds
from .. import DeviceError

_CLOSE_WRITE, _MOVED, _CREATE_DELETE = 0x8, 0x40 | 0x80, 0x100 | 0x200
_MASK = _CLOSE_WRITE | _MOVED | _CREATE_DELETE
"""A file that was open for writing is closed also when its process dies."""
_HEAD = struct.Struct("iIII")
"""Watch, mask, cookie, length of the name that follows."""
_READ_MAX = 65536


class Watch:
    """Collects what happens in some folders from the moment it is made."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """DeviceError if this system has no inotify, or none left for us."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders = {
            self._call("inotify_add_watch", self._fd, os.fsencode(folder), _MASK): folder
            for folder in folders
        }

    def wait(self, timeout: Seconds) -> Sequence[Path]:
        """The files that came, went or were closed, each once; empty after ``timeout``."""
        ready = select.poll()
        ready.register(self._fd, select.POLLIN)
        if not ready.poll(timeout * 1000):
            return ()
        return tuple(dict.fromkeys(self._files(os.read(self._fd, _READ_MAX))))

    def _files(self, data: bytes) -> Iterator[Path]:
        at = 0
        while at < len(data):
            watch, _mask, _cookie, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            folder = self._folders.get(watch)
            if folder is not None:  # None: the kernel's own, for example that it dropped some
                yield folder / os.fsdecode(data[at - length : at].rstrip(b"\0"))

    def _call(self, name: str, *args: object) -> int:
        found: int = getattr(self._libc, name)(*args)
        if found < 0:
            reason = os.strerror(ctypes.get_errno())
            raise DeviceError(f"changes of simulated devices cannot be watched: {reason}")
        return found

    def __del__(self) -> None:
        if fd := self.__dict__.pop("_fd", None):
            os.close(fd)

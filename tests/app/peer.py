# SPDX-License-Identifier: BSD-3-Clause
"""Run by the system's Python as another account: one request over a unix socket.

::

    python3 -c SOURCE SOCKET METHOD PATH [BODY]      prints the status and the answer
"""

import http.client
import socket
import sys


class Unix(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])


connection = Unix("localhost", timeout=60)
body = sys.argv[4] if len(sys.argv) > 4 else None
connection.request(sys.argv[2], sys.argv[3], body, {"Content-Type": "application/json"})
answer = connection.getresponse()
sys.stdout.write(f"{answer.status}\n{answer.read().decode()}\n")

"""TCP connections of sockets with themselves, which the kernel makes by chance."""

import socket


class SelfConnecting(socket.socket):
    """Calls from the very port that it calls, at which nobody listens."""

    def connect(self, address):
        self.bind(address)
        super().connect(address)

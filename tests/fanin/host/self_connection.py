"""TCP connections of sockets with themselves, which the kernel makes by chance."""

import socket


class SelfConnecting(socket.socket):
    """A client whose own port is the one that it connects to, without a server."""

    def connect(self, address):
        self.bind(address)
        super().connect(address)

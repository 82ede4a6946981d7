"""A real SFTP server on loopback (asyncssh) for one folder, with keys of its own."""

import asyncio
import threading
from pathlib import Path

import asyncssh


class SftpServer:
    """The server, in its own thread. A context manager; `key` is the client's key file."""

    def __init__(self, folder: Path, keys: Path) -> None:
        self.folder = folder
        self.port = 0
        folder.mkdir(exist_ok=True)
        keys.mkdir(exist_ok=True)
        client = asyncssh.generate_private_key("ssh-ed25519")
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.key = keys / "client"
        client.write_private_key(str(self.key))
        self._authorized_keys = keys / "authorized"
        self._authorized_keys.write_bytes(client.export_public_key())
        self._ready = threading.Event()
        self._connections: list[asyncssh.SSHServerConnection] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._ready.set()
        self._loop.run_forever()
        self._server.close()
        for connection in self._connections:
            connection.abort()
        self._loop.run_until_complete(
            asyncio.gather(*(connection.wait_closed() for connection in self._connections))
        )
        self._loop.run_until_complete(self._server.wait_closed())
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    async def _listen(self) -> None:
        root = bytes(self.folder)
        self._server = await asyncssh.listen(
            "127.0.0.1",
            0,
            acceptor=self._connections.append,
            server_host_keys=[self._host_key],
            authorized_client_keys=str(self._authorized_keys),
            sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=root),
        )
        self.port = self._server.get_port()

    def __enter__(self) -> "SftpServer":
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

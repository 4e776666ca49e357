"""The pages on a real port, and clients that mean ill."""

from __future__ import annotations

import asyncio
import socket

from fdbqueue.web.server import listen


def test_what_is_sent_leaves_at_once() -> None:
    async def accepted() -> int:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen("127.0.0.1", 0) as listening:
            async with await asyncio.start_server(connected, sock=listening):
                _, writer = await asyncio.open_connection(*listening.getsockname())
                try:
                    return await found
                finally:
                    writer.close()

    assert asyncio.run(accepted())

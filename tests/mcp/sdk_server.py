"""A server made with the official Python SDK: sdk_server.py stdio | http PORT."""

import sys

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer

server = MCPServer("python-sdk", instructions="a server for tests", version="7")

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000" "1f15c4890000000a49444154789c63"
    "00010000050001" "0d0a2db40000000049454e44ae426082"
)


@server.tool()
def add(a: int, b: int) -> dict[str, int]:
    """Adds two numbers."""
    return {"sum": a + b}


@server.tool(name="echo text")
def echo(text: str) -> str:
    """Says it again."""
    return text


@server.tool()
def picture() -> Image:
    """One pixel."""
    return Image(data=PIXEL, format="png")


@server.tool()
def fails() -> str:
    """Never works."""
    raise ValueError("it never works")


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Takes its time, and says how far it is."""
    for step in range(4):
        await ctx.report_progress(step, 4)
        await anyio.sleep(seconds / 4)
    return "at last"


if sys.argv[1] == "stdio":
    print("a word for people", file=sys.stderr)
    server.run("stdio")
else:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))

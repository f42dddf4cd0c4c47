"""A server without an SDK, and what servers get wrong: odd_server.py MODE [WORD].

`good` is a server of the legacy era with a tool that reads files; the other modes go wrong in the
way that their names tell.
"""

import json
import os
import sys
import time

MODE = sys.argv[1]
TOOL = {"name": "read", "description": "Reads a file.", "inputSchema": {"type": "object"}}


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def answer(number, result):
    say(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}))


def refuse(number, code, message):
    error = {"code": code, "message": message}
    say(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}))


def initialize(number, params):
    if MODE == "garbage":
        for _ in range(100_000):
            say("Welcome to this server! \x1b[31m")
    if MODE == "greets":
        say("Welcome to this server!")
        say("")
        say('{"level": "info"}')
    if MODE == "huge-line":
        for _ in range(1000):
            sys.stdout.write("x" * 100_000)
        sys.stdout.flush()
    if MODE == "deep":
        say('{"jsonrpc":"2.0","id":%d,"result":%s' % (number, '{"a":' * 100_000))
    if MODE == "old-version":
        version = "1999-01-01"
    else:
        version = params["protocolVersion"]
    capabilities = {"tools": {}}
    answer(number, {"protocolVersion": version, "capabilities": capabilities,
                    "serverInfo": {"name": "odd", "version": "1"}})


def list_tools(number, params):
    if MODE == "endless-list":
        page = int(params.get("cursor", "0"))
        tools = [{**TOOL, "name": f"t{page}_{i}"} for i in range(100)]
        answer(number, {"tools": tools, "nextCursor": str(page + 1)})
    elif MODE == "circular-list":
        answer(number, {"tools": [], "nextCursor": "again"})
    elif MODE == "bad-tools":
        tools = [TOOL, {"name": ""}, {"name": "no schema"}, 7, {**TOOL, "name": "re.ad"},
                 {**TOOL, "name": "re ad"}]
        answer(number, {"tools": tools})
    else:
        answer(number, {"tools": [TOOL]})


def call_tool(number, params):
    if MODE == "wrong-id":
        answer(number + 1000, {"content": []})
    elif MODE == "duplicate":
        for text in ("first", "second"):
            answer(number, {"content": [{"type": "text", "text": text}]})
    elif MODE == "dies":
        print("it hurts \x1b[31m" + "x" * 100_000 + " the end", file=sys.stderr, flush=True)
        os._exit(3)
    elif MODE == "slow":
        seconds = params["arguments"].get("seconds", 600)
        time.sleep(seconds)
        answer(number, {"content": [{"type": "text", "text": f"after {seconds}"}]})
    elif MODE == "chatty":
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 1000}}
        while True:
            say(json.dumps(note))
    elif MODE == "asks":
        for method in ("ping", "sampling/createMessage", "roots/list"):
            say(json.dumps({"jsonrpc": "2.0", "id": "q-" + method, "method": method, "params": {}}))
        heard = [json.loads(sys.stdin.readline()) for _ in range(3)]
        answer(number, {"content": [{"type": "text", "text": json.dumps(heard)}]})
    elif MODE == "not-base64":
        answer(number, {"content": [{"type": "image", "data": "\x1b", "mimeType": "image/png"}]})
    elif MODE == "deaf":
        time.sleep(600)
    else:
        try:
            with open(params["arguments"]["path"], encoding="utf-8") as file:
                text = file.read()
            answer(number, {"content": [{"type": "text", "text": text}]})
        except OSError as error:
            result = {"content": [{"type": "text", "text": str(error)}], "isError": True}
            answer(number, result)


HANDLERS = {"initialize": initialize, "tools/list": list_tools, "tools/call": call_tool}


def main():
    if MODE == "silent":
        time.sleep(600)
    if MODE == "floods-errors":
        sys.stderr.write("noise " * 1_000_000)
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method")
        if MODE == "ends-on-probe" and method != "initialize" and HANDLERS.get(method) is None:
            if method == "server/discover":
                sys.exit("the first message is not initialize")
        if "id" not in message:
            if method == "notifications/cancelled":
                print("cancelled", json.dumps(message["params"]), file=sys.stderr, flush=True)
        elif method in HANDLERS:
            HANDLERS[method](message["id"], message["params"])
        else:
            refuse(message["id"], -32601, "no such method")


main()

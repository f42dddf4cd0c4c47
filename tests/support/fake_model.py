"""A provider of models on loopback: fake_model.py DIRECTORY

Speaks the Messages API (POST .../messages) and chat completions (POST .../chat/completions), both as
streams. DIRECTORY/steps.json is a list; each request takes the next step:

    {"text": "...", "calls": [{"name": "exec", "arguments": {...}}]}   an answer; `arguments` may be
                                                                       a text, which is sent as it is
    {"status": 429, "headers": {"retry-after": "0"}, "body": {...}}    a refusal
    {"cut": "head" | "stream"}     the connection ends before the answer, or in the middle of it
    {"raw": "..."}                 these bytes as the body of a stream
    {"sleep": 5}                   says nothing for so long, then goes

If it is {"turns": [[STEP, ...], ...]} instead, the conversation tells which one is due: the turn by how
many prompts there are, and the step by how many answers since the last of them. The record of such a
request has its "turn", from 1.

What was asked is added to DIRECTORY/requests.jsonl. Prints its port.
"""
import http.server
import json
import os
import sys
import threading
import time

directory = sys.argv[1]
lock = threading.Lock()
taken = 0


NO_MORE = {"status": 400, "body": {"error": {"message": "the test has no more steps"}}}


def is_prompt(message):
    content = message["content"]
    results = isinstance(content, list) and any(b.get("type") == "tool_result" for b in content)
    return message["role"] == "user" and not results


def place_of(messages):
    """The turn that is asked for, from 1, and how many answers it has already."""
    prompts = [i for i, message in enumerate(messages) if is_prompt(message)]
    answers = [m for m in messages[prompts[-1]:] if m["role"] == "assistant"]
    return len(prompts), len(answers)


def next_step(record):
    global taken
    with lock:
        with open(os.path.join(directory, "steps.json"), encoding="utf-8") as source:
            steps = json.load(source)
        if isinstance(steps, dict):
            record["turn"], answers = place_of(record["body"]["messages"])
            turns = steps["turns"]
            due = turns[record["turn"] - 1] if record["turn"] <= len(turns) else []
            step = due[answers] if answers < len(due) else NO_MORE
        else:
            step = steps[taken] if taken < len(steps) else NO_MORE
        with open(os.path.join(directory, "requests.jsonl"), "a", encoding="utf-8") as out:
            out.write(json.dumps(record) + "\n")
        taken += 1
    return step


def pieces(text, size=7):
    return [text[i:i + size] for i in range(0, len(text), size)]


def arguments_text(call):
    arguments = call.get("arguments", {})
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def anthropic_events(step):
    yield {"type": "message_start", "message": {"usage": {"input_tokens": 100, "output_tokens": 1}}}
    index = 0
    if step.get("text"):
        yield {"type": "content_block_start", "index": 0,
               "content_block": {"type": "text", "text": ""}}
        for piece in pieces(step["text"]):
            yield {"type": "content_block_delta", "index": 0,
                   "delta": {"type": "text_delta", "text": piece}}
        yield {"type": "content_block_stop", "index": 0}
        index = 1
    for number, call in enumerate(step.get("calls", [])):
        yield {"type": "content_block_start", "index": index + number,
               "content_block": {"type": "tool_use",
                                 "id": call.get("id", f"toolu_{taken}_{number}"),
                                 "name": call.get("name", ""), "input": {}}}
        for piece in pieces(arguments_text(call)):
            yield {"type": "content_block_delta", "index": index + number,
                   "delta": {"type": "input_json_delta", "partial_json": piece}}
        yield {"type": "content_block_stop", "index": index + number}
    reason = "tool_use" if step.get("calls") else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 20}}
    yield {"type": "message_stop"}


def openai_events(step):
    for piece in pieces(step.get("text", "")):
        yield {"choices": [{"index": 0, "delta": {"content": piece}}]}
    for number, call in enumerate(step.get("calls", [])):
        yield {"choices": [{"index": 0, "delta": {"tool_calls": [
            {"index": number, "id": call.get("id", f"call_{taken}_{number}"), "type": "function",
             "function": {"name": call.get("name", ""), "arguments": ""}}]}}]}
        for piece in pieces(arguments_text(call)):
            yield {"choices": [{"index": 0, "delta": {"tool_calls": [
                {"index": number, "function": {"arguments": piece}}]}}]}
    reason = "tool_calls" if step.get("calls") else "stop"
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    yield {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 20}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def chunk(self, text):
        data = text.encode("utf-8", "surrogateescape")
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def refuse(self, step):
        text = json.dumps(step.get("body", {})).encode()
        self.send_response(step["status"])
        for name, value in step.get("headers", {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        step = next_step({"path": self.path, "headers": dict(self.headers.items()),
                          "body": json.loads(body)})
        self.close_connection = True
        if "sleep" in step:
            time.sleep(step["sleep"])
            return
        if step.get("cut") == "head":
            return
        if "status" in step:
            self.refuse(step)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if "raw" in step:
            self.chunk(step["raw"])
        elif self.path.endswith("/messages"):
            events = list(anthropic_events(step))
            for event in events[:3] if step.get("cut") else events:
                self.chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n")
        else:
            events = list(openai_events(step))
            for event in events[:1] if step.get("cut") else events:
                self.chunk(f"data: {json.dumps(event)}\n\n")
            if not step.get("cut"):
                self.chunk("data: [DONE]\n\n")
        if not step.get("cut"):
            self.wfile.write(b"0\r\n\r\n")


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()

// A server made with an official TypeScript SDK: sdk_server.mjs LINE stdio | http PORT. LINE is legacy
// (the 1.x line) or modern (2.x, which implements 2026-07-28). MCP_SDK is the folder that has its
// node_modules.
import http from "node:http";
import { createRequire } from "node:module";
import { randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.env.MCP_SDK + "/"));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { z } = await load("zod");

const pixel =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAACklEQVR4nGMAAQAABQABDQottAAAAABJRU5ErkJggg==";
const text = (words) => ({ content: [{ type: "text", text: words }] });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// `about` tells of a call how its progress is asked for and told.
function fill(server, about) {
  server.registerTool(
    "add",
    {
      description: "Adds two numbers.",
      inputSchema: z.object({ a: z.number(), b: z.number() }),
      outputSchema: z.object({ sum: z.number() }),
    },
    async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { sum: a + b } }),
  );
  server.registerTool(
    "echo text",
    { description: "Says it again.", inputSchema: z.object({ text: z.string() }) },
    async (given) => text(given.text),
  );
  server.registerTool("picture", { description: "One pixel." }, async () => ({
    content: [{ type: "image", data: pixel, mimeType: "image/png" }],
  }));
  server.registerTool("fails", { description: "Never works." }, async () => {
    throw new Error("it never works");
  });
  server.registerTool(
    "slow",
    { description: "Takes its time.", inputSchema: z.object({ seconds: z.number() }) },
    async ({ seconds }, call) => {
      const { token, notify } = about(call);
      for (let step = 0; step < 4; ++step) {
        if (token !== undefined) {
          await notify({
            method: "notifications/progress",
            params: { progressToken: token, progress: step, total: 4 },
          });
        }
        await sleep(seconds * 250);
      }
      return text("at last");
    },
  );
  return server;
}

async function body(request) {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  return pieces.length === 0 ? undefined : JSON.parse(Buffer.concat(pieces).toString());
}

const identity = { name: "typescript-sdk", version: "7" };
const [line, way, port] = process.argv.slice(2);
if (way === "stdio") console.error("a word for people");

if (line === "modern") {
  const { McpServer, createMcpHandler } = await load("@modelcontextprotocol/server");
  const make = () =>
    fill(new McpServer(identity), ({ mcpReq }) => ({
      token: mcpReq._meta?.progressToken,
      notify: mcpReq.notify,
    }));
  if (way === "stdio") {
    const { serveStdio } = await load("@modelcontextprotocol/server/stdio");
    serveStdio(make);
  } else {
    const { toNodeHandler } = await load("@modelcontextprotocol/node");
    http.createServer(toNodeHandler(createMcpHandler(make))).listen(Number(port), "127.0.0.1");
  }
} else {
  const sdk = (name) => load("@modelcontextprotocol/sdk/" + name);
  const { McpServer } = await sdk("server/mcp.js");
  const make = () =>
    fill(new McpServer(identity), (extra) => ({
      token: extra._meta?.progressToken,
      notify: extra.sendNotification,
    }));
  if (way === "stdio") {
    const { StdioServerTransport } = await sdk("server/stdio.js");
    await make().connect(new StdioServerTransport());
  } else {
    const { StreamableHTTPServerTransport } = await sdk("server/streamableHttp.js");
    const sessions = new Map();
    const server = http.createServer(async (request, response) => {
      const id = request.headers["mcp-session-id"];
      const message = await body(request);
      if (id === undefined && message?.method === "initialize") {
        const transport = new StreamableHTTPServerTransport({
          sessionIdGenerator: randomUUID,
          onsessioninitialized: (name) => void sessions.set(name, transport),
          onsessionclosed: (name) => void sessions.delete(name),
        });
        await make().connect(transport);
        await transport.handleRequest(request, response, message);
      } else if (sessions.has(id)) {
        await sessions.get(id).handleRequest(request, response, message);
      } else {
        response.writeHead(id === undefined ? 400 : 404).end();
      }
    });
    server.listen(Number(port), "127.0.0.1");
  }
}

// A server made with the official TypeScript SDK, of the 1.x line (the legacy era): sdk_server.mjs
// stdio | http PORT. MCP_SDK is the folder that has its node_modules.
import http from "node:http";
import { createRequire } from "node:module";
import { randomUUID } from "node:crypto";
import { pathToFileURL } from "node:url";

const require = createRequire(pathToFileURL(process.env.MCP_SDK + "/"));
const sdk = (name) => import(pathToFileURL(require.resolve("@modelcontextprotocol/sdk/" + name)));
const { McpServer } = await sdk("server/mcp.js");
const { StdioServerTransport } = await sdk("server/stdio.js");
const { StreamableHTTPServerTransport } = await sdk("server/streamableHttp.js");
const { z } = await import(pathToFileURL(require.resolve("zod")));

const pixel =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAACklEQVR4nGMAAQAABQABDQottAAAAABJRU5ErkJggg==";
const text = (words) => ({ content: [{ type: "text", text: words }] });
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

function make() {
  const server = new McpServer({ name: "typescript-sdk", version: "7" });
  server.registerTool(
    "add",
    {
      description: "Adds two numbers.",
      inputSchema: { a: z.number(), b: z.number() },
      outputSchema: { sum: z.number() },
    },
    async ({ a, b }) => ({ ...text(String(a + b)), structuredContent: { sum: a + b } }),
  );
  server.registerTool(
    "echo text",
    { description: "Says it again.", inputSchema: { text: z.string() } },
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
    { description: "Takes its time.", inputSchema: { seconds: z.number() } },
    async ({ seconds }, extra) => {
      for (let step = 0; step < 4; ++step) {
        const token = extra._meta?.progressToken;
        if (token !== undefined) {
          await extra.sendNotification({
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

if (process.argv[2] === "stdio") {
  console.error("a word for people");
  await make().connect(new StdioServerTransport());
} else {
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
  server.listen(Number(process.argv[3]), "127.0.0.1");
}

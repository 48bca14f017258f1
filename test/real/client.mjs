// An MCP client for the tests, made of the official TypeScript SDK. The first line on stdin says where to connect:
//
//   {"transport":"stdio","command":"…","args":[…],"env":{…},"cwd":"…"}   or   {"transport":"http","url":"…"}
//
// Each further line is a request, {"method":"…","params":{…}}, and is answered by one line: the response as it came, a JSON
// object with "result" or "error". The first line is answered by the result of initialize. The end of stdin ends it.
//
// The SDK reads messages with JSON.parse: integers beyond 2^53 lose digits, 1.0 becomes 1, and of repeated keys the last
// one counts. What needs the bytes is tested with a client in Go.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { getDefaultEnvironment, StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ResultSchema } from "@modelcontextprotocol/sdk/types.js";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");

const first = JSON.parse((await lines.next()).value);
const transport =
  first.transport === "http"
    ? new StreamableHTTPClientTransport(new URL(first.url))
    : new StdioClientTransport({
        command: first.command,
        args: first.args,
        env: { ...getDefaultEnvironment(), ...first.env },
        cwd: first.cwd,
        stderr: "inherit",
        maxBufferSize: 256 << 20,
      });

let last; // the latest response, before any schema has looked at it
transport.onmessage = (message) => {
  if (message.result !== undefined || message.error !== undefined) last = message;
};
const client = new Client({ name: "real-client", version: "1.0.0" });
await client.connect(transport);
say(last);

for await (const line of lines) {
  const { method, params } = JSON.parse(line);
  last = undefined;
  try {
    await client.request({ method, params }, ResultSchema, { timeout: 120_000 });
    say(last);
  } catch (err) {
    say(last ?? { error: { code: err.code ?? 0, message: String(err.message ?? err) } });
  }
}
await client.close();

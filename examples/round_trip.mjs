#!/usr/bin/env node
// One round trip with fetch alone: a branch, an operate whose stream breaks and is resumed, and what is left of it.
// usage: [API_KEY=bl_...] node examples/round_trip.mjs [URL [MODEL]]     with `bin/run` in another terminal
// Needs Node 18 or newer and nothing else; it is also a client to copy from.

const url = process.argv[2] ?? "http://127.0.0.1:8000";
const model = process.argv[3] ?? "local";
const key = process.env.API_KEY;

/** A request; refusals are problems, whose `code` is stable and whose `detail` says what to do. */
async function send(method, path, { body, headers, signal } = {}) {
  const answer = await fetch(url + path, {
    method,
    signal,
    headers: {
      ...(key && { Authorization: `Bearer ${key}` }),
      ...(body && { "Content-Type": "application/json" }),
      ...headers,
    },
    body: body && JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer;
}

const get = async (path) => (await send("GET", path)).json();
const post = async (path, body) => (await send("POST", path, { body })).json();

/** Server-sent events of an answer, as {id, event, data}. Comments and `retry:` are left out. */
async function* frames(answer) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const piece of answer.body) {
    const blocks = (rest + decoder.decode(piece, { stream: true })).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const frame = {};
      for (const line of block.split("\n")) {
        const [, name, value] = /^(id|event|data): (.*)$/.exec(line) ?? [];
        if (name) frame[name] = name === "data" ? JSON.parse(value) : value;
      }
      if (frame.data) yield frame;
    }
  }
}

/**
 * The events of a run from its request on, each once, however often the connection breaks: whatever ends a stream
 * but `stream.end`, the run goes on, and so does its log after the last id that was seen.
 */
async function* follow(open) {
  let run, last;
  for (let tries = 0; tries < 5; ) {
    try {
      const headers = { Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
      const answer = run ? await send("GET", `/v1/runs/${run}/events`, { headers }) : await open(headers);
      if (answer.status === 204) return; // the last event had been seen already
      for await (const { id, event, data } of frames(answer)) {
        if (event === "stream.end") return;
        [run, last, tries] = [data.run_id, id, 0];
        yield data;
      }
    } catch (error) {
      if (!run) throw error; // nothing was started, or we cannot know: repeat it with an Idempotency-Key
      console.log(`           (the connection broke after ${last.split(":")[1]}: ${error.name})`);
      tries += 1;
    }
  }
  throw new Error("the events cannot be read");
}

/** The text as a client shows it: the main stream's tokens, cut wherever an event says so. */
class Text {
  points = [];
  take(event) {
    if (event.type === "SESSION_START" && event.meta.purpose === "main") this.stream = event.stream_id;
    if (event.stream_id !== this.stream || !this.stream) return;
    if ("contentOffset" in event.meta) this.points.length = event.meta.contentOffset; // code points, not UTF-16
    if (event.type === "TOKEN") this.points.push(...event.meta.text);
  }
}

const branch = await post("/v1/branches", { name: "round trip", chat_model: model, tools: ["add"] });
console.log(`branch     ${branch.id}`);

const breaking = new AbortController();
const text = new Text();
const events = [];
const instruction = "Call the tool add once with a = 19 and b = 23."; // as plain as a small model needs it
const request = { instruction, actions: true, model_options: { temperature: 0 } };
for await (const event of follow((headers) =>
  send("POST", `/v1/branches/${branch.id}/operate`, { body: request, headers, signal: breaking.signal }),
)) {
  events.push(event);
  text.take(event);
  if (event.seq === 5) breaking.abort();
}

const end = events.at(-1);
const run = await get(`/v1/runs/${end.run_id}`);
console.log(`run        ${run.id} is ${run.status}`);
console.log(`text       ${JSON.stringify(text.points.join(""))}`);
console.log(`result     ${JSON.stringify(run.result)}`);

const { data: stored } = await get(`/v1/runs/${run.id}/events?limit=1000`);
const same = JSON.stringify(stored) === JSON.stringify(events.slice(0, stored.length));
const gapless = events.every((event, index) => event.seq === index + 1);
console.log(`events     1 to ${end.seq}, none missing, none doubled: ${gapless}; as they are stored: ${same}`);

const { data: messages } = await get(`/v1/branches/${branch.id}/messages`);
console.log(`messages   ${messages.map((message) => message.kind).join(" ")}`);
const { data: calls } = await get(`/v1/function-calls?run_id=${run.id}`);
for (const call of calls) {
  console.log(`call       ${call.function}(${JSON.stringify(call.arguments)}) ${call.status}: ${call.execution.response}`);
}
process.exit(run.status === "completed" && gapless && same ? 0 : 1);

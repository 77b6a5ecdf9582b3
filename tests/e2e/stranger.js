// A client of dsecd in JavaScript, written from docs/protocol.md alone: node stranger.js STATE IMAGE
// Says hello, makes a sandbox, runs a command, reads its output, writes and reads a file, meets an error and stops;
// prints what came of each as a line of JSON.
'use strict';
const fs = require('fs');
const Socket = globalThis.WebSocket ?? require('ws');

const [state, image] = process.argv.slice(2);
const read = (name) => fs.readFileSync(`${state}/${name}`, 'utf8').trim();
const base64 = (text) => Buffer.from(text).toString('base64');
const plain = (data) => Buffer.from(data, 'base64').toString();
const say = (step, what) => console.log(JSON.stringify({ step, ...what }));

const socket = new Socket(new URL('/v1/ws', read('url')), { headers: { Authorization: `Bearer ${read('api-key')}` } });
const waiting = new Map();
let last = 0;

function ask(body) {
  const id = String(++last);
  socket.send(JSON.stringify({ id, body }));
  return new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
}

socket.onmessage = ({ data }) => {
  const { id, body } = JSON.parse(data);
  const { resolve, reject } = waiting.get(id);
  waiting.delete(id);
  if (body.error) reject(body.error);
  else resolve(Object.values(body)[0]);
};
socket.onclose = ({ code, reason }) => {
  for (const { reject } of waiting.values()) reject({ code: 'closed', message: `${code} ${reason}` });
};

async function main() {
  const hello = await ask({ hello: { protocolVersion: 1, client: 'stranger/1' } });
  say('hello', { protocolVersion: hello.protocolVersion });
  const { sandboxId } = await ask({ createSandbox: { image, memoryMb: 64 } });
  say('create', { sandboxId });
  const ref = { sandboxId, commandId: 'counts' };
  await ask({ exec: { ...ref, shell: 'cat; seq 3; exit 7', stdin: base64('hello\n') } });
  const { state: end, exitCode } = await ask({ getCommand: { ...ref, waitMs: 10000 } });
  say('exec', { state: end, exitCode });
  const output = await ask({ readOutput: { ...ref, offset: 6, length: 1000 } });
  say('output', { text: plain(output.data), total: Number(output.total), ended: output.ended });
  await ask({ writeFile: { sandboxId, path: '/made/here', data: base64('héllo') } });
  const file = await ask({ readFile: { sandboxId, path: '/made/here' } });
  say('file', { text: plain(file.data), size: Number(file.size), endOfFile: file.endOfFile });
  await ask({ readFile: { sandboxId, path: '/nothing/here' } }).catch(
    (error) => say('error', { code: error.code, retryable: error.retryable }));
  const { phase } = await ask({ stopSandbox: { sandboxId } });
  say('stop', { phase });
}

socket.onopen = () => main().catch((error) => { say('failed', error); process.exitCode = 1; })
  .finally(() => socket.close());
socket.onerror = (event) => { say('failed', { message: String(event.message) }); process.exitCode = 1; };

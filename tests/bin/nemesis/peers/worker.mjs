// A worker of `nemesis` with the lock of an npm package, used as in its documentation.
//
//     node worker.mjs redlock|redis-semaphore SERVERS STORE START TASKS LOG
//
// Two tasks take turns at a lock, and a third counts under another one. A body runs to its end, whatever its
// lock says. The lines are those of tests/bin/nemesis/event.rs.
import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import Redis from "ioredis";

const LEASE = 1000, WAIT = 5000, LOOK = 5, PAUSE = 20;
const [of, servers, store, start, tasks, log] = process.argv.slice(2);
const file = openSync(log, "a");
let stopped = false;
const between = (low, high) => low + Math.random() * (high - low);
const now = () => process.hrtime.bigint();

// An error without a listener would end the process, and the client connects again by itself.
const connect = (url) => new Redis(url).on("error", () => {});
const clients = servers.replace(/^red:/, "").split(",").map(connect);

// Each has `using(body)`: with the lock, `body(valid)` is run, in which `valid()` is what the package says.
const peers = {
  async redlock(name) {
    const { default: Redlock } = await import("redlock");
    const redlock = new Redlock(clients, { retryCount: WAIT / 100, retryDelay: 100, retryJitter: 50 });
    redlock.on("error", () => {});
    return (body) => redlock.using([name], LEASE, (signal) => body(() => !signal.aborted));
  },
  async "redis-semaphore"(name) {
    const { Mutex, RedlockMutex } = await import("redis-semaphore");
    const options = { lockTimeout: LEASE, acquireTimeout: WAIT, onLockLost: () => {} };
    const make = () => clients.length > 1 ? new RedlockMutex(clients, name, options) : new Mutex(clients[0], name, options);
    return async (body) => {
      const mutex = make();
      await mutex.acquire();
      await body(() => mutex.isAcquired);
      await mutex.release();
    };
  },
};

function journal(task, subject) {
  return (act, stage, error, at = now()) =>
    writeSync(file, `{"at":${at},"process":${process.pid},"task":${task},"subject":"${subject}","act":"${act}",` +
      `"stage":"${stage}"${error ? `,"error":${JSON.stringify(String(error.name ?? error))}` : ""}}\n`);
}

// Takes turns: `body` is run under the lock.
async function turns(using, note, body, pause) {
  while (!stopped) {
    let held = false;
    note("lock", "invoke");
    try {
      await using(async (valid) => {
        held = true;
        note("lock", "ok");
        await body(valid);
        note("end", "invoke");
      });
      note("end", "ok");
    } catch (error) {
      note(held ? "end" : "lock", held ? "info" : "fail", error);
      if (!held) await sleep(PAUSE);
    }
    await sleep(between(0, pause));
  }
}

function body(note) {
  return async (valid) => {
    const of = Math.random() * 100;
    const end = performance.now() + (of < 90 ? between(1, 12) : of < 98 ? between(20, 80) : between(1000, 1500));
    let lost = false;
    while (performance.now() < end) {
      const at = now();
      if (!lost && !valid()) {
        lost = true;
        note("lost", "ok");
      } else if (!lost) {
        note("valid", "ok", undefined, at);
      }
      await sleep(LOOK);
    }
  };
}

function counting(note, store, key) {
  return async () => {
    note("count", "invoke");
    try {
      const before = Number(await store.get(key));
      await sleep(between(5, 40));
      await store.set(key, before + 1);
      note("count", "ok");
    } catch (error) {
      note("count", "info", error);
    }
  };
}

const make = peers[of];
const all = [];
for (let task = 0; task < Number(tasks); task++) {
  const note = journal(task, "rlock");
  all.push(turns(await make(`${start}:rlock`), note, body(note), 10));
}
const note = journal(Number(tasks), "count:rlock");
const counter = counting(note, connect(store), `${start}:counter:rlock`);
all.push(turns(await make(`${start}:count:rlock`), note, counter, 20));
console.log("ready");
// The harness holds the other end.
process.stdin.resume();
await new Promise((ended) => process.stdin.on("end", ended));
stopped = true;
await Promise.all(all);
process.exit(0);

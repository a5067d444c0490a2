"""A worker of `nemesis` with the lock of a Python package, used as in its documentation.

    python3 worker.py redis-py|python-redis-lock SERVER STORE START TASKS LOG

Two threads take turns at a lock, and a third counts under another one. A body runs to its end, whatever its
lock says. The lines are those of tests/bin/nemesis/event.rs.
"""
import json
import os
import random
import sys
import threading
import time

import redis

LEASE, WAIT, LOOK, PAUSE = 1, 5, 0.005, 0.02


class RedisPy:
    """Renews nothing by itself; `owned` asks Redis."""

    def __init__(self, url, name):
        self.lock = redis.Redis.from_url(url).lock(name, timeout=LEASE, blocking_timeout=WAIT)

    def acquire(self):
        return self.lock.acquire()

    def is_valid(self):
        return self.lock.owned()

    def release(self):
        self.lock.release()


class PythonRedisLock:
    """Renews in a thread; nothing says locally whether the lock is held."""

    def __init__(self, url, name):
        import redis_lock

        self.make = lambda: redis_lock.Lock(redis.Redis.from_url(url), name, expire=LEASE, auto_renewal=True)

    def acquire(self):
        self.lock = self.make()
        return self.lock.acquire(timeout=WAIT)

    def is_valid(self):
        return self.lock.get_owner_id() == self.lock.id

    def release(self):
        self.lock.release()


class Worker:
    def __init__(self, lock, file, task, subject):
        self.lock, self.file, self.task, self.subject = lock, file, task, subject

    def note(self, act, stage, error=None, at=None):
        event = {"at": at or time.monotonic_ns(), "process": os.getpid(), "task": self.task, "subject": self.subject}
        event |= {"act": act, "stage": stage} | ({"error": error} if error else {})
        os.write(self.file, (json.dumps(event) + "\n").encode())

    def acquire(self):
        self.note("lock", "invoke")
        try:
            error = None if self.lock.acquire() else "TimedOut"
        except Exception as failed:
            error = type(failed).__name__
        self.note("lock", "fail" if error else "ok", error)
        if error:
            time.sleep(PAUSE)
        return not error

    def body(self, lasts):
        valid, end = True, time.monotonic() + lasts
        while time.monotonic() < end:
            at = time.monotonic_ns()
            if valid:
                try:
                    valid = self.lock.is_valid()
                except Exception:
                    # No answer says nothing of the lock.
                    time.sleep(LOOK)
                    continue
                self.note("valid" if valid else "lost", "ok", at=at if valid else None)
            time.sleep(LOOK)

    def end(self):
        self.note("end", "invoke")
        try:
            self.lock.release()
            self.note("end", "ok")
        except Exception as failed:
            self.note("end", "info", type(failed).__name__)

    def contend(self, stopped):
        while not stopped.is_set():
            if self.acquire():
                of = random.randrange(100)
                lasts = (1, 12) if of < 90 else (20, 80) if of < 98 else (1000, 1500)
                self.body(random.uniform(*lasts) / 1000)
                self.end()
            time.sleep(random.uniform(0, 0.01))

    def count(self, stopped, store, key):
        while not stopped.is_set():
            if not self.acquire():
                continue
            self.note("count", "invoke")
            try:
                before = int(store.get(key) or 0)
                time.sleep(random.uniform(0.005, 0.04))
                store.set(key, before + 1)
                self.note("count", "ok")
            except Exception as failed:
                self.note("count", "info", type(failed).__name__)
            self.end()
            time.sleep(random.uniform(0, 0.02))


def main():
    of, server, store, start, tasks, log = sys.argv[1:]
    make = {"redis-py": RedisPy, "python-redis-lock": PythonRedisLock}[of]
    file = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    stopped, threads = threading.Event(), []
    for task in range(int(tasks)):
        worker = Worker(make(server, f"{start}:rlock"), file, task, "rlock")
        threads.append(threading.Thread(target=worker.contend, args=(stopped,)))
    counter = Worker(make(server, f"{start}:count:rlock"), file, int(tasks), "count:rlock")
    counted = (stopped, redis.Redis.from_url(store), f"{start}:counter:rlock")
    threads.append(threading.Thread(target=counter.count, args=counted))
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    # The harness holds the other end.
    sys.stdin.read()
    stopped.set()
    for thread in threads:
        thread.join()


main()

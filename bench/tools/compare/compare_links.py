# SPDX-License-Identifier: Apache-2.0
"""Child processes of twill-compare and its connections to the ranks that they start (peers/peer_link.h). Each child is a
process group and killed as one. Ranks that a launcher put into other groups send their pids."""
import glob
import os
import re
import secrets
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import time

import tool

RANKS, BATCHES, FRESH, TENSORS, EXCHANGE, CPUS = 64, 40, 1000, 1024, 1 << 16, 1024
HELLO, WELCOME, ORDERED, COUNTS, POSTED, MODEL, RESULT = range(0x7C01, 0x7C08)
FRAME = struct.Struct("@IIQ")
SAYS_HELLO = struct.Struct("@40s40s64s16si128sd")
SAYS_WELCOME = struct.Struct("@i4IQ200s0Q")
ORDER = struct.Struct("@7IQdd")
TENSOR = struct.Struct("@QQd")
RESULTS = struct.Struct(f"@I4Q2d{BATCHES}d{FRESH}d200s200s0Q")


def c_text(data):
    return data.split(b"\0")[0].decode(errors="replace")


# --- processes -----------------------------------------------------------------------------------


class NotFound:
    """A command that cannot be run, represented as a process that has ended."""

    pid = 0

    def poll(self):
        return 127

    wait = lambda self, timeout=None: 127  # noqa: E731


def spawn(line, settings, log):
    environment = {**os.environ, **dict(setting.split("=", 1) for setting in settings)}
    with open(log, "wb") as out:
        try:
            return subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
            )
        except OSError as error:
            out.write(f"{line[0]}: {error.strerror}\n".encode())
            return NotFound()


def command(run, line, log, tidying=False):
    """Run a command to completion, with its output in a file. Returns its exit status, or -1."""
    process = spawn(line, [], log)
    until = time.monotonic() + run.options.timeout
    while time.monotonic() < until and (tidying or not run.interrupted):
        try:
            return process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            pass
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return -1


def first_line(path, prefer=None):
    """Return the first line of a file that has text, or the first with `prefer`; launchers' banners have lines without."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line.strip() for line in file if re.search("[a-z]", line)]
    preferred = [line for line in lines if prefer and prefer in line]
    return (preferred or lines or [""])[0][:199]


# --- connections ---------------------------------------------------------------------------------


def addresses_of(hosts):
    """List addresses by which other hosts may reach this one, the most likely first and loopback last."""
    found = []
    for host, _ in hosts:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((host, 9))
                found.append(probe.getsockname()[0])
            except OSError:
                pass
    for line in open("/proc/net/fib_trie", encoding="ascii"):  # "|-- 10.0.0.1", then "/32 host LOCAL"
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"]:
            found.append(address)
    found = list(dict.fromkeys(found))
    return sorted(found, key=lambda one: one.startswith("127."))


class Links:
    """The address to which ranks connect, and what is known about them."""

    def __init__(self, run):
        options, self.run, self.token = run.options, run, secrets.token_hex(8)
        self.hellos = {}  # by rank, of the last contender
        self.speed = 0.0  # turns of played computing per second, the most that rank 0 of a contender reported
        self.assigned = not options.hosts  # whether cores are assigned
        self.addresses = self.agent = ""
        if options.hosts:
            self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self.listener.bind(("", 0))
            self.addresses = options.address or ",".join(addresses_of(options.hosts))
            self.agent = os.path.join(run.folders.work, "agent")
            with open(self.agent, "w", encoding="utf-8") as file:  # launchers need a single program
                file.write(f'#!/bin/sh\nexec {options.agent} "$@"\n')
            os.chmod(self.agent, 0o700)
        else:
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.listener.bind(os.path.join(run.folders.memory, "driver"))
        self.listener.listen(RANKS)

    def text(self, index):
        """Return the argument with which the ranks of a contender connect."""
        name = self.listener.getsockname()
        where = ("", name) if isinstance(name, str) else (name[1], self.addresses)
        return f"{where[0]}:{self.token}-{index}:{where[1]}"

    def assign_cores(self, cpus):
        """Assign the cores. Ranks of one machine, which may be several hosts, share its cores in rank order, in blocks if there
        are more ranks than cores, as in 0 0 1 1."""
        run, enough = self.run, True
        for rank in range(run.options.ranks):
            machine = self.hellos[rank].boot_id
            near = [i for i in self.hellos if run.options.bind == "shared" or self.hellos[i].boot_id == machine]
            place, cores = sum(other < rank for other in near), cpus[rank]
            if cores:
                run.core[rank] = cores[place if len(near) <= len(cores) else place * len(cores) // len(near)]
            enough = enough and len(near) <= len(cores)
        run.bind = enough if run.options.bind in (None, "shared") else run.options.bind == "core"
        run.alone = enough and run.bind
        self.assigned = True

    def shared(self, index):
        """Return the start of the names of files that the ranks of a contender share. Hosts that are namespaces have /dev/shm of
        their own, but the same folder of work."""
        run = self.run
        return os.path.join(run.folders.work if run.options.hosts else run.folders.memory, f"ranks-{index}")

    def remove_files(self, index):
        """Remove the files that an earlier start of a contender has left."""
        for path in glob.glob(self.shared(index) + ".*"):
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)


class Hello:
    def __init__(self, data):
        token, boot_id, host, congestion, self.pid, cpus, self.speed = SAYS_HELLO.unpack(data)
        self.token, self.boot_id, self.host, self.congestion = map(c_text, (token, boot_id, host, congestion))
        self.cpus = [cpu for cpu in range(CPUS) if cpus[cpu // 8] >> cpu % 8 & 1]


class Result:
    def __init__(self, data):
        self.failed, self.wrong, self.calls, batches, fresh, *rest, library, message = RESULTS.unpack(data)
        self.lines, self.again = rest[:2], rest[2 : 2 + batches]
        self.fresh = rest[2 + BATCHES : 2 + BATCHES + fresh]
        self.library, self.message = c_text(library), c_text(message)


def receive(link, n):
    data = bytearray()
    while len(data) < n:
        more = link.recv(n - len(data))
        if not more:
            raise ConnectionError
        data += more
    return bytes(data)


class Ranks:
    """The ranks of a contender, with their connections and their results of the order."""

    def __init__(self, run, contender, process):
        self.run, self.process = run, process
        index = run.contenders.index(contender)
        self.token, self.shared = f"{run.links.token}-{index}", run.links.shared(index) if run.together else ""
        self.links, self.cpus, self.pids, self.results, self.posts = {}, {}, [], {}, {}
        self.message, self.closed, self.failed = "", 0.0, 0.0  # times since which a connection is closed, or a rank has failed
        self.selector = selectors.DefaultSelector()
        self.selector.register(run.links.listener, selectors.EVENT_READ)

    def send(self, rank, kind, data):
        self.links[rank].sendall(FRAME.pack(kind, rank, len(data)) + data)

    def send_all(self, kind, data, but=()):
        for rank in self.links:
            if rank not in but:
                self.send(rank, kind, data)

    def accept(self):
        """Accept a connection if it identifies itself as a rank of this contender within 2 s."""
        link, run = self.run.links.listener.accept()[0], self.run
        link.settimeout(2)
        try:
            kind, rank, n = FRAME.unpack(receive(link, FRAME.size))
            hello = Hello(receive(link, SAYS_HELLO.size)) if kind == HELLO and n == SAYS_HELLO.size else None
        except OSError:
            hello = None
        if hello is None or hello.token != self.token or rank >= run.options.ranks or rank in self.links:
            link.close()
            return
        link.settimeout(10)
        if run.options.hosts:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.pids.append(hello.pid)
        self.links[rank], run.links.hellos[rank], self.cpus[rank] = link, hello, hello.cpus
        run.links.speed = max(run.links.speed, hello.speed)
        self.selector.register(link, selectors.EVENT_READ, rank)
        if len(self.links) == run.options.ranks:
            self.welcome()

    def welcome(self):
        run, options = self.run, self.run.options
        if not run.links.assigned:
            run.links.assign_cores(self.cpus)
        huge = 2 << 20
        capacity = (max(options.sizes) * options.ranks + huge - 1) // huge * huge
        patience = max(options.timeout, options.cell)
        for rank in self.links:
            numbers = options.ranks, run.bind, run.core[rank], patience, run.alone, capacity
            self.send(rank, WELCOME, SAYS_WELCOME.pack(*numbers, self.shared.encode()))

    def take(self, rank):
        """Process a message of a rank."""
        link, ranks = self.links[rank], self.run.options.ranks
        kind, _, n = FRAME.unpack(receive(link, FRAME.size))
        if n > max(EXCHANGE, RESULTS.size):
            raise ConnectionError
        data = receive(link, n)
        if kind == POSTED:
            self.posts[rank] = data
            if len(self.posts) == ranks:
                everything, self.posts = b"".join(self.posts[i] for i in range(ranks)), {}
                self.send_all(POSTED, everything)
        elif kind == COUNTS and rank == 0:
            self.send_all(COUNTS, data, but=(0,))
        elif kind == RESULT and n == RESULTS.size:
            self.results[rank] = Result(data)
            self.message = self.results[rank].message or self.message
            if self.results[rank].failed:
                self.failed = self.failed or time.monotonic()
        else:
            raise ConnectionError

    def serve(self, seconds):
        """Process what ranks send, for `seconds` or until something arrives."""
        for key, _ in self.selector.select(seconds):
            if key.data is None:
                self.accept()
                continue
            try:
                self.take(key.data)
            except OSError:
                self.selector.unregister(key.fileobj)
                self.closed = self.closed or time.monotonic()

    def close(self):
        for link in self.links.values():
            link.close()
        self.selector.close()

    def kill(self):
        """Kill the group, and the ranks that left it."""
        self.close()
        for pid in self.pids:
            kill_one(os.kill, pid, signal.SIGKILL)
        if self.process.poll() is None:
            kill_one(os.killpg, self.process.pid, signal.SIGTERM)  # lets a launcher clean up
            try:
                self.process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                pass
        if self.process.pid:
            kill_one(os.killpg, self.process.pid, signal.SIGKILL)
        self.process.wait()


def kill_one(kill, pid, number):
    try:
        kill(pid, number)
    except OSError:
        pass


# --- turns ---------------------------------------------------------------------------------------

STARTS = "its start"


class Over(Exception):
    """A turn took longer than its cell may."""


def give_up(contender, what):
    """Exclude a contender, report the reason, and leave no process behind."""
    ranks = contender.ranks
    said = ranks.message or first_line(contender.log)
    ranks.kill()
    contender.absent, contender.ranks = what + (f": {said}" if said else ""), None
    tool.say(f"{contender.name} is left out: {contender.absent}")
    return False


def pause(contender, number):
    """Stop the ranks of a contender whose threads compute all the time, or let them continue."""
    if contender.pauses:
        for pid in contender.ranks.pids:
            kill_one(os.kill, pid, number)


def wait(run, contender, what, limit):
    """Wait until all ranks are done, the launcher has ended, or `limit` seconds are over. Time in which this process does not
    run (stopped, or the machine suspended) does not count, as the ranks did not run either."""
    ranks, waited, step = contender.ranks, 0.0, 0.2
    while len(ranks.results) < run.options.ranks:
        begin = time.monotonic()
        ranks.serve(step)
        slept = time.monotonic() - begin
        waited += slept if slept < 2 * step else step
        status = ranks.process.poll()
        if status is not None and len(ranks.results) < run.options.ranks:
            return give_up(contender, f"it ended during {what} with status {status if status >= 0 else 128 - status}")
        if run.interrupted:
            return give_up(contender, "interrupted")
        if ranks.closed and time.monotonic() - ranks.closed > 2:  # the launcher may say more meanwhile
            return give_up(contender, "a rank closed its connection")
        if ranks.failed and time.monotonic() - ranks.failed > 2:  # others may wait for it forever
            break
        if waited > limit:
            if what != STARTS:  # only this cell is lost; the next turn starts it anew
                ranks.kill()
                contender.ranks = None
                raise Over
            return give_up(contender, f"it hangs: {what} took more than {limit:g} s")
    if any(result.failed for result in ranks.results.values()):
        return give_up(contender, "a call failed")
    return True


def start(run, contender):
    """Start a contender and wait until all its ranks are up. If that fails it is ended and excluded."""
    if contender.entry.program == "fi_pingpong":
        contender.library = f"{contender.entry.arguments}, one way counted, at its own pace"
        return
    run.links.remove_files(run.contenders.index(contender))
    contender.ranks = Ranks(run, contender, spawn(contender.command, contender.settings, contender.log))
    if wait(run, contender, STARTS, run.options.timeout):
        contender.library = contender.ranks.results[0].library
        pause(contender, signal.SIGSTOP)


def turn(run, contender, what, limit, order, model=None):
    """Let a contender execute an order, and return the results of its ranks, or None if it failed and is excluded. It is started
    again if it took too long in its last turn."""
    if contender.ranks is None:
        start(run, contender)
    ranks = contender.ranks
    if ranks is None:
        return None
    ranks.results = {}
    pause(contender, signal.SIGCONT)
    try:
        ranks.send_all(ORDERED, ORDER.pack(*order))
        if model:
            ranks.send_all(MODEL, model)
    except OSError:
        ranks.closed = ranks.closed or time.monotonic()
    if not wait(run, contender, what, limit):
        return None
    pause(contender, signal.SIGSTOP)
    return [ranks.results[rank] for rank in range(run.options.ranks)]


def end(run, contender):
    """End a contender, by an order if it is alive."""
    if not contender.ranks:
        return
    pause(contender, signal.SIGCONT)
    ranks, contender.ranks = contender.ranks, None
    run.links.remove_files(run.contenders.index(contender))  # the ranks have mapped them
    try:
        ranks.send_all(ORDERED, ORDER.pack(0, 0, 0, 1, 0, 0, 0, 0, 0, 0))
        ranks.process.wait(timeout=5)
        ranks.close()  # if the launcher has ended, so have the ranks
    except (OSError, subprocess.TimeoutExpired):
        ranks.kill()


# --- other hosts ---------------------------------------------------------------------------------

CONGESTION = "/proc/sys/net/ipv4/tcp_congestion_control"


def host_run(run, host, text, tidying=False):
    """Run a command on a host by the agent. Returns whether it succeeded, and the first line of its output."""
    log = os.path.join(run.folders.work, "agent.log")
    status = command(run, [run.links.agent, host, text], log, tidying)
    return status == 0, first_line(log)


def set_congestion(run):
    wanted = run.options.congestion
    for host, _ in run.options.hosts if wanted else []:
        good, said = host_run(run, host, f"cat {CONGESTION} && echo {wanted} > {CONGESTION}")
        if not good:
            raise tool.Failure(f"--congestion {wanted}: {host}: {said}")
        run.restore.append((host, said))


def restore_congestion(run):
    for host, before in run.restore:
        good, said = host_run(run, host, f"echo {before} > {CONGESTION}", tidying=True)
        if not good:
            tool.say(f"{host} keeps {run.options.congestion} as its congestion control: {said}")
    run.restore = []


def pingpong(run, contender, n):
    """Measure one way of fi_pingpong of libfabric between the first two hosts, in seconds, or 0 if it failed."""
    hosts, agent, what = run.options.hosts, run.links.agent, contender.entry.arguments
    port = 20000 + secrets.randbelow(20000)
    times = min(2000, int(run.options.turn_seconds * 4 * 5e9 / 2 / n) + 4)  # there and back at 5 GB/s
    bind = [f"taskset -c {run.core[rank]} " if run.bind else "" for rank in (0, hosts[0][1])]
    script = (
        f'{agent} {hosts[0][0]} "{bind[0]}{what} -B {port} -I {times} -S {n}" >/dev/null & sleep 0.2; '
        f'{agent} {hosts[1][0]} "{bind[1]}{what} -P {port} -I {times} -S {n} {hosts[0][0]}"; status=$?; wait; exit $status'
    )
    if command(run, ["sh", "-c", script], contender.log) != 0:
        return 0
    with open(contender.log, encoding="utf-8", errors="replace") as file:  # bytes sent acknowledged total time MB/s us
        rows = [re.fullmatch(r"\s*(?:\S+\s+){6}([0-9.]+).*", line.rstrip("\n")) for line in file]
    return next((float(row.group(1)) * 1e-6 for row in reversed(rows) if row), 0)

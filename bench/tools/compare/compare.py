# SPDX-License-Identifier: Apache-2.0
"""twill-compare measures twill, the other libraries on this machine and bounds, alternately and with one timing loop
(peers/peer.h)."""
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from types import SimpleNamespace

import compare_contenders
import compare_fetch
import compare_links
import compare_rounds
import compare_save
import compare_tables
import tool

USAGE = """\
Usage: twill-compare [options]
Time twill, the other libraries on this machine (Open MPI, MPICH, Gloo; others
by --fetch, --source, --ucc) and bounds, in turns, with one timing loop: with
fresh data, and the same call again and again. What is missing is reported and
left out. The defaults of twill are measured, without a calibration.

  -n, --ranks N        ranks on this machine (2)
      --max SIZE       largest size (256M; K, M, G or KB, MB, GB are binary)
      --sizes LIST     comma-separated sizes instead of 8, 64, 256, 1K, 4K ...
                       --max
      --rounds N       turns of each contender at each size (5)
      --mpi            MPI programs with and without libtwill-mpi, for each MPI,
                       and the cost of calls that are passed on
      --only LIST      of allreduce (in and out of place), allreduce_in,
                       allreduce_out, broadcast, allgather, reduce_scatter,
                       barrier, reduce, gather, scatter, alltoall (all); self
                       (--mpi: calls passed on)
      --peers LIST     parts of names of contenders; twill and the bounds always
                       take part (all; none)
      --fetch          first take Open MPI 5, MPICH 5, Intel MPI and oneCCL from
                       PyPI; they stay and take part in later runs
      --cache DIR      where they are kept (~/.cache/twill/peers)
      --source NAME=DIR  the allreduce of a source tree of deepspeed or vllm,
                       compiled with the PyTorch of $PYTHON (python3)
      --bind core|none a core for each rank, or unbound (core if there are
                       enough); shared: as core, and hosts share the cores of
                       one machine
      --persistent     also persistent calls of twill
      --turn MS        time for calls of each timing in a turn, where calls are
                       short (20)
      --details        minimum, median and 99th percentile of every contender
      --quick          few sizes, two rounds, short turns: a test
      --list           print the contenders and their commands, and exit
      --timeout S      a contender whose start takes longer is left out (60)
      --cell S         time of a contender at one size; what takes longer is
                       printed so and left out of the best (30)
      --json FILE      write all results as JSON, after each size
      --resume         continue the run of --json FILE with what it lacks
      --csv FILE       write the times as comma-separated values
      --plot PREFIX    write PREFIX-COLLECTIVE.svg, if gnuplot is installed;
                       replaces them
      --work DIR       keep compiled programs and contenders' output there
      --ucc PREFIX     where UCC is installed
      --oneccl PREFIX  where oneCCL is installed, instead of a fetched one
      --hosts LIST     between hosts: NAME:RANKS,NAME:RANKS; with raw TCP and
                       fi_pingpong
      --agent COMMAND  runs commands on hosts: COMMAND HOST WORDS... (ssh)
      --congestion NAME congestion control of TCP on all hosts meanwhile (bbr,
                       cubic ...)
      --address LIST   addresses by which hosts reach this one (all it has)
      --steps FILES    instead: training steps of the models of gradient lists,
                       with their computing played, and the gradients reduced by
                       tensor or in one call
      --batch N        samples of a step (32)
      --device-gflops N speed of the computing, in 1e9 operations/s (10000)
      --device         a device computes, not the rank's core
  -h, --help  -V, --version

Exit status: 0 success, also when contenders were left out; 1 a wrong value of
twill, or a failure; 2 a wrong command line.
"""

# in the order of enum twill_compare_collective (peers/peer_link.h), with the names of other programs
NAMES = compare_rounds.NAMES
OPTIONS = """ranks= max= sizes= rounds= only= peers= fetch cache= source= bind= persistent prepared details quick list mpi timeout= cell=
    turn= json= resume csv= plot= work= ucc= oneccl= hosts= agent= congestion= address= steps= batch= device-gflops= device""".split()
COUNTED = {  # option: least, most, what is expected
    "ranks": (2, compare_links.RANKS, "2 to 64"),
    "rounds": (1, 100, "1 to 100"),
    "timeout": (1, 100000, "a number of seconds from 1"),
    "cell": (1, 100000, "a number of seconds from 1"),
    "turn": (1, 10000, "1 to 10000 ms"),
    "batch": (1, 1000000, "a number of samples from 1"),
    "device_gflops": (1, 1000000000, "a speed in Gflop/s from 1"),
}


def parse_sizes(text):
    sizes = [tool.parse_size(word) for word in tool.words(text)]
    if not 0 < len(sizes) <= 64 or not all(size and 4 <= size <= 4 << 30 and size % 4 == 0 for size in sizes):
        tool.wrong("--sizes", text, "a list of sizes from 4 to 4G, multiples of 4, such as 8,64K,1M")
    return sizes


def parse_max(text):
    size = tool.parse_size(text)
    if size is None or not 8 <= size <= 4 << 30:
        tool.wrong("--max", text, "a size from 8 to 4G")
    return size


def plain_name(text):
    """Return the name of a collective without the additions of other programs, as in "all_reduce_perf"."""
    text = re.sub("perf$", "", re.sub("[-_]", "", text.lower()))
    return "broadcast" if text == "bcast" else text


def parse_only(text):
    several = {"allreduce": NAMES[:2], "self": compare_rounds.SELF}
    selected = set()
    for word in tool.words(text) or [""]:
        found = [name for name in NAMES if plain_name(name) == plain_name(word)] or several.get(plain_name(word))
        if not found:
            tool.wrong("--only", text, "a list of collectives, see --help")
        selected.update(found)
    return selected


def parse_hosts(text):
    """Return (name, ranks) of each host."""
    hosts = []
    for word in tool.words(text):
        name, _, ranks = word.partition(":")
        hosts.append((name, tool.parse_number(ranks or "1", 1, compare_links.RANKS)))
    good = all(ranks and re.fullmatch("[a-zA-Z0-9._@-]{1,63}", name) for name, ranks in hosts) and 1 < len(hosts) <= 32
    if not good or sum(ranks for _, ranks in hosts) > compare_links.RANKS:
        tool.wrong("--hosts", text, "a list of two hosts or more, such as a:1,b:1, of 64 ranks at most")
    return hosts


def parse_congestion(text):
    if not re.fullmatch("[a-z0-9_-]{1,15}", text):
        tool.wrong("--congestion", text, "the name of a congestion control")
    return text


def parse_steps(text):
    if not 0 < len(tool.words(text)) <= 16:
        tool.wrong("--steps", text, "a list of files, 16 at most")
    return tool.words(text)


def parse_bind(text):
    if text not in ("core", "none", "shared"):
        tool.wrong("--bind", text, "core, none or shared")
    return text


def parse_source(text):
    name, _, folder = text.partition("=")
    if name not in compare_fetch.SOURCES or not folder:
        tool.wrong("--source", text, "deepspeed=DIR or vllm=DIR")
    return {name: folder}


PARSERS = {"sizes": parse_sizes, "max": parse_max, "only": parse_only, "hosts": parse_hosts, "congestion": parse_congestion,
           "steps": parse_steps, "bind": parse_bind}  # fmt: skip


def parse(arguments):
    pairs, rest = tool.options(arguments, "n:", OPTIONS, USAGE)
    given = dict(ranks=2, max=256 << 20, sizes=None, rounds=None, only=None, peers=None, bind=None, hosts=[], agent="ssh",
                 congestion=None, address=None, timeout=60, cell=30, turn=None, json=None, csv=None, plot=None, work=None, ucc=None,
                 oneccl=None, steps=[], batch=32, device_gflops=10000, persistent=False, details=False, quick=False,
                 list=False, mpi=False, device=False, fetch=False, cache=None, source={}, resume=False)  # fmt: skip
    for option, text in pairs:
        name = {"-n": "ranks", "--prepared": "persistent"}.get(option, option.lstrip("-").replace("-", "_"))
        if name in COUNTED:
            shown = "-n/--ranks" if name == "ranks" else option
            given[name] = tool.number(shown, text, *COUNTED[name])
        elif name == "source":
            given[name] = {**given[name], **parse_source(text)}
        elif name in PARSERS:
            given[name] = PARSERS[name](text)
        else:
            given[name] = text or True
    if rest:
        raise tool.Mistake(f"unexpected argument: '{rest[0]}'")
    options = SimpleNamespace(**given)
    if options.hosts:
        options.ranks = sum(ranks for _, ranks in options.hosts)
    if options.steps and (options.mpi or options.plot or options.csv):
        raise tool.Mistake("--steps cannot be combined with --mpi, --plot and --csv")
    if options.mpi and options.plot:
        tool.wrong("--plot", options.plot, "available with --mpi")
    if not options.mpi and options.only and options.only & set(compare_rounds.SELF):
        tool.wrong("--only", "self", "available without --mpi")
    if options.resume and (not options.json or options.steps):
        raise tool.Mistake("--resume needs --json FILE, and cannot be combined with --steps")
    if options.only is None:
        options.only = set(NAMES) if options.mpi else set(NAMES) - set(compare_rounds.SELF)
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.turn_seconds = options.turn / 1e3 if options.turn else 0.002 if options.quick else 0.02
    if options.sizes is None:
        powers = [8] + [64 * 4**i for i in range(14)]
        options.sizes = [8, 4 << 10, 256 << 10, 4 << 20] if options.quick else [n for n in powers if n <= options.max]
    return options


def temporary(*parents):
    for parent in parents:
        if os.access(parent, os.W_OK):
            return tempfile.mkdtemp(prefix="twill-compare.", dir=parent)
    raise tool.Failure("no folder for temporary files")


def make_folders(options):
    if options.work:
        try:
            os.mkdir(options.work)
        except FileExistsError:
            pass
        except OSError as error:
            raise tool.Failure(f"--work: {options.work}: {error.strerror}") from None
        work = os.path.realpath(options.work)  # launchers may change the working directory
    else:
        work = temporary(os.environ.get("TMPDIR", "/tmp"), "/tmp")
    return SimpleNamespace(work=work, memory=temporary("/dev/shm", "/tmp"), **tool.folders)


class Run:
    """A whole comparison."""

    def __init__(self, options):
        self.options = options
        self.folders = make_folders(options)
        self.contenders, self.rows, self.steps = [], [], []
        cpus, ranks = sorted(os.sched_getaffinity(0)), options.ranks
        self.cores = len(cpus)
        # core r for rank r; more ranks than cores share them in blocks, as in 0 0 1 1
        self.core = [cpus[rank if ranks <= len(cpus) else rank * len(cpus) // ranks] for rank in range(ranks)]
        self.bind = ranks <= len(cpus) if options.bind in (None, "shared") else options.bind == "core"
        self.alone = self.bind and ranks <= len(cpus)  # each rank has a core of its own
        self.together = not options.hosts or options.bind == "shared"  # one machine
        self.measures_line = self.together and self.core[0] != self.core[-1]
        self.split = None  # seconds of a cache line that separate near cores from far ones
        self.failures = 0  # rows with wrong values
        self.interrupted = False
        self.restore = []  # (host, congestion control)
        self.started, self.seconds, self.seconds_before = time.monotonic(), 0.0, 0.0
        self.date = time.strftime("%Y-%m-%d %H:%M:%S")
        self.progress, self.turns, self.turns_done = tool.Progress(), 0, 0
        self.links = compare_links.Links(self)
        for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(one, self.interrupt)

    def interrupt(self, *_):
        self.interrupted = True

    def of_kind(self, *kinds):
        return [one for one in self.contenders if one.kind in kinds]

    def close(self):
        compare_links.restore_congestion(self)
        self.links.listener.close()
        shutil.rmtree(self.folders.memory, ignore_errors=True)
        if not self.options.work:
            shutil.rmtree(self.folders.work, ignore_errors=True)
        if self.interrupted:
            tool.say("interrupted")


def save(run):
    run.seconds = run.seconds_before + time.monotonic() - run.started
    if run.options.json:
        compare_save.save_json(run)


def compare(run):
    options = run.options
    compare_contenders.gather(run)
    if options.list:
        for one in run.contenders:
            print(f"{one.name}:", *one.settings, *one.command)
            if one.absent:
                print(f"    left out: {one.absent}")
        return True
    if options.plot:
        compare_save.check_plot(options.plot)
    if options.resume:
        compare_save.load(run)
    for one in run.contenders:
        if not one.absent and not run.interrupted:
            compare_links.start(run, one)
    compare_tables.print_head(run)
    sys.stdout.flush()
    try:
        compare_rounds.measure_steps(run) if options.steps else compare_rounds.measure(run, lambda: save(run))
    finally:
        run.progress.clear()
        compare_links.restore_congestion(run)  # early, in case of an interrupt
        run.seconds = run.seconds_before + time.monotonic() - run.started
        for one in run.contenders:
            compare_links.end(run, one)
    compare_tables.print_results(run)
    save(run)
    if options.csv:
        compare_save.save_csv(run)
    return (compare_save.plot(run) if options.plot else True) and not run.interrupted and run.failures == 0


def is_complete(run):
    """Return whether every contender of twill and the bounds took part to the end, but for drop-ins over MPIs that did not."""
    def excused(one):
        return one.below and (not one.found or one.below.absent)

    return not any(one.absent and one.command and not excused(one) for one in run.of_kind("bound", "twill"))


def main(arguments):
    options = parse(arguments)
    if options.fetch:
        compare_fetch.fetch(options)
    run = Run(options)
    try:
        if options.hosts:
            compare_links.set_congestion(run)
        return 0 if compare(run) and is_complete(run) else 1
    finally:
        run.close()

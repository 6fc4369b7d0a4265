# SPDX-License-Identifier: Apache-2.0
"""The contenders of a comparison. This file has a table of variants of a few programs, finds or compiles the programs, and
composes the command lines that start them, by their launcher, or with an agent on several hosts."""
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import compare_links
import tool


@dataclass
class Entry:
    name: str  # NAME+... is NAME with our library loaded before the MPI
    program: str
    options: str = ""  # of the launcher
    arguments: str = ""  # of the program
    setting: str = ""
    tunes: bool = False  # allocates in calls, so that a tuned variant makes sense
    rare: bool = False  # only if --persistent or --peers asks for it
    memory: str = "plain"  # see peer.h


@dataclass
class Contender:
    name: str
    kind: str  # bound, twill, peer, or trip (one-way messages, next to the first collective)
    entry: Entry
    tuned: bool
    memory: str
    below: "Contender" = None  # the same program without twill
    command: list = field(default_factory=list)
    settings: list = field(default_factory=list)  # environment, NAME=value
    absent: str = ""  # why it is missing or was excluded
    found: bool = False  # it was available at the start
    library: str = ""
    log: str = ""
    ranks: "compare_links.Ranks" = None  # while it runs

    @property
    def self_only(self):
        """Return whether it only makes calls of one rank with itself."""
        return "+off" in self.entry.name


CMA = "--mca pml ob1 --mca btl vader,self --mca btl_vader_single_copy_mechanism cma"
COPY = "--mca pml ob1 --mca btl vader,self --mca btl_vader_single_copy_mechanism none"
TCP = "--mca pml ob1 --mca btl tcp,vader,self"
UCX = "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any"
UCX_TCP = "UCX_TLS=tcp,sm,self"
GLOO = [Entry("gloo", "gloo", arguments="ring")]
GLOOS = GLOO + [Entry("gloo-bcube", "gloo", arguments="bcube", rare=True), Entry("gloo-halving", "gloo", arguments="halving")]
ON_ONE_HOST = [
    Entry("bound", "bound", memory="own"),
    Entry("bound-stream", "bound", arguments="stream", memory="own"),
    Entry("twill", "twill"),
    Entry("twill-huge", "twill", memory="huge"),
    Entry("twill-alloc", "twill", memory="own"),
    Entry("twill-heap", "twill", setting="TWILL_HEAP=shared", memory="heap"),
    Entry("twill-persistent", "twill", arguments="persistent", rare=True),
    Entry("twill-alloc-persistent", "twill", arguments="persistent", rare=True, memory="own"),
    Entry("ompi-cma", "openmpi", CMA, tunes=True),
    Entry("ompi-copy", "openmpi", COPY, tunes=True),
    Entry("ompi-ucx", "openmpi", UCX, tunes=True),
    Entry("mpich", "mpich", tunes=True),
    Entry("mpich-copy", "mpich", setting="UCX_TLS=^cma"),
    *GLOOS,
    Entry("ucc", "ucc", tunes=True),
    Entry("oneccl", "oneccl", setting="CCL_ATL_TRANSPORT=ofi", tunes=True),
]
# Within a host, each library uses its own choice.
BETWEEN_HOSTS = [
    Entry("raw", "raw", arguments="exchange"),
    Entry("raw-window", "raw", arguments="window"),
    Entry("raw-steps", "raw", arguments="steps"),
    Entry("raw-pingpong", "raw", arguments="pingpong"),
    Entry("fi-pingpong", "fi_pingpong", arguments="fi_pingpong -e rdm -p 'tcp;ofi_rxm'", memory=""),
    Entry("twill", "twill"),
    Entry("twill-alloc", "twill", memory="own"),
    Entry("twill-persistent", "twill", arguments="persistent", rare=True),
    Entry("twill-ofi", "twill", setting="TWILL_PROVIDER=ofi:tcp"),
    Entry("ompi-tcp", "openmpi", TCP, tunes=True),
    Entry("ompi-tcp2", "openmpi", TCP + " --mca btl_tcp_links 2"),
    Entry("ompi-ucx", "openmpi", UCX, setting=UCX_TCP, tunes=True),
    Entry("mpich", "mpich", setting=UCX_TCP, tunes=True),
    *GLOOS,
]
STEPS_OF_TWILL = [Entry("twill", "twill"), Entry("twill-thread", "twill", setting="TWILL_PROGRESS=thread")]
STEPS_ON_ONE_HOST = [*STEPS_OF_TWILL, Entry("ompi-cma", "openmpi", CMA), Entry("ompi-ucx", "openmpi", UCX),
                     Entry("mpich", "mpich"), *GLOO]  # fmt: skip
STEPS_BETWEEN_HOSTS = [*STEPS_OF_TWILL, Entry("ompi-tcp", "openmpi", TCP), Entry("ompi-ucx", "openmpi", UCX, setting=UCX_TCP),
                       Entry("mpich", "mpich", setting=UCX_TCP), *GLOO]  # fmt: skip
WITH_MPI = [
    entry
    for name, program in (("ompi", "openmpi"), ("mpich", "mpich"))
    for entry in [
        Entry(name + variant + twill, program, arguments=arguments, memory=memory)
        for variant, arguments, memory in (("", "", "plain"), ("-alloc", "", "own"), ("-nonblocking", "nonblocking", "plain"))
        for twill in ("", "+twill")
    ]
    + [Entry(name + "+off", program, setting="TWILL_MPI=0")]
]
# Tuned by an expert. Freed memory is kept and comes in huge pages, in both ways that glibc can be configured.
TUNED = [
    "GLIBC_TUNABLES=glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:"
    "glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_MAX_=0",
    "MALLOC_TRIM_THRESHOLD_=1099511627776",
    "MALLOC_TOP_PAD_=67108864",
]
MPIS = {  # its own compiler and launcher, the common launcher, a word of its version, and words for a report
    "openmpi": ("mpicc.openmpi", "mpirun.openmpi", "mpirun", "Open MPI", "an mpirun of Open MPI"),
    "mpich": ("mpicc.mpich", "mpiexec.mpich", "mpiexec", "HYDRA", "an mpiexec of MPICH"),
}


def entries_of(options):
    if options.steps:
        return STEPS_BETWEEN_HOSTS if options.hosts else STEPS_ON_ONE_HOST
    return WITH_MPI if options.mpi else BETWEEN_HOSTS if options.hosts else ON_ONE_HOST


# --- programs ------------------------------------------------------------------------------------


@dataclass
class Program:
    path: str = ""
    launcher: str = ""
    why: str = ""  # why it is missing
    preload: str = ""  # library to load before the MPI


def find_library(run, name):
    """Return the path of one of our libraries, in the build tree or installed, or ""."""
    paths = (os.path.join(run.folders.bin, folder, name) for folder in ("../lib", run.folders.library))
    return next((path for path in paths if os.access(path, os.R_OK)), "")


def find_mpi(run, own_compiler, own_launcher, launcher, says, _):
    """Return compiler and launcher, by the names of this MPI, or by the common names if that launcher belongs to this MPI."""
    which = shutil.which
    if which(own_compiler) and which(own_launcher):
        return which(own_compiler), which(own_launcher)
    if not which("mpicc") or not which(launcher):
        return None
    log = os.path.join(run.folders.work, launcher + "-version.log")
    compare_links.command(run, [which(launcher), "--version"], log)
    return (which("mpicc"), which(launcher)) if says in compare_links.first_line(log, says) else None


def compile_peer(run, program, name, compiler, source, libraries, prefix=None):
    """Compile a program of another library when a comparison runs, so that building twill needs none of them."""
    program.path = os.path.join(run.folders.work, "compare-" + name)
    log = os.path.join(run.folders.work, name + "-compile.log")
    line = [compiler, "-O3", "-D_GNU_SOURCE", "-o", program.path, os.path.join(run.folders.sources, source)]
    if prefix:
        line += [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"]
    if compare_links.command(run, line + libraries, log) != 0 or not os.access(program.path, os.X_OK):
        said = compare_links.first_line(log, "rror")
        program.why = f"not installed, or its program does not compile: {said}"


def build(run, name):
    program = Program(launcher=os.path.join(run.folders.bin, "twillrun"))
    if name in MPIS:
        program.preload = find_library(run, f"libtwill-mpi-{name}.so")
        found = find_mpi(run, *MPIS[name])
        if found:
            program.launcher = found[1]
            compile_peer(run, program, name, found[0], "peer_mpi.c", ["-ldl"])
        else:
            compiler, launcher, _, _, one = MPIS[name]
            program.why = f"not installed: no {compiler} with {launcher}, and no mpicc with {one}"
    elif name == "gloo":
        compile_peer(run, program, name, "c++", "peer_gloo.cpp", ["-lgloo", "-lpthread"])
    elif name in ("ucc", "oneccl"):
        prefix = getattr(run.options, name)
        compiler, source, library = {"ucc": ("cc", "peer_ucc.c", "-lucc"), "oneccl": ("c++", "peer_oneccl.cpp", "-lccl")}[name]
        if prefix:
            compile_peer(run, program, name, compiler, source, [library], prefix)
        else:
            program.why = f"its path was not given: --{name} PREFIX"
    elif name == "fi_pingpong":
        program.path = shutil.which(name) or ""
        program.why = "" if program.path else "not installed: no fi_pingpong"
    else:  # built with the tools
        program.path = os.path.join(run.folders.programs, "compare-" + name)
        program.why = "" if os.access(program.path, os.X_OK) else f"{program.path} is missing"
    return program


# --- command lines -------------------------------------------------------------------------------


def preloads(entry, program):
    """Return the options that load the library before the MPI in the ranks only, not in launchers."""
    if "+" not in entry.name:
        return []
    return ["-x", f"LD_PRELOAD={program.preload}"] if entry.program == "openmpi" else ["-genv", "LD_PRELOAD", program.preload]


def by_launcher(run, one, program):
    """Let the launcher start its daemons by the agent. Hydra passes all variables on, but needs the address at which its
    daemons reach it."""
    agent, entry, ranks = run.links.agent, one.entry, str(run.options.ranks)
    hosts = ",".join(f"{name}:{n}" for name, n in run.options.hosts)
    if entry.program == "mpich":
        line = ["-launcher", "rsh", "-launcher-exec", agent, "-localhost", run.links.addresses.split(",")[0], "-hosts", hosts]
        return line + ["-bind-to", "none", "-n", ranks]
    if entry.program == "twill":
        line = ["--agent", agent, "--hosts", hosts, "-n", ranks]
    else:
        line = "--oversubscribe --bind-to none --mca plm rsh --mca plm_rsh_agent".split()
        line += [agent, "--host", hosts, "-np", ranks]
    return line + [word for setting in one.settings for word in ("-x", setting.split("=")[0])]


def by_agent(run, one, words):
    """Compose sh -c 'agent HOST "env RANK=0 ... program ..." & ... wait'."""
    options, script, rank = run.options, "", 0
    for host, ranks in options.hosts:
        for local in range(ranks):
            place = f"RANK={rank} WORLD_SIZE={options.ranks} LOCAL_RANK={local} LOCAL_WORLD_SIZE={ranks}"
            last = [str(len(options.hosts))] if one.entry.program == "raw" else []
            script += f'{run.links.agent} {host} "{" ".join(["env", place, *one.settings, *words, *last])}" & '
            rank += 1
    return ["sh", "-c", script + "wait"]


def set_command(run, one, program, link):
    """Set the command line. Ranks bind themselves, so that all contenders use the same cores."""
    entry, options = one.entry, run.options
    words = [program.path, link, one.memory, *entry.arguments.split()]
    one.settings = ([entry.setting] if entry.setting else []) + (TUNED if one.tuned else [])
    if options.hosts and entry.program not in ("openmpi", "mpich", "twill"):
        one.command = by_agent(run, one, words)
    else:
        if options.hosts:
            line = by_launcher(run, one, program)
        elif entry.program == "openmpi":
            line = ["--oversubscribe", "--bind-to", "none", "-np", str(options.ranks)]
        else:
            line = ["-n", str(options.ranks)]
        one.command = [program.launcher, *line, *entry.options.split(), *preloads(entry, program), *words]
    if entry.program == "openmpi" and os.geteuid() == 0:
        one.settings += ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
    if entry.program == "openmpi" and options.ranks > run.cores:
        one.settings += ["OMPI_MCA_mpi_yield_when_idle=1"]


# --- the contenders ------------------------------------------------------------------------------


def kind_of(entry):
    if entry.program == "twill" or "+" in entry.name:
        return "twill"
    if entry.program in ("bound", "raw", "fi_pingpong"):
        return "trip" if "pingpong" in entry.arguments else "bound"
    return "peer"


def takes_part(run, entry, tuned):
    options, name = run.options, entry.name + ("-tuned" if tuned else "")
    if entry.memory == "heap" and not find_library(run, "libtwill-heap.so"):
        return False
    if entry.rare and not (options.persistent if entry.program == "twill" else options.peers):
        return False
    chosen = options.peers is None or any(word in name for word in tool.words(options.peers))
    return (not tuned or entry.tunes) and (entry.program in ("bound", "twill", "raw") or chosen)


def gather(run):
    """Fill in the contenders. Missing ones stay in the table, with the reason."""
    chosen = [(entry, tuned) for tuned in (False, True) for entry in entries_of(run.options) if takes_part(run, entry, tuned)]
    names = list(dict.fromkeys(entry.program for entry, _ in chosen))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # compilers run in parallel
        programs = dict(zip(names, pool.map(lambda name: build(run, name), names)))
    if run.interrupted:
        raise tool.Failure("interrupted before it began")
    for entry, tuned in chosen:
        program, base = programs[entry.program], entry.name.split("+")[0]
        one = Contender(entry.name + ("-tuned" if tuned else ""), kind_of(entry), entry, tuned, "huge" if tuned else entry.memory)
        if base != entry.name:
            one.below = next((other for other in run.contenders if other.name == base), None)
        one.absent = program.why
        if base != entry.name and not one.absent and not program.preload:
            one.absent = "libtwill-mpi is missing: twill was built without this MPI"
        one.found = not one.absent
        one.log = os.path.join(run.folders.work, one.name + ".log")
        set_command(run, one, program, run.links.text(len(run.contenders)))
        run.contenders.append(one)

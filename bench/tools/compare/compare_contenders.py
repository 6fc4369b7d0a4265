# SPDX-License-Identifier: Apache-2.0
"""The contenders of a comparison. This file has a table of variants of a few programs, finds or compiles the programs, and
composes the command lines that start them, by their launcher, or with an agent on several hosts."""
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import compare_fetch
import compare_links
import tool


@dataclass
class Entry:
    name: str  # NAME+... is NAME with our library loaded before the MPI
    program: str
    options: str = ""  # of the launcher
    arguments: str = ""  # of the program
    setting: str = ""
    component: str = ""  # that an Open MPI must have
    libfabric: str = ""  # a fetched MPI whose libfabric twill uses
    rare: bool = False  # only if --persistent or --peers asks for it
    memory: str = "plain"  # see peer.h


@dataclass
class Contender:
    name: str
    kind: str  # bound, twill, peer, or trip (one-way messages, next to the first collective)
    entry: Entry
    memory: str
    below: "Contender" = None  # the same program without twill
    command: list = field(default_factory=list)
    settings: list = field(default_factory=list)  # environment, NAME=value
    absent: str = ""  # why it is missing or was excluded
    found: bool = False  # it was available at the start
    library: str = ""
    log: str = ""
    ranks: "compare_links.Ranks" = None  # while it runs
    over: list = field(default_factory=list)  # collectives of its last rows that took too long

    @property
    def self_only(self):
        """Return whether it only makes calls of one rank with itself."""
        return "+off" in self.entry.name

    @property
    def pauses(self):
        """Return whether it must be stopped while others are measured, because its threads compute all the time."""
        return self.entry.program == "oneccl"


CMA = "--mca pml ob1 --mca btl vader,self --mca btl_vader_single_copy_mechanism cma"
COPY = "--mca pml ob1 --mca btl vader,self --mca btl_vader_single_copy_mechanism none"
TCP = "--mca pml ob1 --mca btl tcp,vader,self"
UCX = "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any"
OFI = "--mca pml cm --mca mtl ofi"
RXM = "OMPI_MCA_mtl_ofi_provider_include=tcp;ofi_rxm"
UCX_TCP = "UCX_TLS=tcp,sm,self"
GLOO = [Entry("gloo", "gloo", arguments="ring")]
GLOOS = GLOO + [Entry("gloo-bcube", "gloo", arguments="bcube", rare=True), Entry("gloo-halving", "gloo", arguments="halving")]
ON_ONE_HOST = [
    Entry("bound", "bound", memory="own"),
    Entry("bound-stream", "bound", arguments="stream", memory="own"),
    Entry("bound-copy", "bound", arguments="copy", memory="own"),
    Entry("twill", "twill"),
    Entry("twill-alloc", "twill", memory="own"),
    Entry("twill-registered", "twill", memory="registered"),
    Entry("twill-promoted", "twill", memory="promoted"),
    Entry("twill-heap", "twill", setting="TWILL_HEAP=shared", memory="heap"),
    Entry("twill-persistent", "twill", arguments="persistent", rare=True),
    Entry("twill-alloc-persistent", "twill", arguments="persistent", rare=True, memory="own"),
    Entry("ompi-cma", "openmpi", CMA),
    Entry("ompi-copy", "openmpi", COPY),
    Entry("ompi-ucx", "openmpi", UCX),
    Entry("mpich", "mpich"),
    Entry("mpich-copy", "mpich", setting="UCX_TLS=^cma"),
    Entry("ompi5", "openmpi5"),
    *[Entry("ompi5-" + name, "openmpi5", f"--mca coll_{name}_priority 100", component=name) for name in ("xhc", "acoll", "han")],
    Entry("mpich5", "mpich5"),
    Entry("impi", "impi"),
    Entry("oneccl", "oneccl"),
    *GLOOS,
    Entry("ucc", "ucc"),
    Entry("deepspeed", "deepspeed"),
    Entry("vllm", "vllm"),
    Entry("ompi-cma+twill", "openmpi", CMA),
    *[Entry(name + "+twill", program) for name, program in
      (("mpich", "mpich"), ("ompi5", "openmpi5"), ("mpich5", "mpich5"), ("impi", "impi"))],
]  # fmt: skip
# Within a host, each library uses its own choice.
BETWEEN_HOSTS = [
    Entry("raw", "raw", arguments="exchange"),
    Entry("raw-window", "raw", arguments="window"),
    Entry("raw-steps", "raw", arguments="steps"),
    Entry("raw-pingpong", "raw", arguments="pingpong"),
    Entry("fi-exchange", "fabric", arguments="'tcp;ofi_rxm'"),
    Entry("fi-pingpong", "fi_pingpong", arguments="fi_pingpong -e rdm -p 'tcp;ofi_rxm'", memory=""),
    Entry("twill", "twill"),
    Entry("twill-alloc", "twill", memory="own"),
    Entry("twill-persistent", "twill", arguments="persistent", rare=True),
    Entry("twill-ofi", "twill", setting="TWILL_PROVIDER=ofi:tcp"),
    Entry("twill-ofi5", "twill", setting="TWILL_PROVIDER=ofi:tcp", libfabric="mpich5"),
    Entry("ompi-tcp", "openmpi", TCP),
    Entry("ompi-tcp2", "openmpi", TCP + " --mca btl_tcp_links 2"),
    Entry("ompi-ucx", "openmpi", UCX, setting=UCX_TCP),
    Entry("mpich", "mpich", setting=UCX_TCP),
    Entry("ompi-ofi", "openmpi", OFI, setting=RXM),
    Entry("ompi5-ofi", "openmpi5", OFI, setting=RXM),
    Entry("mpich5-ofi", "mpich5", setting="FI_PROVIDER=tcp;ofi_rxm"),
    *GLOOS,
    Entry("ompi-tcp+twill", "openmpi", TCP),
    Entry("mpich+twill", "mpich", setting=UCX_TCP),
]
STEPS_OF_TWILL = [Entry("twill", "twill"), Entry("twill-thread", "twill", setting="TWILL_PROGRESS=thread")]
STEPS_ON_ONE_HOST = [*STEPS_OF_TWILL, Entry("ompi-cma", "openmpi", CMA), Entry("ompi-ucx", "openmpi", UCX),
                     Entry("mpich", "mpich"), *GLOO]  # fmt: skip
STEPS_BETWEEN_HOSTS = [*STEPS_OF_TWILL, Entry("ompi-tcp", "openmpi", TCP), Entry("ompi-ucx", "openmpi", UCX, setting=UCX_TCP),
                       Entry("mpich", "mpich", setting=UCX_TCP), *GLOO]  # fmt: skip
WITH_MPI = [
    entry
    for name, program in (("ompi", "openmpi"), ("mpich", "mpich"), ("ompi5", "openmpi5"), ("mpich5", "mpich5"), ("impi", "impi"))
    for entry in [
        Entry(name + variant + twill, program, arguments=arguments, memory=memory)
        for variant, arguments, memory in (("", "", "plain"), ("-alloc", "", "own"), ("-nonblocking", "nonblocking", "plain"))
        for twill in ("", "+twill")
    ]
    + [Entry(name + "+off", program, setting="TWILL_MPI=0")]
]
MPIS = {  # of the system: its own compiler and launcher, the common launcher, a word of its version, and words for a report
    "openmpi": ("mpicc.openmpi", "mpirun.openmpi", "mpirun", "Open MPI", "an mpirun of Open MPI"),
    "mpich": ("mpicc.mpich", "mpiexec.mpich", "mpiexec", "HYDRA", "an mpiexec of MPICH"),
}
OPEN_MPIS = ("openmpi", "openmpi5")
HYDRAS = ("mpich", "mpich5", "impi", "oneccl")


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
    components: str = ""  # of an Open MPI, as ompi_info lists them
    settings: list = field(default_factory=list)


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


def compile_peer(run, program, name, compiler, source, words, prefix=None):
    """Compile a program of another library when a comparison runs, so that building twill needs none of them."""
    program.path = os.path.join(run.folders.work, "compare-" + name)
    log = os.path.join(run.folders.work, name + "-compile.log")
    line = [compiler, "-O3", "-pthread", "-D_GNU_SOURCE", "-o", program.path, os.path.join(run.folders.sources, source)]
    if prefix:
        line += [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib", "-Wl,--allow-shlib-undefined"]
    if compare_links.command(run, line + words, log) != 0 or not os.access(program.path, os.X_OK):
        said = compare_links.first_line(log, "rror")
        program.why = f"not installed, or its program does not compile: {said}"


def build_mpi(run, program, name):
    """Build the program of an MPI of the system, or of a fetched one."""
    if name in MPIS:
        found = find_mpi(run, *MPIS[name])
        if found:
            program.launcher = found[1]
            compile_peer(run, program, name, found[0], "peer_mpi.c", ["-ldl"])
        else:
            compiler, launcher, _, _, one = MPIS[name]
            program.why = f"not installed: no {compiler} with {launcher}, and no mpicc with {one}"
        return
    prefix = compare_fetch.prefix_of(run.options, name)
    if not prefix:
        program.why = f"not in {compare_fetch.cache_of(run.options)}: --fetch takes it from PyPI"
        return
    program.launcher = os.path.join(prefix, "bin", "mpirun" if name in OPEN_MPIS else "mpiexec")
    compile_peer(run, program, name, "cc", "peer_mpi.c", ["-lmpi", "-ldl"], prefix)
    if name in OPEN_MPIS:
        log = os.path.join(run.folders.work, name + "-info.log")
        compare_links.command(run, [os.path.join(prefix, "bin/ompi_info")], log)
        with open(log, encoding="utf-8", errors="replace") as file:
            program.components = file.read()


def build(run, name):
    program = Program(launcher=os.path.join(run.folders.bin, "twillrun"))
    if name in MPIS or name in ("openmpi5", "mpich5", "impi"):
        build_mpi(run, program, name)
    elif name == "gloo":
        compile_peer(run, program, name, "c++", "peer_gloo.cpp", ["-lgloo", "-lpthread"])
    elif name == "ucc":
        if run.options.ucc:
            compile_peer(run, program, name, "cc", "peer_ucc.c", ["-lucc"], run.options.ucc)
        else:
            program.why = "its path was not given: --ucc PREFIX"
    elif name == "oneccl":
        prefix = run.options.oneccl or compare_fetch.prefix_of(run.options, name)
        if prefix:
            hydra = os.path.join(prefix, "bin/mpiexec")
            program.launcher = hydra if os.access(hydra, os.X_OK) else program.launcher
            program.settings = [f"LD_LIBRARY_PATH={prefix}/lib"]
            compile_peer(run, program, name, "c++", "peer_oneccl.cpp", ["-std=c++17", "-lccl"], prefix)
        else:
            program.why = f"not in {compare_fetch.cache_of(run.options)}: --fetch takes it from PyPI, or give --oneccl PREFIX"
    elif name in compare_fetch.SOURCES:
        source = run.options.source.get(name)
        words, program.why = compare_fetch.words_of_source(run, name, source) if source else ([], f"no --source {name}=DIR")
        if not program.why:
            compile_peer(run, program, name, "c++", "peer_source.cpp", words)
    elif name == "fabric":
        compile_peer(run, program, name, "cc", "peer_fabric.c", ["-lfabric"])
    elif name == "fi_pingpong":
        program.path = shutil.which(name) or ""
        program.why = "" if program.path else "not installed: no fi_pingpong"
    else:  # built with the tools
        program.path = os.path.join(run.folders.programs, "compare-" + name)
        program.why = "" if os.access(program.path, os.X_OK) else f"{program.path} is missing"
    return program


# --- command lines -------------------------------------------------------------------------------


def preloads(run, entry):
    """Return the options that load the library before the MPI in the ranks only, not in launchers."""
    library = find_library(run, "libtwill-mpi.so")
    if "+" not in entry.name:
        return []
    return ["-x", f"LD_PRELOAD={library}"] if entry.program in OPEN_MPIS else ["-genv", "LD_PRELOAD", library]


def by_launcher(run, one):
    """Let the launcher start its daemons by the agent. Hydra passes all variables on, but needs the address at which its
    daemons reach it."""
    agent, entry, ranks = run.links.agent, one.entry, str(run.options.ranks)
    hosts = ",".join(f"{name}:{n}" for name, n in run.options.hosts)
    if entry.program in HYDRAS:
        line = ["-launcher", "rsh", "-launcher-exec", agent, "-localhost", run.links.addresses.split(",")[0], "-hosts", hosts]
        return line + ["-bind-to", "none", "-n", ranks]
    if entry.program == "twill":
        line = ["--agent", agent, "--hosts", hosts, "-n", ranks]
    elif entry.program == "openmpi5":
        line = "--map-by :OVERSUBSCRIBE --bind-to none --prtemca plm ssh --prtemca plm_ssh_agent".split()
        line += [agent, "--host", hosts, "-n", ranks]
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


def libfabric_of(run, entry):
    """Return the path of the libfabric that a fetched MPI brings, or ""."""
    path = os.path.join(compare_fetch.prefix_of(run.options, entry.libfabric), "lib/mpich/libfabric.so.1")
    return path if os.access(path, os.R_OK) else ""


def settings_of(run, one, program):
    """Return the environment of a contender. Libraries with threads or ranks that spin are told if cores are shared. What twill
    remembers of earlier runs is not used: the home directory of its contenders is empty."""
    entry, shared = one.entry, run.options.ranks > run.cores
    settings = ([entry.setting] if entry.setting else []) + program.settings
    if entry.libfabric:
        settings.append("TWILL_TUNE=libfabric=" + libfabric_of(run, entry))
    if one.kind == "twill":
        settings.append("HOME=" + os.path.join(run.folders.work, "home"))
    if entry.program in OPEN_MPIS and os.geteuid() == 0:
        settings += ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                     "PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1"]  # fmt: skip
    if entry.program in OPEN_MPIS and shared:
        settings += ["OMPI_MCA_mpi_yield_when_idle=1"]
    if entry.program in ("impi", "oneccl") and shared:
        settings += ["I_MPI_THREAD_YIELD=2", "I_MPI_PIN=0"]
    return settings


def set_command(run, one, program, link):
    """Set the command line. Ranks bind themselves, so that all contenders use the same cores."""
    entry, options = one.entry, run.options
    words = [program.path, link, one.memory, *entry.arguments.split()]
    one.settings = settings_of(run, one, program)
    if options.hosts and entry.program not in (*OPEN_MPIS, *HYDRAS, "twill"):
        one.command = by_agent(run, one, words)
        return
    if options.hosts:
        line = by_launcher(run, one)
    elif entry.program == "openmpi":
        line = ["--oversubscribe", "--bind-to", "none", "-np", str(options.ranks)]
    elif entry.program == "openmpi5":
        line = ["--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "-n", str(options.ranks)]
    else:
        line = ["-n", str(options.ranks)]
    one.command = [program.launcher, *line, *entry.options.split(), *preloads(run, entry), *words]


# --- the contenders ------------------------------------------------------------------------------


def kind_of(entry):
    if entry.program == "twill" or "+" in entry.name:
        return "twill"
    if entry.program in ("bound", "raw", "fabric", "fi_pingpong"):
        return "trip" if "pingpong" in entry.arguments else "bound"
    return "peer"


def takes_part(run, entry):
    options = run.options
    if entry.memory == "heap" and not find_library(run, "libtwill-heap.so"):
        return False
    if entry.rare and not (options.persistent if entry.program == "twill" else options.peers):
        return False
    chosen = options.peers is None or any(word in entry.name for word in tool.words(options.peers))
    if entry.libfabric:
        return options.peers is not None and chosen
    return entry.program in ("bound", "twill", "raw") or chosen


def why_absent(run, entry, program):
    """Return why a contender cannot take part, or ""."""
    if program.why:
        return program.why
    if "+" in entry.name and not find_library(run, "libtwill-mpi.so"):
        return "libtwill-mpi is missing: twill was built without an MPI"
    if entry.libfabric and not libfabric_of(run, entry):
        return f"no {entry.libfabric} with a libfabric in {compare_fetch.cache_of(run.options)}"
    if entry.component and f"MCA coll: {entry.component} " not in program.components:
        return f"this Open MPI has no coll/{entry.component}"
    return ""


def gather(run):
    """Fill in the contenders. Missing ones stay in the table, with the reason."""
    chosen = [entry for entry in entries_of(run.options) if takes_part(run, entry)]
    names = list(dict.fromkeys(entry.program for entry in chosen))
    os.makedirs(os.path.join(run.folders.work, "home"), exist_ok=True)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # compilers run in parallel
        programs = dict(zip(names, pool.map(lambda name: build(run, name), names)))
    if run.interrupted:
        raise tool.Failure("interrupted before it began")
    for entry in chosen:
        base = entry.name.split("+")[0]
        one = Contender(entry.name, kind_of(entry), entry, entry.memory)
        if base != entry.name:
            one.below = next((other for other in run.contenders if other.name == base), None)
        one.absent = why_absent(run, entry, programs[entry.program])
        one.found = not one.absent
        one.log = os.path.join(run.folders.work, one.name + ".log")
        set_command(run, one, programs[entry.program], run.links.text(len(run.contenders)))
        run.contenders.append(one)

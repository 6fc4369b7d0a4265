# SPDX-License-Identifier: Apache-2.0
"""Run PyTorch's own tests of c10d backends with twill in Gloo's place, and write the result of each.

    python bench/studies/torch/own_tests.py distributed --ranks 3 --out results.txt
    python bench/studies/torch/own_tests.py test_c10d_gloo.py --out results.txt        # a file of PyTorch's source, test/distributed/

    python bench/studies/torch/own_tests.py --enter FOLDER    # all results there, with those of own_lists.sh, for docs/results

    python bench/studies/torch/own_tests.py test_checkpoint.py --on-cpu --out results.txt    # on the CPU also tests of CUDA devices

"distributed" is torch.testing._internal.distributed.distributed_test, which PyTorch's wheel has. Ranks are forked and not
spawned, which saves the import of PyTorch in each. Each line of the results has passed, failed or skipped, the test, and a
line of the reason. Entered are distributed.txt, of what that skips distributed.MORE.txt, as with --ranks 4 and --skips-of mpi,
and what failed there over Gloo too, in distributed.gloo.txt."""
import argparse
import functools
import importlib.util
import os
import re
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../common"))
import tool  # noqa: E402

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["TORCH_TWILL_GLOO"] = "1"
SOURCES = {"distributed": "torch.testing._internal.distributed.distributed_test"}


def prepare(ranks):
    """Set the environment variables and make the folders that PyTorch's distributed tests expect."""
    folder = tempfile.mkdtemp()
    for name in ("barrier", "test_dir", "init_dir"):
        os.mkdir(os.path.join(folder, name))
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(ranks), TEMP_DIR=folder, MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")


def take_place_of_gloo():
    """Let tests that make a ProcessGroupGloo by hand get a group of twill."""
    import datetime

    import torch.distributed as dist

    import twill.torch

    gloo = dist.ProcessGroupGloo

    def create(store, rank, size, *rest, **named):
        given = rest[0] if rest else named.get("timeout", named.get("options"))
        timeout = getattr(given, "_timeout", given) or datetime.timedelta(minutes=5)
        return twill.torch.create(store, rank, size, timeout)

    for name in ("_Options", "create_device", "create_default_device"):
        if hasattr(gloo, name):
            setattr(create, name, getattr(gloo, name))
            setattr(twill.torch.build.load().Backend, name, staticmethod(getattr(gloo, name)))  # tests call these of a group
    dist.ProcessGroupGloo = create
    # With BackendConfig, answer_for_gloo() does it, and this line would be for other devices.
    if not hasattr(dist.distributed_c10d, "BackendConfig"):
        dist.distributed_c10d.ProcessGroupGloo = create


def fork_ranks():
    """Let tests fork their ranks and not spawn them."""
    import torch
    from torch.testing._internal import common_distributed

    def fork(self):
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    common_distributed.MultiProcessTestCase._spawn_processes = fork


def on_cpu(text):
    """Return the source of tests of CUDA devices with the CPU and Gloo in the place of CUDA and NCCL."""
    for pattern, instead in ((r"\.cuda\((?:[^()]|\([^()]*\))*\)", ".cpu()"), (r"torch\.cuda\.device_count\(\)", "8"),
                             ("cpu:gloo,cuda:nccl", "gloo"), (r"cuda:(\{[^}]*\}|\d)", "cpu"), (r"(['\"])cuda\1", '"cpu"'), ('"nccl"', '"gloo"')):
        text = re.sub(pattern, instead, text)
    return text


def run_without_devices():
    """Let tests run that PyTorch skips if there are no CUDA devices."""
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed._shard import sharded_tensor

    for name in ("skip_if_lt_x_gpu", "requires_nccl"):
        setattr(common_distributed, name, lambda *_, **__: lambda function: function)
    sharded_tensor.with_comms = functools.partial(sharded_tensor.with_comms, backend="gloo")


def module_of(source, change):
    """Return a file as a module. `change` is a function that returns the changed source text."""
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(source))[0], source)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with open(source, encoding="utf-8") as file:
        exec(compile(change(file.read()), source, "exec"), module.__dict__)
    return module


def suite_of(source, skips_of, change):
    """Return the tests of "distributed" or of a file. Tests of "distributed" are skipped as for the backend `skips_of`."""
    loader = unittest.defaultTestLoader
    if source not in SOURCES:
        sys.path.insert(0, os.path.dirname(os.path.abspath(source)))
        module = module_of(source, change)
        if hasattr(module, "load_tests"):  # another program must not call it
            del module.load_tests
        return loader.loadTestsFromModule(module)
    os.environ["BACKEND"] = skips_of
    from torch.testing._internal.distributed import distributed_test

    os.environ["BACKEND"] = distributed_test.BACKEND = "gloo"

    class Distributed(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._spawn_processes()

    globals()["Distributed"] = Distributed
    return loader.loadTestsFromTestCase(Distributed)


def each_test(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from each_test(item)
        else:
            yield item


class Results(unittest.TextTestResult):
    """Write a line for each test when it has ended."""

    file, progress = None, tool.Progress()

    def write(self, what, test, reason=""):
        text = re.split(r"(?:\n|\\n)+To execute this test", str(reason))[0]  # PyTorch adds how to repeat it
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if ("Error" in line or "expired" in line) and not line.startswith("frame #")]
        kind = f"{type(reason).__name__}: " if isinstance(reason, BaseException) and not errors else ""
        told = kind + (errors[-1:] or lines[:1] or [""])[0]
        self.file.write(f"{what}\t{type(test).__name__}.{test._testMethodName}\t{told[:240]}\n")
        self.file.flush()

    def addSuccess(self, test):
        super().addSuccess(test)
        if getattr(test, "world_size", 1) == 0:  # it has no ranks and has run nothing
            self.write("skipped", test, "One rank for each CUDA device, and there is none")
        else:
            self.write("passed", test)

    def stopTestRun(self):
        self.progress.clear()

    def addError(self, test, err):
        super().addError(test, err)
        self.write("failed", test, err[1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.write("failed", test, err[1])

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.write("skipped", test, reason)


def results_of(path):
    """Return the results in a file: {test: (passed, failed or skipped, reason)}."""
    with open(path, encoding="utf-8") as file:
        return {test: (what, reason) for what, test, reason in (line.rstrip("\n").split("\t") for line in file)}


def why_not_imported(log):
    """Return the error by which a file of tests ended before its first test."""
    with open(log, encoding="utf-8") as file:
        errors = [line.strip() for line in file if re.match(r"\w*Error: ", line)]
    return "This PyTorch cannot import the file: " + re.sub(r" \(/[^)]*\)", "", errors[-1])


def enter(folder):
    """Write the tests of a folder of results into a study's file. A result is "not applicable" if PyTorch skips the test."""
    import study_file
    import torch

    files = [name.removesuffix(".txt") for name in sorted(os.listdir(folder)) if name.endswith(".txt") and not name.endswith(".gloo.txt")]
    rows = []
    for suite in (name for name in files if not name.startswith("distributed.")):
        of_gloo = os.path.join(folder, f"{suite}.gloo.txt")
        over_gloo = results_of(of_gloo) if os.path.exists(of_gloo) else {}
        results = results_of(os.path.join(folder, suite + ".txt"))
        for more in (name for name in files if name.startswith(f"{suite}.") and suite == "distributed"):
            results.update({test: result for test, result in results_of(os.path.join(folder, more + ".txt")).items() if result[0] != "skipped"})
        if not results:
            results["(the whole file)"] = ("skipped", why_not_imported(os.path.join(folder, suite + ".log")))
        for test, (what, reason) in sorted(results.items()):
            also = over_gloo.get(test, ("-",))[0] if what == "failed" else "-"
            rows.append([suite.replace(".", "/"), test, "not applicable" if what == "skipped" else what, re.sub(r"\bpid: \d+", "pid", reason), also])
    study = study_file.head("pytorch-tests-2-15", "sh bench/studies/torch/own_lists.sh; python bench/studies/torch/own_tests.py")
    study["tables"]["tests"] = {"units": dict.fromkeys(("file", "test", "result", "reason", "over Gloo"), ""), "rows": rows}
    os.environ["STUDY_VERSIONS"] = f"PyTorch={torch.__version__}"
    study["versions"] = study_file.versions("")  # reasons name programs that were not used
    with open(study_file.path_of(study["study"]), "w", encoding="utf-8") as file:
        file.write(study_file.text_of(study))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?")
    parser.add_argument("--enter", metavar="FOLDER")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--out", default="/dev/stdout")
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--without", default="", help="parts of names to leave out")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no test after this long")
    parser.add_argument("--skips-of", default="gloo", help="skip what PyTorch skips for this backend: mpi runs all_to_all")
    parser.add_argument("--gloo", action="store_true", help="Gloo itself, to compare")
    parser.add_argument("--on-cpu", action="store_true", help="run tests that want CUDA devices on the CPU")
    options = parser.parse_args()
    if options.enter:
        enter(options.enter)
        return
    prepare(options.ranks)
    if options.gloo:
        del os.environ["TORCH_TWILL_GLOO"]
    else:
        import twill.torch.build

        twill.torch.build.load()
        if options.source not in SOURCES:
            take_place_of_gloo()
    fork_ranks()
    if options.on_cpu:
        run_without_devices()
    only, without = ([part for part in text.split(",") if part] for text in (options.only, options.without))
    end = time.monotonic() + options.seconds
    with open(options.out, "a", encoding="utf-8") as Results.file:
        runner = unittest.TextTestRunner(resultclass=Results, verbosity=0)
        tests = list(each_test(suite_of(options.source, options.skips_of, on_cpu if options.on_cpu else str)))
        for i, test in enumerate(tests):
            name = test.id()
            Results.progress.show(i, len(tests), name)
            if time.monotonic() < end and (not only or any(p in name for p in only)) and not any(p in name for p in without):
                runner.run(test)


if __name__ == "__main__":
    main()

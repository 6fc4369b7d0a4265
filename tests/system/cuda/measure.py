# SPDX-License-Identifier: Apache-2.0
"""Seconds of calls on memory of one GPU that all ranks share, in turns: by this library, by the same steps made by
hand around host calls of it, and by PyTorch's Gloo. Needs PyTorch, a GPU and a library built with TWILL_WITH_CUDA:

    twillrun -n 2 python3 measure.py lib/libtwill.so [METHOD...]
"""
import ctypes
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
METHODS = sys.argv[2:] or ["twill", "by hand", "by hand, pinned", "gloo"]
SIZES = {4 << 10: 150, 64 << 10: 150, 1 << 20: 50, 16 << 20: 8, 64 << 20: 4}  # bytes: repetitions in a round
ROUNDS = 3
P, N, I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
F32 = SUM = 0

lib = ctypes.CDLL(sys.argv[1])
for name, arguments in {"twill_allreduce": (P, P, P, N, I, I), "twill_allgather": (P, P, P, N, I),
                        "twill_broadcast": (P, P, P, N, I, I), "twill_send": (P, P, N, I, I),
                        "twill_recv": (P, P, N, I, I), "twill_barrier": (P,), "twill_init": (P,)}.items():
    getattr(lib, name).argtypes = arguments
lib.twill_comm_message.restype = ctypes.c_char_p
lib.twill_comm_message.argtypes = (P,)
comm = P()
if lib.twill_init(ctypes.byref(comm)) != 0:
    sys.exit("twill_init failed")


def check(status):
    if status != 0:
        sys.exit(f"rank {RANK}: {lib.twill_comm_message(comm).decode()}")


def at(tensor):
    return tensor.data_ptr()


def twill_call(what, tensor, out):
    count = tensor.numel()
    if what == "allreduce":
        check(lib.twill_allreduce(comm, at(tensor), at(tensor), count, F32, SUM))
    elif what == "all-gather":
        check(lib.twill_allgather(comm, at(tensor), at(out), count, F32))
    elif what == "broadcast":
        check(lib.twill_broadcast(comm, at(tensor) if RANK == 0 else None, at(tensor), count, F32, 0))
    elif RANK % 2 == 0:
        check(lib.twill_send(comm, at(tensor), count, F32, RANK + 1))
        check(lib.twill_recv(comm, at(tensor), count, F32, RANK + 1))
    else:
        check(lib.twill_recv(comm, at(tensor), count, F32, RANK - 1))
        check(lib.twill_send(comm, at(tensor), count, F32, RANK - 1))


def gloo_call(what, tensor, out):
    if what == "allreduce":
        dist.all_reduce(tensor)
    elif what == "all-gather":
        dist.all_gather(list(out.chunk(SIZE)), tensor)
    elif what == "broadcast":
        dist.broadcast(tensor, 0)
    elif RANK % 2 == 0:
        dist.send(tensor, RANK + 1)
        dist.recv(tensor, RANK + 1)
    else:
        dist.recv(tensor, RANK - 1)
        dist.send(tensor, RANK - 1)
    torch.cuda.synchronize()


def hand_call(what, tensor, out, host, host_out):
    if what != "broadcast" or RANK == 0:
        host.copy_(tensor)
    twill_call(what, host, host_out)
    if what == "all-gather":
        out.copy_(host_out)
    elif what != "broadcast" or RANK != 0:
        tensor.copy_(host)
    torch.cuda.synchronize()


def calls_of(what, floats):
    """Return the function of each method, on fresh tensors."""
    given = floats // SIZE if what == "all-gather" else floats
    tensor, out = torch.rand(given, device="cuda"), torch.empty(floats if what == "all-gather" else 0, device="cuda")
    made = {}
    for method in METHODS:
        if method == "gloo" and what == "send+receive":
            continue  # it takes the address for a host's, and aborts: writev: Bad address (PyTorch 2.11)
        if method == "twill":
            made[method] = lambda: twill_call(what, tensor, out)
        elif method == "gloo":
            made[method] = lambda: gloo_call(what, tensor, out)
        else:
            host = torch.empty(given, pin_memory="pinned" in method)
            host_out = torch.empty(out.numel(), pin_memory="pinned" in method)
            made[method] = lambda h=host, o=host_out: hand_call(what, tensor, out, h, o)
    return made, tensor


def seconds(call, repetitions):
    taken = []
    for _ in range(repetitions):
        torch.cuda.synchronize()
        check(lib.twill_barrier(comm))
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return taken


def measure(what, size):
    """Return each method's median, of the slowest rank."""
    calls, tensor = calls_of(what, size // 4)
    taken = {method: [] for method in calls}
    for _ in range(ROUNDS + 1):  # the first one warms up
        for method, call in calls.items():
            tensor.uniform_()
            taken[method].append(seconds(call, SIZES[size]))
    mine = torch.tensor([statistics.median(sum(t[1:], [])) for t in taken.values()], dtype=torch.float64)
    check(lib.twill_allreduce(comm, at(mine), at(mine), len(mine), 1, 3))  # f64, max
    return dict(zip(calls, map(float, mine)))


def check_values():
    """Compare sums of both libraries with the host's, once for each size."""
    for size in SIZES:
        tensor = torch.full((size // 4,), float(RANK + 1), device="cuda")
        twill_call("allreduce", tensor, None)
        if not bool((tensor == SIZE * (SIZE + 1) / 2).all()):
            sys.exit(f"rank {RANK}: a sum of {size} bytes is wrong")


def main():
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if "gloo" in METHODS:
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29717", rank=RANK, world_size=SIZE)
    check_values()
    if RANK == 0:
        print(f"# {SIZE} ranks of {len(os.sched_getaffinity(0))} cores, {torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}; microseconds")
        print("call         bytes     " + "".join(f"{m:>17}" for m in METHODS) + "   gloo/twill", flush=True)
    for what in ("allreduce", "all-gather", "broadcast", "send+receive"):
        for size in SIZES:
            row = measure(what, size)
            if RANK == 0:
                print(f"{what:12} {size:<10}" + "".join(f"{t * 1e6:17.1f}" for t in row.values()) +
                      (f"{row['gloo'] / row['twill']:13.1f}" if {"gloo", "twill"} <= row.keys() else ""), flush=True)
    check(lib.twill_barrier(comm))
    os._exit(0)  # nothing of this is to be measured


main()

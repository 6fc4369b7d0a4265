# SPDX-License-Identifier: Apache-2.0
"""Train LightGBM on all ranks, over twill and over its own sockets, in turns, and compare the models: they are the same
text, but for the parameters. Prints the seconds of each training.

    python3 -m twill.run -n 2 tests/system/lightgbm/train_boosted.py DATA ROUNDS LEAVES TURNS

DATA: a file of numbers (a label, then features, a line each), or ROWSxFEATURES, a table that is made."""
import socket
import sys
import time

import lightgbm
import numpy as np
import twill
import twill.lightgbm


def table(name: str) -> tuple:
    """Return features and labels of all samples."""
    if "/" in name:
        data = np.loadtxt(name, delimiter=",", dtype="f4")
        return data[:, 1:], data[:, 0]
    rows, features = map(int, name.split("x"))
    random = np.random.default_rng(1)
    x = random.standard_normal((rows, features), dtype="f4")
    y = x[:, :5].sum(1) + x[:, 5] * x[:, 6] + random.standard_normal(rows, dtype="f4")
    return x, (y > 0).astype("f4")


def train(comm: twill.Communicator, parameters: dict, x: np.ndarray, y: np.ndarray, rounds: int, callbacks: list) -> tuple:
    """Return the model as text, and the seconds of the slowest rank."""
    comm.barrier()
    start = time.perf_counter()
    data = lightgbm.Dataset(x, y, params=parameters)
    booster = lightgbm.train(parameters, data, rounds, callbacks=callbacks)
    seconds = comm.allreduce(time.perf_counter() - start, op=twill.MAX)
    booster.free_network()
    return booster.model_to_string().split("\nparameters:")[0], seconds


def over_twill(comm: twill.Communicator, parameters: dict, *work: object) -> tuple:
    with twill.lightgbm.network(comm) as net, comm.dup() as other:
        comm.times_reset()
        result = train(other, {**parameters, **net.parameters}, *work, [net.check])
        if comm.rank == 0:
            print(*comm.times(), sep="\n")
        return result


def over_sockets(comm: twill.Communicator, parameters: dict, *work: object) -> tuple:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ports = comm.allgather_object(port)
    return train(comm, {**parameters, "tree_learner": "data", "num_machines": comm.size, "pre_partition": True,
                        "local_listen_port": port, "machines": ",".join(f"127.0.0.1:{p}" for p in ports)}, *work, [])


def main() -> None:
    name, rounds, leaves, turns = sys.argv[1], *map(int, sys.argv[2:])
    with twill.init() as comm:
        x, y = table(name)
        classes = int(y.max()) + 1
        parameters = {"num_leaves": leaves, "verbose": -1, "num_threads": 1, "seed": 1, "deterministic": True,
                      "force_col_wise": True, "objective": "binary" if classes == 2 else "multiclass"}
        if classes > 2:
            parameters["num_class"] = classes
        mine = slice(len(x) * comm.rank // comm.size, len(x) * (comm.rank + 1) // comm.size)
        seconds: dict = {over_twill: [], over_sockets: []}
        models = set()
        for _ in range(turns):
            for how, taken in seconds.items():
                model, needed = how(comm, parameters, x[mine], y[mine], rounds)
                taken.append(needed)
                models.update(comm.allgather_object(model))
        predicted = lightgbm.Booster(model_str=models.copy().pop()).predict(x)
        right = (predicted > 0.5 if classes == 2 else predicted.argmax(1)) == y
        if comm.rank == 0:
            for how, taken in seconds.items():
                print(f"{how.__name__[5:]:8}", " ".join(f"{s:.2f}" for s in taken), "s")
            print(f"{len(models)} model{'s'[:len(models) > 1]}, {100 * right.mean():.2f}% of the samples right")
        if len(models) != 1:
            sys.exit(1)


if __name__ == "__main__":
    main()

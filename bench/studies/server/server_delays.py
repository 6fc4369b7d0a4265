# SPDX-License-Identifier: Apache-2.0
"""Run a parameter server whose workers sleep for random times instead of computing, to compare its updates and its
staleness with those of twill-simulate. The arguments are MODE K LAW MEAN UPDATES. LAW is exp or uniform (0.5 to 1.5 times
MEAN), and MEAN is in milliseconds. Run it by twillrun, as delays.sh does. Rank 0 serves."""
import os
import random
import sys
import time

import twill

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../common"))
import tool  # noqa: E402

mode, k, law = sys.argv[1].replace("-", "_"), int(sys.argv[2]), sys.argv[3]
mean, updates = float(sys.argv[4]) * 1e-3, int(sys.argv[5])
comm = twill.init()
draw = random.Random(comm.rank + 1)
with twill.Server(comm, optimizer="sgd", layout="nc", mode=mode, k=k) as server:
    tensor = server.add("w", 64)
    server.commit()
    if server.role == twill.ServerPart.SERVES:
        server.serve()
        counters, histogram = server.counters, server.staleness(1024)
        gradients, above = counters["gradients"], sum(histogram[2 * k + 1 :])
        stale = sum(i * n for i, n in enumerate(histogram)) / gradients
        print(f"stale {stale:.4f} above {above / gradients:.6f} updates {counters['updates']} gradients {gradients} "
              f"dropped {counters['dropped']}")  # fmt: skip
    else:
        begin = version = first = 0
        progress = tool.Progress(comm.rank == 1)
        while version < updates:
            time.sleep(mean * draw.uniform(0.5, 1.5) if law == "uniform" else draw.expovariate(1 / mean))
            tensor.push_pull()
            tensor.wait()
            version = tensor.version
            progress.show(version, updates, "updates")
            if begin == 0 and version >= updates / 10:  # the first tenth is not timed
                begin, first = time.monotonic(), version
        progress.clear()
        if comm.rank == 1:
            print(f"update_s {(time.monotonic() - begin) / (version - first):.6f}")

# SPDX-License-Identifier: Apache-2.0
"""Failures are exceptions with the library's sentence, and the survivors go on. Three processes, which this starts."""
import builtins
import os
import signal
import subprocess
import sys
import threading
import unittest

import numpy as np
import twill

PATIENCE = 600


def dies() -> None:
    comm = twill.init()
    kept = comm.context.zeros(10)
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        comm.allreduce(kept)
        raise AssertionError("nothing was raised")
    except twill.PeerError as error:
        assert "rank 1" in str(error) and isinstance(error, (twill.TwillError, ConnectionError)), error
        assert error.status == twill.Status.ERR_PEER
    try:
        comm.allreduce(kept)
    except twill.BrokenError:
        pass
    smaller = comm.shrink()
    assert (comm.agree(7), comm.failed_ranks(), comm.outcome().survivors) == (7, [1], 2), comm.outcome()
    comm.leave()
    assert (smaller.size, smaller.allreduce(1)) == (2, 2)
    kept[...] = 1
    assert smaller.allreduce(kept).sum() == 20
    with twill.Handle(smaller) as handle:
        made = handle.reconfigure([text for text in smaller.allgather_object(handle.text)], ordered=True)
    smaller.leave()
    assert (made.rank, made.size, made.epoch, made.allreduce(kept)[0]) == (made.rank, 2, 1, 4)
    made.free()
    kept += 1


def differ() -> None:
    comm = twill.init()
    try:
        comm.allreduce(np.zeros(4 + comm.rank))
        raise AssertionError("nothing was raised")
    except twill.MismatchError as error:
        assert "count" in str(error), error
    comm.free()


def late() -> None:
    comm = twill.init()
    comm.barrier()
    comm.set_timeout(0.5)
    if comm.rank != 2:
        try:
            comm.barrier()
            raise AssertionError("nothing was raised")
        except builtins.TimeoutError as error:
            assert "rank 2" in str(error), error
        comm.free()
    else:
        threading.Event().wait(1.5)
        os._exit(0)


def raises() -> None:
    """An exception that leaves the block ends the communicator on the other ranks, too."""
    try:
        with twill.init() as comm:
            if comm.rank == 0:
                raise KeyError("rank 0 only")
            comm.barrier()
    except KeyError:
        assert comm.rank == 0
    except (twill.RevokedError, twill.PeerError):
        assert comm.rank != 0


def stops() -> None:
    """One rank gets the signal in its fourth step. All stop after the fifth, of the communicator and of a set."""
    comm = twill.init(settings={"TWILL_STOP_SIGNAL": "USR1"})
    child = os.fork()
    if child == 0:
        signal.pause()
    os.kill(child, signal.SIGUSR1)  # a child is no rank, and ends
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGUSR1
    with twill.GradientSet(comm) as gradients:
        gradients.add("weights", 100)
        gradients.commit()
        after, steps = (0, 0), 0
        while after == (0, 0) and steps < 10:
            comm.allreduce(1)
            gradients.tensors[0].ready()
            gradients.wait_all()
            steps += 1
            if (comm.rank, steps) == (1, 4):
                os.kill(os.getpid(), signal.SIGUSR1)
            after = comm.stop_requested(), gradients.stop_requested()
    assert (steps, after[1], after[0] > 0, len(set(comm.allgather_object(after)))) == (5, 5, True, 1), (steps, after)
    comm.free()


class Failures(unittest.TestCase):
    def job(self, name: str, status: int = 0) -> None:
        ran = subprocess.run([sys.executable, "-m", "twill.run", "-n", "3", __file__, name], text=True,
                             capture_output=True, timeout=PATIENCE)
        self.assertNotIn("Traceback", ran.stderr)
        self.assertEqual(ran.returncode, status, ran.stderr)

    def test_death(self) -> None:
        self.job("dies", 128 + signal.SIGKILL)

    def test_mismatch(self) -> None:
        self.job("differ")

    def test_timeout(self) -> None:
        self.job("late")

    def test_exception(self) -> None:
        self.job("raises")

    def test_stop(self) -> None:
        self.job("stops")

    def test_settings(self) -> None:
        with self.assertRaisesRegex(twill.ConfigError, "TWILL_TIMEOUT"):
            twill.init(settings={"TWILL_TIMEOUT": "soon"})
        with self.assertRaises(ValueError):
            twill.join("nothing")
        with self.assertRaisesRegex(twill.ArgumentError, "nobody-here"):
            twill.job_view("nobody-here")

    def test_bootstrap(self) -> None:
        """Threads as ranks, by an exchange of the program's."""
        barrier, parts = threading.Barrier(2), [b""] * 2

        def exchange_of(rank: int) -> object:
            def exchange(mine: bytes) -> list:
                parts[rank] = mine
                barrier.wait(PATIENCE)
                every = list(parts)
                barrier.wait(PATIENCE)
                return every
            return exchange

        sums = [0, 0]

        def run(rank: int) -> None:
            with twill.init(twill.Bootstrap(rank, 2, exchange_of(rank)), {"TWILL_LOG": "none"}) as comm:
                sums[rank] = comm.allreduce(rank + 1)

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sums, [3, 3])
        with self.assertRaisesRegex(ValueError, "the exchange returned"):
            twill.init(twill.Bootstrap(0, 2, lambda mine: [mine]), {"TWILL_LOG": "none"})

    def test_command(self) -> None:
        from twill.run import command

        python = sys.executable
        for given, expected in [("-n 4 train.py --x", f"-n 4 -- {python} train.py --x"),
                                ("-l --np=2 -x A=b -- train.py", f"-l --np=2 -x A=b -- {python} train.py"),
                                ("-n2 -m pkg.train", f"-n2 -- {python} -m pkg.train"),
                                ("-n 2 ./a.out x.py", "-n 2 ./a.out x.py"), ("--help", "--help"),
                                ("-np 1 -label -bind-to none a.py : -n 2 ./b x : -n 1 c.py y",
                                 f"-np 1 -label -bind-to none {python} a.py : -n 2 ./b x : -n 1 {python} c.py y")]:
            self.assertEqual(" ".join(command(given.split())), expected)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in ("dies", "differ", "late", "raises", "stops"):
        globals()[sys.argv[1]]()
    else:
        unittest.main()

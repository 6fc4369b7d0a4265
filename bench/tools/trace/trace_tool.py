# SPDX-License-Identifier: Apache-2.0
"""twill-trace shows where the time of a job went, from the timelines of its ranks (TWILL_TIMELINE), which are arrays of events,
one per line. A call of several ranks has one number on one communicator, and all of them wait until the last of them begins."""
import json
import math
import os
import sys

import tool

USAGE = """\
Usage: twill-trace [options] FILE...
Read the timelines of a job's ranks (TWILL_TIMELINE), and say where the time
went: shares, the calls in which ranks waited longest for the last one, and
which ranks that were.

  -o, --output FILE  also write all timelines as one, for ui.perfetto.dev or
                     chrome://tracing; overwrites only what twill-trace has
                     written
  -n, --top N        lines of each list (10)
      --json         print as JSON
  -h, --help  -V, --version

Exit status: 0 success, 1 a file cannot be read or written, 2 a wrong command
line.
"""

PHASES = ["call", "wait for peer", "send", "receive", "reduce", "fuse in", "fuse out", "update"]  # whose shares are summed
# The first event of a merged file. A timeline of a rank begins differently.
MERGED = '[\n{"name":"twill_merged","ph":"M","pid":0,"args":{}}'


def number(mapping, name):
    value = mapping.get(name)
    return value if isinstance(value, (int, float)) and math.isfinite(value) else 0


def arguments_of(event):
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def count(mapping, name):
    """Return a count, or 0 if it is absent or negative."""
    return min(max(0, int(number(mapping, name))), 2**63 - 1)


class Job:
    """All timelines that were read. Times are in us of the clock of rank 0."""

    def __init__(self):
        self.spans, self.events = [], 0
        self.clocks = {}  # of each rank, None if its timeline is not complete
        self.job = self.first = None  # its number, from the first timeline that has one, and that timeline

    def drift(self, rank, us):
        """Return how far the time of a rank must be moved. Timelines have the first offset subtracted already."""
        clock = self.clocks.get(rank)
        if not clock or number(clock, "later") <= number(clock, "at"):
            return 0
        share = (us * 1e3 - number(clock, "at")) / (number(clock, "later") - number(clock, "at"))
        return (number(clock, "later_offset") - number(clock, "offset")) * share * 1e-3


class Span:
    __slots__ = "begin", "end", "rank", "phase", "name", "comm", "sequence", "bytes"

    def __init__(self, event, moved):
        arguments = arguments_of(event)
        self.begin = number(event, "ts") - moved
        self.end = self.begin + number(event, "dur")
        self.rank, self.phase, self.name = count(event, "pid"), event["cat"], str(event.get("name") or "")[:23]
        self.comm, self.sequence, self.bytes = (count(arguments, name) for name in ("comm", "seq", "bytes"))


# --- files ---------------------------------------------------------------------------------------


def parse_events(path):
    """Parse an array of events. If it is cut short, parse the complete lines."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    while True:
        try:
            events = json.loads(text)
            break
        except (ValueError, RecursionError):
            end = text.rstrip("]").rfind("\n")
            if end <= 0:
                raise tool.Failure(f"{path}: not a timeline of twill") from None
            text = text[:end].rstrip(",") + "]"
    if not isinstance(events, list):
        raise tool.Failure(f"{path}: not a timeline of twill")
    return [event for event in events if isinstance(event, dict)], len(events)


def check_job(job, path, events):
    """Check that all events are of the job that was read first. The file of a rank of an earlier job with more ranks is not
    overwritten, so it may still be there."""
    for event in events:
        if event.get("name") == "twill_job":
            arguments = arguments_of(event)
            name = arguments.get("job") or ""
            if not job.job:
                job.job, job.first = name, path
            elif job.job != name:
                earlier = f"an earlier one of {count(arguments, 'ranks')} ranks?"
                raise tool.Failure(f"{path} is of another job than {job.first} ({earlier}): leave it out")


def read(job, path, out):
    """Read a timeline, and copy its events to a file, if any."""
    events, n = parse_events(path)
    check_job(job, path, events)
    job.events += n
    for event in events:
        rank = count(event, "pid")
        job.clocks.setdefault(rank, None)
        if event.get("name") == "twill_clock":
            job.clocks[rank] = arguments_of(event)
    for event in events:
        moved = job.drift(count(event, "pid"), number(event, "ts"))
        if event.get("ph") == "X" and event.get("cat") in PHASES:
            job.spans.append(Span(event, moved))
        if out and "ts" in event:
            event["ts"] = round(number(event, "ts") - moved, 3)
        if out:
            out.write(",\n" + json.dumps(event, separators=(",", ":")))


def may_write(path):
    """Return whether a file may be written, because there is none or because this program has merged it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(len(MERGED)) == MERGED
    except FileNotFoundError:
        return True


def read_all(job, paths, output):
    """Read all files and, if requested, write them as one, which is renamed when it is complete."""
    if not output:
        for path in paths:
            read(job, path, None)
        return
    if not may_write(output):
        raise tool.Failure(f"{output}: File exists")
    part = output + ".part"
    try:
        with open(part, "w", encoding="utf-8") as out:
            out.write(MERGED)
            for path in paths:
                read(job, path, out)
            out.write("\n]\n")
        os.rename(part, output)
    except BaseException:
        if os.path.exists(part):
            os.remove(part)
        raise


# --- the summary ---------------------------------------------------------------------------------


class Rank:
    """The time of a rank, and the time that others waited for it."""

    def __init__(self, rank):
        self.rank = rank
        self.phase = dict.fromkeys(PHASES, 0)
        self.waiting = 0  # for the last rank of calls
        self.caused = self.late = 0  # waiting of others in calls that it began last, and the number of those calls


class Summary:
    def __init__(self, job):
        self.ranks = {rank: Rank(rank) for rank in sorted(job.clocks)}
        known = all(job.clocks.values())
        errors = [max(number(clock, "error"), number(clock, "later_error")) for clock in job.clocks.values() if clock]
        self.error = max(errors, default=0) * 1e-3 if known else None
        self.span = max((span.end for span in job.spans), default=0) - min((span.begin for span in job.spans), default=0)
        calls = {}
        for span in job.spans:
            self.ranks[span.rank].phase[span.phase] += span.end - span.begin
            if span.phase == "call":
                calls.setdefault((span.comm, span.sequence), []).append(span)
        self.calls = [self.join(calls[key]) for key in sorted(calls)]  # (waiting of all others, the span that began last)
        self.calls = sorted((call for call in self.calls if call[0] > 0), key=lambda call: -call[0])
        self.causes = sorted((rank for rank in self.ranks.values() if rank.caused > 0), key=lambda rank: -rank.caused)

    def join(self, spans):
        *others, last = sorted(spans, key=lambda span: span.begin)
        waiting = 0
        for span in others:
            waited = min(last.begin, span.end) - span.begin
            self.ranks[span.rank].waiting += waited
            waiting += waited
        self.ranks[last.rank].caused += waiting
        self.ranks[last.rank].late += bool(others)
        return waiting, last


def print_text(job, summary, most):
    clocks = "clocks unknown: a timeline is not complete"
    if summary.error is not None:
        clocks = f"clocks agree within {summary.error:.1f} us"
    print(f"{tool.plural(len(summary.ranks), 'rank')}, {tool.plural(job.events, 'event')}, {summary.span * 1e-6:.6f} s; {clocks}")
    widths = [max(8, len(phase)) for phase in PHASES]
    print(f"\nShares of the time in percent; spans of a rank may overlap.\n{'rank':>6} {'late peer':>9}", end="")
    print("".join(f" {phase:>{width}}" for phase, width in zip(PHASES, widths)))
    for rank in summary.ranks.values():
        shares = [100 * time / summary.span if summary.span > 0 else 0 for time in (rank.waiting, *rank.phase.values())]
        print(f"{rank.rank:6}" + "".join(f" {share:{width}.1f}" for share, width in zip(shares, [9, *widths])))
    print("\nLongest waits for the last rank of a call, of all others together:")
    for waiting, last in summary.calls[:most]:
        call = f"{last.name} #{last.sequence} ({last.bytes} bytes) of communicator {last.comm}"
        print(f"{waiting:12.1f} us  {call}: rank {last.rank} came last")
    print("\nRanks that others waited for:")
    for rank in summary.causes[:most]:
        critical = " (the critical rank)" if rank is summary.causes[0] else ""
        print(f"{rank.caused:12.1f} us  rank {rank.rank}, last in {tool.plural(rank.late, 'call')}{critical}")


def print_json(job, summary, most):
    whole = {"events": job.events, "seconds": summary.span * 1e-6}
    if summary.error is not None:
        whole["clock_error_seconds"] = summary.error * 1e-6
    whole["ranks"] = [{
        "rank": rank.rank,
        "waiting_seconds": rank.waiting * 1e-6,
        "caused_seconds": rank.caused * 1e-6,
        "last_in_calls": rank.late,
        **{phase: time * 1e-6 for phase, time in rank.phase.items()},
    } for rank in summary.ranks.values()]  # fmt: skip
    whole["waits"] = [{
        "call": last.name,
        "communicator": last.comm,
        "sequence": last.sequence,
        "bytes": last.bytes,
        "last_rank": last.rank,
        "seconds": waiting * 1e-6,
    } for waiting, last in summary.calls[:most]]  # fmt: skip
    if summary.causes:
        whole["critical_rank"] = summary.causes[0].rank
    json.dump(whole, sys.stdout, indent=2)
    print()


def main(arguments):
    pairs, paths = tool.options(arguments, "o:n:", ["output=", "top=", "json"], USAGE)
    output, most, as_json = None, 10, False
    for option, text in pairs:
        if option in ("-o", "--output"):
            output = text
        elif option == "--json":
            as_json = True
        else:
            most = tool.number("--top", text, 1, 1000000, "a number from 1 to 1000000")
    if not paths:
        raise tool.Mistake("no FILE: name the timelines that TWILL_TIMELINE has written")
    job = Job()
    read_all(job, paths, output)
    (print_json if as_json else print_text)(job, Summary(job), most)
    return 0

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# passed_names.sh HEADER LIBRARY: what libtwill-mpi-calls-VARIANT.so does with each function that an MPI's mpi.h
# declares: takes it (collectives), watches it (shows it for another reason), or leaves it to the MPI. Those that are left
# are listed if they could go wrong: they are given requests that twill may have made, or make communicators. Complains of
# functions for which nothing below says why they may be left. By hand, and by check_mpi_detect.sh.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nm -D --defined-only "$2" | sed 's/.* //; s/@.*//' | sort -u >"$work/shown"
# One declaration a line, without comments and attributes.
tr '\n' ' ' <"$1" | sed 's,/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/,,g' | tr ';' '\n' |
    sed -n 's/.*[ *]\(MPI_[A-Z][A-Za-z0-9_]*\) *(\(.*\)).*/\1 \2/p' | grep -E '^MPI_[A-Z][a-z]' | sort -u >"$work/declared"
awk -v shown="$work/shown" '
    BEGIN {
        while ((getline name <shown) > 0)
            is_shown[name] = 1
        collective = "^MPI_I?(allreduce|reduce|bcast|allgatherv?|gatherv?|scatterv?|reduce_scatter(_block)?|alltoallv?|barrier)(_init)?(_c)?$"
        # Make a request: the last argument. What they made is the MPI'"'"'s.
        makes = "^MPI_(I|File_i|Buffer_i|Comm_i|Session_i|R(get|put|accumulate)|Imrecv|Grequest_start|P(send|recv)_init|[BRS]?s?end_init|Recv_init)|_init(_c)?$"
        # Are given requests of a kind that twill never makes.
        other = "^MPI_(Pready|Parrived|Grequest_complete)"
        # Communicators that are not adopted (twill-mpi(7), "Communicators").
        foreign = "^MPI_(Comm_(accept|connect|join|spawn|get_parent|create_from_group|idup)|Intercomm_create_from_groups)"
    }
    {
        name = $1
        arguments = substr($0, length(name) + 2)
        if (!(name in is_shown)) {
            left++
            if (arguments ~ /MPI_Request/ && name !~ makes && name !~ other)
                print name " is given requests, and left to the MPI"
            else if (arguments ~ /MPI_Comm *\*/ && name !~ foreign && name !~ makes)
                print name " makes a communicator, and is left to the MPI"
            else if (arguments ~ /MPI_Comm *\*/)
                communicators = communicators " " name
        } else if (tolower(name) ~ tolower(collective))
            taken++
        else
            watched++
    }
    END {
        if (NR == 0)
            print "no function is declared"
        printf "ok: %d functions: %d taken, %d watched, %d left to the MPI; communicators left:%s\n", NR, taken, watched, left, communicators
    }' "$work/declared"

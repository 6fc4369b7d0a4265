# SPDX-License-Identifier: Apache-2.0
# Show the lines "[12/345] ..." of a build as one line that is rewritten, with the time that is left. Other lines stay
# as they are. Standard error must be a terminal.
function now()
{
    srand()
    return srand() # srand() returns the seed of the call before, which is the time in seconds since 1970
}
BEGIN {
    begun = now()
    bar = "##############################"
}
/^\[[0-9]+\/[0-9]+\] / {
    split(substr($1, 2), of, "[]/]")
    share = of[1] / of[2]
    took = now() - begun
    left = took >= 5 && share > 0 ? took * (1 - share) / share : -1
    text = left < 0 ? "" : left < 100 ? sprintf(", %d s left", left) : sprintf(", %d min left", left / 60)
    printf "\r\033[K[%-30s] %3d%%  building, %d s%s", substr(bar, 1, 30 * share), 100 * share, took, text >"/dev/stderr"
    fflush("/dev/stderr")
    shown = 1
    next
}
{
    if (shown) printf "\r\033[K" >"/dev/stderr"
    print
    shown = 0
    fflush()
}
END {
    if (shown) printf "\r\033[K" >"/dev/stderr"
}

# SPDX-License-Identifier: Apache-2.0
# Write OUTPUT, which defines TWILL_MPI_NAMES(X) with each name that any of LIBRARIES exports. Run by cmake -P, with NM, the
# path of nm.
set(names "")
foreach(library ${LIBRARIES})
    execute_process(COMMAND ${NM} -D --defined-only ${library} OUTPUT_VARIABLE shown COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "[A-Za-z_0-9]+\n" shown "${shown}")
    foreach(line ${shown})
        string(STRIP "${line}" name)
        list(APPEND names ${name})
    endforeach()
endforeach()
list(REMOVE_DUPLICATES names)
list(SORT names)
list(TRANSFORM names REPLACE "^(.+)$" "X(\\1)")
list(JOIN names " " text)
file(WRITE ${OUTPUT} "#define TWILL_MPI_NAMES(X) ${text}\n")

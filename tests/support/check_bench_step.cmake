# SPDX-License-Identifier: Apache-2.0
# cmake -DFILE=... -DKEYS=... -DBYTES=... -P: is this the JSON twill-bench should have written for a
# gradient list of so many tensors and bytes?
math(EXPR last "${KEYS} - 1")
file(READ "${FILE}" text)
string(JSON keys LENGTH "${text}" results 0 keys)
string(JSON first GET "${text}" results 0 keys 0 key)
string(JSON size GET "${text}" results 0 size)
string(JSON median TYPE "${text}" results 0 in_place i_median)
string(JSON wrong GET "${text}" results 0 keys ${last} in_place nwrong)
string(JSON configured GET "${text}" config keys)
set(got "${keys} ${first} ${size} ${median} ${wrong} ${configured}")
if(NOT got STREQUAL "${KEYS} ${last} ${BYTES} NUMBER 0 ${KEYS}")
    message(FATAL_ERROR "keys, the first, size, median, wrong, configured: ${got}")
endif()

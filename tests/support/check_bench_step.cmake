# SPDX-License-Identifier: Apache-2.0
# cmake -DFILE=... -DKEYS=... -DBYTES=... -P: check the JSON that twill-bench writes for a gradient
# list of KEYS tensors and BYTES bytes.
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

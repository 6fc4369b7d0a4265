# SPDX-License-Identifier: Apache-2.0
# The libraries that twill needs, and those that it can do without. Included by the top CMakeLists.txt.
find_package(PkgConfig QUIET)
if(NOT PKG_CONFIG_FOUND)
    message(FATAL_ERROR "twill needs pkg-config, which finds libraries (packages: pkg-config or pkgconf-pkg-config)")
endif()
find_package(Threads REQUIRED)

# Look for a library that is needed. PACKAGES: those that have it, in words. INSTEAD: how to do without, in words.
macro(twill_need name module packages instead)
    pkg_check_modules(${name} QUIET IMPORTED_TARGET ${module})
    if(NOT ${name}_FOUND)
        message(FATAL_ERROR "twill needs ${module}, which pkg-config does not find (packages: ${packages})${instead}")
    endif()
endmacro()

# Say that a library is not there: an error if it was asked for, else a line of the summary and TWILL_WITH_name=OFF.
set(twill_absent "")
macro(twill_miss name module packages purpose)
    if(NOT TWILL_WITH_${name} STREQUAL AUTO)
        message(FATAL_ERROR "TWILL_WITH_${name}=${TWILL_WITH_${name}}: ${module} is not found (packages: ${packages}); "
                            "-DTWILL_WITH_${name}=OFF builds without it: ${purpose}")
    endif()
    list(APPEND twill_absent "  ${module}: ${purpose} (packages: ${packages})")
    set(TWILL_WITH_${name} OFF)
endmacro()

# Look for a library that can be done without, unless TWILL_WITH_name is OFF.
macro(twill_use name variable module packages purpose)
    if(TWILL_WITH_${name})
        pkg_check_modules(${variable} QUIET IMPORTED_TARGET ${module})
        if(NOT ${variable}_FOUND)
            twill_miss(${name} "${module}" "${packages}" "${purpose}")
        endif()
    endif()
endmacro()

twill_need(HWLOC hwloc>=2.0 "libhwloc-dev or hwloc-devel" "")
twill_need(SODIUM libsodium>=1.0.18 "libsodium-dev or libsodium-devel" "")
twill_use(LIBFABRIC LIBFABRIC libfabric>=1.17 "libfabric-dev or libfabric-devel" "no networks other than twill's own TCP")
twill_use(MEMKIND MEMKIND memkind>=1.14 "libmemkind-dev or memkind-devel" "memory is placed in MCDRAM and HBM by mbind")
twill_use(PMIX PMIX pmix>=3.0 "libpmix-dev or pmix-devel" "no ranks under launchers that speak PMIx only")
if(TWILL_WITH_OPENMP)
    find_package(OpenMP QUIET COMPONENTS C)
    if(NOT OpenMP_C_FOUND)
        twill_miss(OPENMP OpenMP "libgomp1, or libomp-dev for clang" "a rank reduces with one thread")
    endif()
endif()
include(CheckIncludeFile)
check_include_file(sys/sdt.h TWILL_HAVE_SDT)

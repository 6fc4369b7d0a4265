# SPDX-License-Identifier: Apache-2.0
# Cross-build for aarch64 with Debian's compiler and the libraries in TWILL_SYSROOT
# (.ci/sysroot.sh); programs run in qemu's user-mode emulation. The libraries' own dependencies are
# not in the sysroot.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TWILL_SYSROOT)

set(folder ${TWILL_SYSROOT}/usr/lib/aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} ${folder}/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TWILL_SYSROOT})
set(CMAKE_FIND_ROOT_PATH ${TWILL_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_C_FLAGS_INIT "-isystem ${TWILL_SYSROOT}/usr/include/aarch64-linux-gnu")
foreach(kind EXE SHARED MODULE)
    set(CMAKE_${kind}_LINKER_FLAGS_INIT "-Wl,-rpath-link,${folder} -Wl,--allow-shlib-undefined")
endforeach()
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${folder})

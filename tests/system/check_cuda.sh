# SPDX-License-Identifier: Apache-2.0
# Device pointers (TWILL_WITH_CUDA) with a double of the CUDA driver, and with the real one where there is a GPU: device
# memory is recognised, copied through bounce memory and never touched.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

for target in bin/twillrun bin/twill-info; do
    [ -x "$build/$target" ] || skip "this build has no $target"
done
cuda=$scratch/tree/build
program=$scratch/program
usual=$scratch/program-usual # without the option
run=$build/bin/twillrun
double=$scratch/libdouble.so
launcher=$(command -v ccache) || launcher=
cc=$(cached CMAKE_C_COMPILER)
flags="-std=gnu11 -O1 -g -Wall -Wextra -Werror -Wno-unused-parameter -D_GNU_SOURCE -I$source -I$source/lib"
TWILL_TIMEOUT=300
export TWILL_TIMEOUT

copy_tree "$scratch/tree" # most objects are those of the build without the option
must_end 0 "configure with TWILL_WITH_CUDA" cmake -S "$scratch/tree" -B "$cuda" \
    -G "$(cached CMAKE_GENERATOR)" -DCMAKE_BUILD_TYPE="$(cached CMAKE_BUILD_TYPE)" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_COMPILER_LAUNCHER="$launcher" \
    -DTWILL_WERROR="$(cached TWILL_WERROR)" -DTWILL_WITH_OPENMP="$(cached TWILL_WITH_OPENMP)" \
    -DTWILL_WITH_MEMKIND="$(cached TWILL_WITH_MEMKIND)" -DTWILL_WITH_LIBFABRIC="$(cached TWILL_WITH_LIBFABRIC)" \
    -DTWILL_WITH_PMIX="$(cached TWILL_WITH_PMIX)" \
    -DTWILL_BUILD_TESTS=OFF -DTWILL_BUILD_EXAMPLES=OFF -DTWILL_WITH_CUDA=ON || finish
must_end 0 "build it" cmake --build "$cuda" -j 2 --target twill twill_static twill_heap twill-info || finish

# The rules hold in this build too.
for rule in 'layering.sh archives' symbols.sh; do
    # shellcheck disable=SC2086 # words
    must_end 0 "check_$rule with TWILL_WITH_CUDA" env TEST_SOURCE="$source" TEST_BUILD="$cuda" sh "$here/lint"/check_$rule
done
readelf -d "$cuda/lib/libtwill.so" | grep NEEDED | grep -i cuda && fault "libtwill.so needs CUDA"

# shellcheck disable=SC2086
{
    must_end 0 "the double compiles (no GPU)" "$cc" $flags -shared -fPIC -o "$double" \
        "$source/tests/doubles/cuda/cuda_double.c" || finish
    must_end 0 "the program compiles" "$cc" $flags -o "$program" "$source/tests/system/cuda/program.c" \
        "$source/tests/system/cuda/gpu.c" -L"$cuda/lib" -ltwill -ldl -Wl,-rpath,"$cuda/lib" || finish
    must_end 0 "the program compiles" "$cc" $flags -o "$usual" "$source/tests/system/cuda/program.c" \
        "$source/tests/system/cuda/gpu.c" -L"$build/lib" -ltwill -ldl -Wl,-rpath,"$build/lib" || finish
    if [ -f /usr/local/cuda/include/cuda.h ]; then
        must_end 0 "the driver's ABI is that of cuda.h" "$cc" $flags \
            -I/usr/local/cuda/include -fsyntax-only "$source/tests/system/cuda/abi.c"
    else
        echo "no cuda.h here: the driver's ABI is not compared"
    fi
}

said() # text [times]
{
    [ "$(grep -c -e "$1" "$scratch/output")" -ge "${2:-1}" ] ||
        fault "'$1' was not said: $(tail -n 20 "$scratch/output")"
}

# All that a driver must do, the double or the real one: values of all kinds of memory, and their order.
with_driver() # title
{
    must_end 139 "$1: device memory cannot be touched" "$program" touch && said '^reading'
    must_end 0 "$1, 1 rank" "$program" && said 'combinations right'
    must_end 0 "$1, messages of 1 rank" "$program" messages && said 'messages right'
    while read -r ranks nodes; do
        must_end 0 "$1, TWILL_LAYOUT=nodes=$nodes" env TWILL_LAYOUT=nodes="$nodes" "$run" -n "$ranks" \
            "$program" && said 'combinations right' "$ranks"
        must_end 0 "$1, messages, TWILL_LAYOUT=nodes=$nodes" env TWILL_LAYOUT=nodes="$nodes" "$run" -n "$ranks" \
            "$program" messages && said 'messages right; twill_register: ' "$ranks"
    done <<-'LIST'
		2 1x2
		2 2x1
		3 1x3
		3 2+1
	LIST
    must_end 0 "$1, calls of a group" "$run" -n 2 "$program" group && said 'groups right' 2
    must_end 0 "$1, order with the device's work" "$run" -n 2 "$program" streams && said 'order of streams right' 2
    must_end 0 "$1, overlapping arguments" "$run" -n 2 "$program" overlap &&
        said 'src and dst overlap by 28 bytes' 2
    must_end 0 "$1, memory that has been freed" "$run" -n 2 "$program" freed &&
        said 'status -1: .*memory of a device that has been freed' 2
    must_end 0 "$1, a rank that hangs" env TWILL_TIMEOUT=2 "$run" -n 3 "$program" hang &&
        said '2 ranks right after a hang' 2
    must_end 0 "$1, CUDA not initialised by the program" "$run" -n 2 "$program" host &&
        said 'combinations right' 2
}

# --- with a GPU -----------------------------------------------------------------------------------

if nvidia-smi -L >"$scratch/gpus" 2>/dev/null; then
    sed 's/^/with /' "$scratch/gpus"
    must_end 0 "twill-info, driver" "$cuda/bin/twill-info"
    said 'device memory.*staged through the host: libcuda.so.1, CUDA '
    with_driver "driver"
else
    echo "no GPU takes part: nvidia-smi finds none"
fi

# --- with the double ------------------------------------------------------------------------------

TWILL_TUNE=cuda_library=$double
TEST_CUDA_LIBRARY=$double
export TWILL_TUNE TEST_CUDA_LIBRARY
must_end 0 "twill-info, double" "$cuda/bin/twill-info"
said 'device memory.*staged through the host: .*libdouble.so, CUDA 99.1'
with_driver "double"
must_end 0 "double, memory that cannot be pinned" env CUDA_DOUBLE_FAIL="cuMemHostRegister_v2:1" \
    "$run" -n 2 "$program" messages && said 'messages right' 2

for function in cuMemcpyDtoH_v2 cuMemcpyHtoD_v2 cuMemcpy2D_v2 cuStreamSynchronize cuCtxPushCurrent_v2 \
    cuPointerGetAttributes; do
    must_end 0 "double, $function fails on rank 1" env CUDA_DOUBLE_FAIL="$function:1" \
        "$run" -n 2 "$program" fail || continue
    said "rank 1: status -4: rank 1: allreduce #[12] .*${function%_v2}: CUDA error 700: the double was told"
    said "rank 0: status -[0-9]*: .*reported by rank 1.*CUDA error 700"
done
must_end 0 "double, a driver that does not work: host memory" \
    env CUDA_DOUBLE_FAIL="cuDriverGetVersion:1" "$run" -n 2 "$program" host &&
    said 'twill\[1\].*device memory: unavailable: .*cuDriverGetVersion: CUDA error 700'

# --- without a driver -----------------------------------------------------------------------------

no_driver() # title why
{
    must_end 0 "$1: host memory" "$run" -n 2 "$program" host && said 'combinations right' 2
    must_end 0 "$1: twill-info" "$cuda/bin/twill-info" && said "device memory.*unavailable: .*$2"
}

stub=/usr/local/cuda/lib64/stubs/libcuda.so
if [ -f "$stub" ]; then
    TWILL_TUNE=cuda_library=$stub no_driver "NVIDIA's stub library" \
        'cuDriverGetVersion: CUDA error 34: no description'
else
    echo "no stub library of NVIDIA's here"
fi
TWILL_TUNE=cuda_library=$build/lib/libtwill.so no_driver "some other library" 'has no cuDriverGetVersion'
TWILL_TUNE=cuda_library=/nonexistent.so no_driver "no such library" 'nonexistent.so: cannot open'
mkdir "$scratch/none"
echo >"$scratch/none/libcuda.so.1"
unset TWILL_TUNE
LD_LIBRARY_PATH=$scratch/none${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} no_driver "libcuda.so.1 is none" 'libcuda.so.1: file too short'

# --- without the option ---------------------------------------------------------------------------

must_end 0 "a build without the option: host memory" "$run" -n 2 "$usual" host &&
    said 'combinations right' 2
must_end 1 "a build without the option: TWILL_TUNE=cuda_library" \
    env TWILL_TUNE=cuda_library="$double" "$usual" host
said 'built without TWILL_WITH_CUDA'
must_end 139 "a build without the option: device memory kills" "$usual"
finish

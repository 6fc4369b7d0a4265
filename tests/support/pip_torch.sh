# SPDX-License-Identifier: Apache-2.0
# PyTorch 2.13 for check_*.sh, where pip has a wheel of it on this machine: it is not fetched from an index, where it may be a build for CUDA of
# gigabytes.
# shellcheck disable=SC2154 # of rules.sh
pip_torch_version=2.13.0

# pip_torch: set $python to python3 and have it import PyTorch and what that needs from $build/torch/VERSION. Returns 1
# if pip cannot do that here. What PyTorch needs and this machine lacks comes from the index. Nothing is left outside $build.
pip_torch()
{
    pip_torch_to=$build/torch/$pip_torch_version
    python=python3
    if [ ! -e "$pip_torch_to" ]; then
        rm -rf "$pip_torch_to.part"
        pip_torch_install="timeout 300 $python -m pip install -q --no-cache-dir --disable-pip-version-check --retries 1 --timeout 30 --no-compile --target"
        # shellcheck disable=SC2086 # words
        $pip_torch_install "$pip_torch_to.part" --no-index --no-deps "torch==$pip_torch_version" || return 1
        pip_torch_lacks=
        for pip_torch_module in numpy sympy networkx typing_extensions filelock; do
            $python -c "import $pip_torch_module" 2>/dev/null || pip_torch_lacks="$pip_torch_lacks $pip_torch_module"
        done
        # shellcheck disable=SC2086 # words
        [ -z "$pip_torch_lacks" ] || $pip_torch_install "$pip_torch_to.part" $pip_torch_lacks || { rm -rf "$pip_torch_to.part"; return 1; }
        mv "$pip_torch_to.part" "$pip_torch_to"
    fi
    # Modules are compiled as they are imported, once for all processes.
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX="$build/torch/compiled" PYTHONPATH="$build/python:$pip_torch_to"
    imports_torch "$python"
}

# imports_torch PYTHON
imports_torch()
{
    "$1" -c 'import torch.distributed, numpy' 2>/dev/null
}

# SPDX-License-Identifier: Apache-2.0
"""twill as a backend of torch.comms, which PyTorch's main branch has: torch.comms.new_comm("twill", torch.device("cpu"), "main").

PyTorch imports this by the entry point of the group `torch.comms.backends`. It names the library to PyTorch, which refuses one that
was compiled for another version of the interface. See docs/guides/pytorch.md."""
import os

import torch

from . import build

_library = build.load()
if not _library.comms:
    raise ImportError(f"twill.torch: its C++ part was built without torch.comms for PyTorch {torch.__version__}, whose headers have none, or "
                      "another one than twill knows (docs/guides/pytorch.md)")
os.environ["TORCHCOMMS_BACKEND_LIB_PATH_TWILL"] = str(_library.__file__)

# SPDX-License-Identifier: Apache-2.0
"""twill: topology-aware collectives for training codes on CPUs. See docs/python.md."""
from __future__ import annotations

from . import errors
from ._declarations import Level, Op, Status, Type
from ._library import lib, text
from .errors import (ArgumentError, BootstrapError, BrokenError, ConfigError, ExcludedError, FabricError, ForkedError,
                     InternalError, MismatchError, OutOfMemoryError, PeerError, RevokedError, SystemCallError,
                     TimeoutError, TwillError, UnsupportedError)

#: version of the library
__version__ = text(lib.twill_version())

# SPDX-License-Identifier: Apache-2.0
"""The C interface. Written by lib/python/declare.py: do not edit."""
from __future__ import annotations

from ctypes import (CFUNCTYPE, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint64,
                    c_void_p)
from enum import IntEnum
from typing import Any


class Status(IntEnum):
    """twill_status of the C interface."""

    OK = 0
    ERR_ARGUMENT = -1
    ERR_CONFIG = -2
    ERR_MEMORY = -3
    ERR_SYSTEM = -4
    ERR_BOOTSTRAP = -5
    ERR_FABRIC = -6
    ERR_TIMEOUT = -7
    ERR_PEER = -8
    ERR_MISMATCH = -9
    ERR_BROKEN = -10
    ERR_FORKED = -11
    ERR_UNSUPPORTED = -12
    ERR_INTERNAL = -13
    ERR_REVOKED = -14
    ERR_EXCLUDED = -15


class Type(IntEnum):
    """twill_type of the C interface."""

    F32 = 0
    F64 = 1
    I32 = 2
    I64 = 3
    F16 = 4
    BF16 = 5
    I8 = 6
    U8 = 7
    I16 = 8
    U16 = 9
    U32 = 10
    U64 = 11
    F8E4M3 = 12
    F8E5M2 = 13


class Op(IntEnum):
    """twill_op of the C interface."""

    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3
    AVG = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    LAND = 8
    LOR = 9
    LXOR = 10
    MINLOC = 11
    MAXLOC = 12
    OP_CREATED = 256


class Level(IntEnum):
    """twill_level of the C interface."""

    TILE = 0
    L3 = 1
    NUMA = 2
    PACKAGE = 3
    NODE = 4
    GROUP = 5


class ServerLayout(IntEnum):
    """twill_server_layout of the C interface."""

    CS = 0
    CC = 1
    NC = 2
    NCS = 3


class ServerMode(IntEnum):
    """twill_server_mode of the C interface."""

    SYNC = 0
    K_SYNC = 1
    K_BATCH_SYNC = 2
    K_ASYNC = 3
    K_BATCH_ASYNC = 4
    ASYNC = 5
    SOFTSYNC = 6
    BOUNDED = 7


class ServerRate(IntEnum):
    """twill_server_rate of the C interface."""

    FIXED = 0
    STALENESS = 1
    DISTANCE = 2


class ServerPart(IntEnum):
    """twill_server_part of the C interface."""

    WORKS = 1
    SERVES = 2
    BOTH = 3


class BucketOrder(IntEnum):
    """twill_bucket_order of the C interface."""

    BACKWARD = 0
    BY_PRIORITY = 1


class Compression(IntEnum):
    """twill_compression of the C interface."""

    NONE = 0
    F16 = 1
    BF16 = 2
    F8E4M3 = 3
    F8E5M2 = 4
    INT8 = 5
    TOP_K = 6
    THRESHOLD = 7


class FactorsChoice(IntEnum):
    """twill_factors_choice of the C interface."""

    BY_PRICE = 0
    GATHERED = 1
    REDUCED = 2


class OptimizerRule(IntEnum):
    """twill_optimizer_rule of the C interface."""

    SGD = 0
    ADAGRAD = 1
    ADAM = 2
    ADAMW = 3
    LARS = 4
    LAMB = 5


TWILL_VERSION_MAJOR = 0
TWILL_VERSION_MINOR = 1
TWILL_VERSION_PATCH = 0
TWILL_COLOUR_NONE = -1
TWILL_HANDLE_BYTES = 256
TWILL_SERVER_WHOLE_TENSORS = -1
twill_exchange_fn = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)
twill_op_fn = CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p)
twill_idle_fn = CFUNCTYPE(None, c_void_p)
twill_lightgbm_reducer = CFUNCTYPE(None, c_char_p, c_char_p, c_int, c_int32)


class twill_bootstrap(Structure):
    """struct twill_bootstrap."""

    _fields_ = [
        ("rank", c_int),
        ("size", c_int),
        ("exchange", twill_exchange_fn),
        ("user", c_void_p),
    ]


class twill_counters(Structure):
    """struct twill_counters."""

    _fields_ = [
        ("calls", c_uint64),
        ("bytes_sent", c_uint64),
        ("bytes_wire", c_uint64),
        ("bytes_copied", c_uint64),
        ("memory_fallbacks", c_uint64),
        ("seconds", c_double),
        ("registrations", c_uint64),
        ("deregistrations", c_uint64),
        ("registration_hits", c_uint64),
        ("seconds_waiting", c_double),
        ("seconds_blocked", c_double),
    ]


class twill_reconfiguration(Structure):
    """struct twill_reconfiguration."""

    _fields_ = [
        ("handles", c_void_p),
        ("count", c_int),
        ("ordered", c_int),
        ("seconds", c_double),
        ("settings", c_void_p),
    ]


class twill_outcome(Structure):
    """struct twill_outcome."""

    _fields_ = [
        ("failed", c_int),
        ("survivors", c_int),
        ("complete", c_uint64),
        ("complete_some", c_uint64),
    ]


class twill_bounds(Structure):
    """struct twill_bounds."""

    _fields_ = [
        ("silent", c_double),
        ("death", c_double),
        ("host", c_double),
        ("agree", c_double),
        ("meet", c_double),
        ("grow", c_double),
    ]


class twill_server_options(Structure):
    """struct twill_server_options."""

    _fields_ = [
        ("bytes", c_size_t),
        ("layout", c_int),
        ("servers", c_int),
        ("ranks", c_void_p),
        ("mode", c_int),
        ("k", c_int),
        ("op", c_int),
        ("optimizer", c_void_p),
        ("rate", c_int),
        ("distance_c", c_double),
        ("distance_most", c_double),
        ("chunk_bytes", c_size_t),
        ("threads", c_int),
        ("replicas", c_int),
        ("credits", c_int),
        ("compression", c_int),
        ("error_feedback", c_int),
        ("compression_ratio", c_double),
        ("compression_threshold", c_double),
    ]


class twill_server_counters(Structure):
    """struct twill_server_counters."""

    _fields_ = [
        ("keys", c_uint64),
        ("chunks", c_uint64),
        ("chunk_bytes", c_uint64),
        ("chunks_here", c_uint64),
        ("most_bytes", c_uint64),
        ("least_bytes", c_uint64),
        ("versions", c_uint64),
        ("updates", c_uint64),
        ("gradients", c_uint64),
        ("dropped", c_uint64),
        ("duplicates", c_uint64),
        ("bytes_sent", c_uint64),
        ("bytes_received", c_uint64),
        ("bytes_messages", c_uint64),
        ("bytes_metadata", c_uint64),
        ("bytes_copied", c_uint64),
        ("registrations", c_uint64),
        ("credit_waits", c_uint64),
        ("workers", c_uint64),
        ("deaths", c_uint64),
    ]


class twill_gradients_options(Structure):
    """struct twill_gradients_options."""

    _fields_ = [
        ("bytes", c_size_t),
        ("op", c_int),
        ("scale", c_double),
        ("bucket_bytes", c_size_t),
        ("first_bucket_bytes", c_size_t),
        ("segment_bytes", c_size_t),
        ("order", c_int),
        ("autotune", c_int),
        ("check_every", c_int),
        ("report_every", c_int),
        ("factors", c_int),
        ("late", c_int),
        ("compression", c_int),
        ("compression_automatic", c_int),
        ("error_feedback", c_int),
        ("compression_ratio", c_double),
        ("compression_threshold", c_double),
        ("threads", c_int),
    ]


class twill_tensor(Structure):
    """struct twill_tensor."""

    _fields_ = [
        ("name", c_char_p),
        ("count", c_size_t),
        ("type", c_int),
        ("gradient", c_void_p),
        ("parameters", c_void_p),
        ("priority", c_int),
        ("uncompressed", c_int),
    ]


class twill_gradients_counters(Structure):
    """struct twill_gradients_counters."""

    _fields_ = [
        ("steps", c_uint64),
        ("operations", c_uint64),
        ("bytes", c_uint64),
        ("bytes_copied", c_uint64),
        ("bytes_exchanged", c_uint64),
        ("bytes_converted", c_uint64),
        ("buckets", c_uint64),
        ("agreements", c_uint64),
        ("state_bytes", c_uint64),
        ("gradient_norm", c_double),
        ("seconds_exposed", c_double),
    ]


class twill_optimizer(Structure):
    """struct twill_optimizer."""

    _fields_ = [
        ("bytes", c_size_t),
        ("rule", c_int),
        ("rate", c_double),
        ("weight_decay", c_double),
        ("momentum", c_double),
        ("dampening", c_double),
        ("nesterov", c_int),
        ("rate_decay", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("epsilon", c_double),
        ("trust_coefficient", c_double),
        ("clip_norm", c_double),
    ]


# Functions: result, then arguments.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "twill_allreduce_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_allreduce_init": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_reduce_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p),
    "twill_reduce_init": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int, c_void_p),
    "twill_broadcast_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_broadcast_init": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_barrier_start": (c_int, c_void_p, c_void_p),
    "twill_barrier_init": (c_int, c_void_p, c_void_p),
    "twill_allgather_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "twill_allgather_init": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "twill_allgatherv_start": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p),
    "twill_allgatherv_init": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p),
    "twill_reduce_scatter_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_reduce_scatter_init": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_reduce_scatterv_start": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p),
    "twill_reduce_scatterv_init": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p),
    "twill_gather_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_gather_init": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_gatherv_start": (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p),
    "twill_gatherv_init": (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_int, c_int, c_void_p),
    "twill_scatter_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_scatter_init": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_scatterv_start": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_scatterv_init": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_alltoall_start": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "twill_alltoall_init": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "twill_alltoallv_start": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p),
    "twill_alltoallv_init": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_void_p),
    "twill_send_start": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_send_init": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_recv_start": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_recv_init": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_sendrecv_start": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_sendrecv_init": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_size_t, c_int, c_int, c_void_p),
    "twill_context_create": (c_int, c_void_p, c_void_p, c_void_p),
    "twill_context_destroy": (None, c_void_p),
    "twill_comm_create": (c_int, c_void_p, c_void_p),
    "twill_comm_destroy": (None, c_void_p),
    "twill_comm_leave": (None, c_void_p),
    "twill_init": (c_int, c_void_p),
    "twill_init_with": (c_int, c_void_p, c_void_p, c_void_p, c_char_p, c_size_t),
    "twill_finalize": (None, c_void_p),
    "twill_comm_rank": (c_int, c_void_p),
    "twill_comm_size": (c_int, c_void_p),
    "twill_comm_node": (c_int, c_void_p),
    "twill_comm_nodes": (c_int, c_void_p),
    "twill_comm_local_rank": (c_int, c_void_p),
    "twill_comm_local_size": (c_int, c_void_p),
    "twill_comm_context": (c_void_p, c_void_p),
    "twill_comm_dup": (c_int, c_void_p, c_void_p),
    "twill_comm_split": (c_int, c_void_p, c_void_p, c_int, c_int),
    "twill_comm_split_level": (c_int, c_void_p, c_void_p, c_int, c_int),
    "twill_comm_create_group": (c_int, c_void_p, c_void_p, c_int, c_void_p),
    "twill_comm_create_over": (c_int, c_void_p, c_void_p, c_int, c_void_p, twill_exchange_fn, c_void_p),
    "twill_op_create": (c_int, c_void_p, c_void_p, twill_op_fn, c_void_p, c_size_t, c_int),
    "twill_op_create_scaled": (c_int, c_void_p, c_void_p, c_int, c_void_p),
    "twill_op_create_narrow": (c_int, c_void_p, c_void_p, c_int, c_void_p, c_void_p),
    "twill_op_destroy": (c_int, c_void_p, c_int),
    "twill_allreduce": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "twill_reduce": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int, c_int),
    "twill_broadcast": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "twill_barrier": (c_int, c_void_p),
    "twill_allgather": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int),
    "twill_allgatherv": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int),
    "twill_reduce_scatter": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "twill_reduce_scatterv": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_int, c_int),
    "twill_gather": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "twill_gatherv": (c_int, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_int, c_int),
    "twill_scatter": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "twill_scatterv": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "twill_alltoall": (c_int, c_void_p, c_void_p, c_void_p, c_size_t, c_int),
    "twill_alltoallv": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_int),
    "twill_send": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "twill_recv": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_int),
    "twill_sendrecv": (c_int, c_void_p, c_void_p, c_size_t, c_int, c_void_p, c_size_t, c_int, c_int),
    "twill_group_start": (c_int, c_void_p),
    "twill_group_end": (c_int, c_void_p),
    "twill_context_idle": (c_int, c_void_p, twill_idle_fn, c_void_p),
    "twill_request_start": (c_int, c_void_p),
    "twill_test": (c_int, c_void_p, c_void_p),
    "twill_wait": (c_int, c_void_p),
    "twill_wait_any": (c_int, c_size_t, c_void_p, c_void_p),
    "twill_wait_all": (c_int, c_size_t, c_void_p),
    "twill_request_free": (c_int, c_void_p),
    "twill_alloc": (c_int, c_void_p, c_void_p, c_size_t),
    "twill_free": (c_int, c_void_p, c_void_p),
    "twill_register": (c_int, c_void_p, c_void_p, c_size_t),
    "twill_deregister": (c_int, c_void_p, c_void_p),
    "twill_strerror": (c_char_p, c_int),
    "twill_comm_message": (c_char_p, c_void_p),
    "twill_context_message": (c_char_p, c_void_p),
    "twill_version": (c_char_p,),
    "twill_type_size": (c_size_t, c_int),
    "twill_type_name": (c_char_p, c_int),
    "twill_op_name": (c_char_p, c_int),
    "twill_comm_counters": (c_int, c_void_p, c_void_p),
    "twill_context_describe": (c_char_p, c_void_p, c_size_t),
    "twill_comm_times": (c_char_p, c_void_p, c_size_t),
    "twill_comm_times_reset": (c_int, c_void_p),
    "twill_comm_rail": (c_char_p, c_void_p, c_size_t),
    "twill_context_variable": (c_char_p, c_void_p, c_size_t),
    "twill_context_why": (c_char_p, c_void_p, c_char_p, c_size_t),
    "twill_job_view_open": (c_int, c_void_p, c_char_p, c_size_t, c_char_p, c_size_t),
    "twill_job_view_line": (c_char_p, c_void_p, c_size_t),
    "twill_job_view_close": (None, c_void_p),
    "twill_lightgbm_reduce_scatter": (c_int, c_void_p, c_void_p, c_int32, c_int, c_void_p, c_void_p, c_int, c_void_p, c_int32, c_void_p),
    "twill_lightgbm_allgather": (c_int, c_void_p, c_void_p, c_int32, c_void_p, c_void_p, c_int, c_void_p, c_int32),
    "twill_comm_revoke": (c_int, c_void_p),
    "twill_comm_agree": (c_int, c_void_p, c_void_p),
    "twill_comm_shrink": (c_int, c_void_p, c_void_p),
    "twill_comm_handle": (c_int, c_void_p, c_int, c_char_p),
    "twill_comm_grow": (c_int, c_void_p, c_void_p),
    "twill_comm_join": (c_int, c_void_p, c_char_p, c_void_p, c_char_p, c_size_t),
    "twill_comm_admit": (c_int, c_void_p, c_void_p),
    "twill_handle_create": (c_int, c_void_p, c_void_p, c_void_p, c_char_p),
    "twill_handle_destroy": (None, c_void_p),
    "twill_comm_reconfigure": (c_int, c_void_p, c_void_p, c_void_p, c_void_p, c_char_p, c_size_t),
    "twill_comm_epoch": (c_int, c_void_p),
    "twill_comm_outcome": (c_int, c_void_p, c_void_p),
    "twill_comm_failed_rank": (c_int, c_void_p, c_int),
    "twill_comm_set_timeout": (c_int, c_void_p, c_double),
    "twill_request_set_timeout": (c_int, c_void_p, c_double),
    "twill_comm_bounds": (c_int, c_void_p, c_void_p),
    "twill_server_defaults": (None, c_void_p),
    "twill_server_create": (c_int, c_void_p, c_void_p, c_void_p),
    "twill_server_add": (c_int, c_void_p, c_void_p, c_void_p),
    "twill_server_commit": (c_int, c_void_p),
    "twill_server_role": (c_int, c_void_p),
    "twill_server_gradient": (c_void_p, c_void_p, c_int),
    "twill_server_parameters": (c_void_p, c_void_p, c_int),
    "twill_server_push": (c_int, c_void_p, c_int),
    "twill_server_pull": (c_int, c_void_p, c_int),
    "twill_server_push_pull": (c_int, c_void_p, c_int),
    "twill_server_push_pull_all": (c_int, c_void_p, c_size_t, c_void_p),
    "twill_server_test": (c_int, c_void_p, c_int, c_void_p),
    "twill_server_wait": (c_int, c_void_p, c_int),
    "twill_server_wait_push": (c_int, c_void_p, c_int),
    "twill_server_wait_pull": (c_int, c_void_p, c_int),
    "twill_server_version": (c_uint64, c_void_p, c_int),
    "twill_server_serve": (c_int, c_void_p),
    "twill_server_leave": (c_int, c_void_p),
    "twill_server_set_optimizer": (c_int, c_void_p, c_void_p),
    "twill_server_rebuild": (c_int, c_void_p, c_void_p),
    "twill_server_save": (c_int, c_void_p, c_char_p),
    "twill_server_load": (c_int, c_void_p, c_char_p),
    "twill_server_count": (c_int, c_void_p, c_void_p),
    "twill_server_staleness": (c_int, c_void_p, c_void_p, c_size_t),
    "twill_server_describe": (c_char_p, c_void_p, c_size_t),
    "twill_server_message": (c_char_p, c_void_p),
    "twill_server_destroy": (None, c_void_p),
    "twill_gradients_defaults": (None, c_void_p),
    "twill_gradients_create": (c_int, c_void_p, c_void_p, c_void_p),
    "twill_gradients_add": (c_int, c_void_p, c_void_p, c_void_p),
    "twill_optimizer_defaults": (None, c_void_p, c_int),
    "twill_gradients_add_dense": (c_int, c_void_p, c_void_p, c_size_t, c_size_t, c_size_t, c_void_p),
    "twill_gradients_ready_factors": (c_int, c_void_p, c_int, c_void_p, c_void_p, c_size_t),
    "twill_gradients_set_optimizer": (c_int, c_void_p, c_void_p),
    "twill_gradients_parameters": (c_void_p, c_void_p, c_int),
    "twill_gradients_reload": (c_int, c_void_p),
    "twill_gradients_state_bytes": (c_int, c_void_p, c_void_p),
    "twill_gradients_state_export": (c_int, c_void_p, c_void_p, c_size_t),
    "twill_gradients_state_import": (c_int, c_void_p, c_void_p, c_void_p, c_size_t),
    "twill_gradients_commit": (c_int, c_void_p),
    "twill_gradients_memory": (c_void_p, c_void_p, c_int),
    "twill_gradients_result": (c_void_p, c_void_p, c_int),
    "twill_gradients_set_late": (c_int, c_void_p, c_int),
    "twill_gradients_drain": (c_int, c_void_p),
    "twill_gradients_ready": (c_int, c_void_p, c_int),
    "twill_gradients_test": (c_int, c_void_p, c_int, c_void_p),
    "twill_gradients_wait": (c_int, c_void_p, c_int),
    "twill_gradients_wait_all": (c_int, c_void_p),
    "twill_gradients_check": (c_int, c_void_p),
    "twill_gradients_count": (c_int, c_void_p, c_void_p),
    "twill_gradients_traffic": (c_int, c_void_p, c_void_p),
    "twill_gradients_times": (c_char_p, c_void_p, c_size_t),
    "twill_gradients_describe": (c_char_p, c_void_p, c_size_t),
    "twill_gradients_message": (c_char_p, c_void_p),
    "twill_gradients_destroy": (None, c_void_p),
}

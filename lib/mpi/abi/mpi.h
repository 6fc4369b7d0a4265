/* SPDX-License-Identifier: Apache-2.0 */
/* MPI's standard ABI (MPI 5.0, chapter 20). Contains the types, constants and functions that
 * lib/mpi uses, for libtwill-mpi-abi.so. A predefined handle is a small number in a pointer.
 * tests/system/mpi/compare_abi.sh compares all of this with an MPI's own header. */
#ifndef TWILL_MPI_ABI_H
#define TWILL_MPI_ABI_H

#include "lib/mpi/mpi_collectives.h"

#include <stdint.h>

#define MPI_VERSION     5
#define MPI_ABI_VERSION 1

/* --- types ------------------------------------------------------------------------------------ */

typedef intptr_t MPI_Aint;
typedef int64_t MPI_Offset, MPI_Count;
typedef int MPI_Fint;
typedef struct {
    int MPI_SOURCE, MPI_TAG, MPI_ERROR;
    int MPI_internal[5];
} MPI_Status;
typedef struct MPI_ABI_Op *MPI_Op;
typedef struct MPI_ABI_Comm *MPI_Comm;
typedef struct MPI_ABI_Group *MPI_Group;
typedef struct MPI_ABI_Win *MPI_Win;
typedef struct MPI_ABI_File *MPI_File;
typedef struct MPI_ABI_Info *MPI_Info;
typedef struct MPI_ABI_Errhandler *MPI_Errhandler;
typedef struct MPI_ABI_Request *MPI_Request;
typedef struct MPI_ABI_Datatype *MPI_Datatype;
typedef int(MPI_Comm_copy_attr_function)(MPI_Comm, int, void *, void *, void *, int *);
typedef int(MPI_Comm_delete_attr_function)(MPI_Comm, int, void *, void *);
typedef int(MPI_Type_copy_attr_function)(MPI_Datatype, int, void *, void *, void *, int *);
typedef int(MPI_Type_delete_attr_function)(MPI_Datatype, int, void *, void *);
typedef int(MPI_Win_copy_attr_function)(MPI_Win, int, void *, void *, void *, int *);
typedef int(MPI_Win_delete_attr_function)(MPI_Win, int, void *, void *);

/* --- constants -------------------------------------------------------------------------------- */

enum {
    MPI_SUCCESS = 0,
    MPI_ERR_COUNT = 2,
    MPI_ERR_REQUEST = 7,
    MPI_ERR_ARG = 13,
    MPI_ERR_TRUNCATE = 15,
    MPI_ERR_OTHER = 16,
    MPI_ERR_INTERN = 17,
    MPI_ERR_PENDING = 18,
    MPI_ERR_IN_STATUS = 19,
    MPI_ERR_NO_MEM = 39,
    MPI_ERR_UNSUPPORTED_OPERATION = 55,
    MPI_ANY_SOURCE = -1,
    MPI_ANY_TAG = -2,
    MPI_PROC_NULL = -3,
    MPI_ROOT = -4,
    MPI_UNDEFINED = -32766,
    MPI_THREAD_SINGLE = 0,
    MPI_THREAD_MULTIPLE = 4096,
    MPI_COMBINER_NAMED = 101,
    MPI_COMBINER_DUP = 102,
    MPI_COMBINER_CONTIGUOUS = 103,
    MPI_COMBINER_F90_REAL = 113,
    MPI_COMBINER_F90_COMPLEX = 114,
    MPI_COMBINER_F90_INTEGER = 115,
    MPI_KEYVAL_INVALID = 0
};
#define MPI_MAX_ERROR_STRING           512
#define MPI_MAX_LIBRARY_VERSION_STRING 8192

#define MPI_BOTTOM            ((void *)0)
#define MPI_IN_PLACE          ((void *)1)
#define MPI_STATUS_IGNORE     ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE   ((MPI_Status *)0)
#define MPI_COMM_NULL_COPY_FN ((MPI_Comm_copy_attr_function *)0)
#define MPI_TYPE_NULL_COPY_FN ((MPI_Type_copy_attr_function *)0)
#define MPI_WIN_NULL_COPY_FN  ((MPI_Win_copy_attr_function *)0)

#define MPI_OP_NULL                 ((MPI_Op)0x20)
#define MPI_SUM                     ((MPI_Op)0x21)
#define MPI_MIN                     ((MPI_Op)0x22)
#define MPI_MAX                     ((MPI_Op)0x23)
#define MPI_PROD                    ((MPI_Op)0x24)
#define MPI_BAND                    ((MPI_Op)0x28)
#define MPI_BOR                     ((MPI_Op)0x29)
#define MPI_BXOR                    ((MPI_Op)0x2a)
#define MPI_LAND                    ((MPI_Op)0x30)
#define MPI_LOR                     ((MPI_Op)0x31)
#define MPI_LXOR                    ((MPI_Op)0x32)
#define MPI_MINLOC                  ((MPI_Op)0x38)
#define MPI_MAXLOC                  ((MPI_Op)0x39)
#define MPI_REPLACE                 ((MPI_Op)0x3c)
#define MPI_NO_OP                   ((MPI_Op)0x3d)
#define MPI_COMM_NULL               ((MPI_Comm)0x100)
#define MPI_COMM_WORLD              ((MPI_Comm)0x101)
#define MPI_COMM_SELF               ((MPI_Comm)0x102)
#define MPI_INFO_NULL               ((MPI_Info)0x130)
#define MPI_ERRORS_RETURN           ((MPI_Errhandler)0x143)
#define MPI_REQUEST_NULL            ((MPI_Request)0x180)
#define MPI_DATATYPE_NULL           ((MPI_Datatype)0x200)
#define MPI_AINT                    ((MPI_Datatype)0x201)
#define MPI_COUNT                   ((MPI_Datatype)0x202)
#define MPI_OFFSET                  ((MPI_Datatype)0x203)
#define MPI_PACKED                  ((MPI_Datatype)0x207)
#define MPI_SHORT                   ((MPI_Datatype)0x208)
#define MPI_INT                     ((MPI_Datatype)0x209)
#define MPI_LONG                    ((MPI_Datatype)0x20a)
#define MPI_LONG_LONG               ((MPI_Datatype)0x20b)
#define MPI_UNSIGNED_SHORT          ((MPI_Datatype)0x20c)
#define MPI_UNSIGNED                ((MPI_Datatype)0x20d)
#define MPI_UNSIGNED_LONG           ((MPI_Datatype)0x20e)
#define MPI_UNSIGNED_LONG_LONG      ((MPI_Datatype)0x20f)
#define MPI_FLOAT                   ((MPI_Datatype)0x210)
#define MPI_C_FLOAT_COMPLEX         ((MPI_Datatype)0x212)
#define MPI_CXX_FLOAT_COMPLEX       ((MPI_Datatype)0x213)
#define MPI_DOUBLE                  ((MPI_Datatype)0x214)
#define MPI_C_DOUBLE_COMPLEX        ((MPI_Datatype)0x216)
#define MPI_CXX_DOUBLE_COMPLEX      ((MPI_Datatype)0x217)
#define MPI_LOGICAL                 ((MPI_Datatype)0x218)
#define MPI_INTEGER                 ((MPI_Datatype)0x219)
#define MPI_REAL                    ((MPI_Datatype)0x21a)
#define MPI_COMPLEX                 ((MPI_Datatype)0x21b)
#define MPI_DOUBLE_PRECISION        ((MPI_Datatype)0x21c)
#define MPI_DOUBLE_COMPLEX          ((MPI_Datatype)0x21d)
#define MPI_CHARACTER               ((MPI_Datatype)0x21e)
#define MPI_LONG_DOUBLE             ((MPI_Datatype)0x220)
#define MPI_C_LONG_DOUBLE_COMPLEX   ((MPI_Datatype)0x224)
#define MPI_CXX_LONG_DOUBLE_COMPLEX ((MPI_Datatype)0x225)
#define MPI_FLOAT_INT               ((MPI_Datatype)0x228)
#define MPI_DOUBLE_INT              ((MPI_Datatype)0x229)
#define MPI_LONG_INT                ((MPI_Datatype)0x22a)
#define MPI_2INT                    ((MPI_Datatype)0x22b)
#define MPI_SHORT_INT               ((MPI_Datatype)0x22c)
#define MPI_LONG_DOUBLE_INT         ((MPI_Datatype)0x22d)
#define MPI_2REAL                   ((MPI_Datatype)0x230)
#define MPI_2DOUBLE_PRECISION       ((MPI_Datatype)0x231)
#define MPI_2INTEGER                ((MPI_Datatype)0x232)
#define MPI_C_BOOL                  ((MPI_Datatype)0x238)
#define MPI_CXX_BOOL                ((MPI_Datatype)0x239)
#define MPI_WCHAR                   ((MPI_Datatype)0x23c)
#define MPI_INT8_T                  ((MPI_Datatype)0x240)
#define MPI_UINT8_T                 ((MPI_Datatype)0x241)
#define MPI_CHAR                    ((MPI_Datatype)0x243)
#define MPI_SIGNED_CHAR             ((MPI_Datatype)0x244)
#define MPI_UNSIGNED_CHAR           ((MPI_Datatype)0x245)
#define MPI_BYTE                    ((MPI_Datatype)0x247)
#define MPI_INT16_T                 ((MPI_Datatype)0x248)
#define MPI_UINT16_T                ((MPI_Datatype)0x249)
#define MPI_INT32_T                 ((MPI_Datatype)0x250)
#define MPI_UINT32_T                ((MPI_Datatype)0x251)
#define MPI_INT64_T                 ((MPI_Datatype)0x258)
#define MPI_UINT64_T                ((MPI_Datatype)0x259)
#define MPI_LOGICAL1                ((MPI_Datatype)0x2c0)
#define MPI_INTEGER1                ((MPI_Datatype)0x2c1)
#define MPI_LOGICAL2                ((MPI_Datatype)0x2c8)
#define MPI_INTEGER2                ((MPI_Datatype)0x2c9)
#define MPI_LOGICAL4                ((MPI_Datatype)0x2d0)
#define MPI_INTEGER4                ((MPI_Datatype)0x2d1)
#define MPI_REAL4                   ((MPI_Datatype)0x2d2)
#define MPI_LOGICAL8                ((MPI_Datatype)0x2d8)
#define MPI_INTEGER8                ((MPI_Datatype)0x2d9)
#define MPI_REAL8                   ((MPI_Datatype)0x2da)
#define MPI_COMPLEX8                ((MPI_Datatype)0x2db)
#define MPI_INTEGER16               ((MPI_Datatype)0x2e1)
#define MPI_REAL16                  ((MPI_Datatype)0x2e2)
#define MPI_COMPLEX16               ((MPI_Datatype)0x2e3)
#define MPI_COMPLEX32               ((MPI_Datatype)0x2eb)

/* --- functions -------------------------------------------------------------------------------- */
/* Each function has two names: MPI_X, which a library may replace, and PMPI_X. */
#define TWILL_ABI(result, name, ...) result MPI_##name(__VA_ARGS__), PMPI_##name(__VA_ARGS__);
TWILL_ABI(int, Abi_get_version, int *, int *)
TWILL_ABI(int, Add_error_class, int *)
TWILL_ABI(int, Add_error_code, int, int *)
TWILL_ABI(int, Add_error_string, int, const char *)
TWILL_ABI(int, Alloc_mem, MPI_Aint, MPI_Info, void *)
TWILL_ABI(int, Cancel, MPI_Request *)
TWILL_ABI(int, Cart_create, MPI_Comm, int, const int *, const int *, int, MPI_Comm *)
TWILL_ABI(int, Cart_sub, MPI_Comm, const int *, MPI_Comm *)
TWILL_ABI(int, Comm_call_errhandler, MPI_Comm, int)
TWILL_ABI(int, Comm_create, MPI_Comm, MPI_Group, MPI_Comm *)
TWILL_ABI(int, Comm_create_group, MPI_Comm, MPI_Group, int, MPI_Comm *)
TWILL_ABI(int, Comm_create_keyval, MPI_Comm_copy_attr_function *, MPI_Comm_delete_attr_function *,
          int *, void *)
TWILL_ABI(int, Comm_disconnect, MPI_Comm *)
TWILL_ABI(int, Comm_dup, MPI_Comm, MPI_Comm *)
TWILL_ABI(int, Comm_dup_with_info, MPI_Comm, MPI_Info, MPI_Comm *)
TWILL_ABI(int, Comm_free, MPI_Comm *)
TWILL_ABI(int, Comm_free_keyval, int *)
TWILL_ABI(int, Comm_group, MPI_Comm, MPI_Group *)
TWILL_ABI(int, Comm_rank, MPI_Comm, int *)
TWILL_ABI(int, Comm_remote_size, MPI_Comm, int *)
TWILL_ABI(int, Comm_set_attr, MPI_Comm, int, void *)
TWILL_ABI(int, Comm_set_errhandler, MPI_Comm, MPI_Errhandler)
TWILL_ABI(int, Comm_size, MPI_Comm, int *)
TWILL_ABI(int, Comm_split, MPI_Comm, int, int, MPI_Comm *)
TWILL_ABI(int, Comm_split_type, MPI_Comm, int, int, MPI_Info, MPI_Comm *)
TWILL_ABI(int, Comm_test_inter, MPI_Comm, int *)
TWILL_ABI(int, Dist_graph_create, MPI_Comm, int, const int *, const int *, const int *, const int *,
          MPI_Info, int, MPI_Comm *)
TWILL_ABI(int, Dist_graph_create_adjacent, MPI_Comm, int, const int *, const int *, int,
          const int *, const int *, MPI_Info, int, MPI_Comm *)
TWILL_ABI(int, File_close, MPI_File *)
TWILL_ABI(int, File_open, MPI_Comm, const char *, int, MPI_Info, MPI_File *)
TWILL_ABI(int, Free_mem, void *)
TWILL_ABI(int, Get_library_version, char *, int *)
TWILL_ABI(int, Graph_create, MPI_Comm, int, const int *, const int *, int, MPI_Comm *)
TWILL_ABI(int, Group_free, MPI_Group *)
TWILL_ABI(int, Group_translate_ranks, MPI_Group, int, const int *, MPI_Group, int *)
TWILL_ABI(int, Init, int *, char ***)
TWILL_ABI(int, Init_thread, int *, char ***, int, int *)
TWILL_ABI(int, Intercomm_create, MPI_Comm, int, MPI_Comm, int, int, MPI_Comm *)
TWILL_ABI(int, Intercomm_merge, MPI_Comm, int, MPI_Comm *)
TWILL_ABI(int, Isend, const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *)
TWILL_ABI(int, Recv, void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *)
TWILL_ABI(int, Iprobe, int, int, MPI_Comm, int *, MPI_Status *)
TWILL_ABI(int, Op_commutative, MPI_Op, int *)
TWILL_ABI(int, Op_free, MPI_Op *)
TWILL_ABI(int, Pack, const void *, int, MPI_Datatype, void *, int, int *, MPI_Comm)
TWILL_ABI(int, Query_thread, int *)
TWILL_ABI(int, Reduce_local, const void *, void *, int, MPI_Datatype, MPI_Op)
TWILL_ABI(int, Request_free, MPI_Request *)
TWILL_ABI(MPI_Request, Request_fromint, int)
TWILL_ABI(int, Request_get_status, MPI_Request, int *, MPI_Status *)
TWILL_ABI(int, Request_get_status_all, int, const MPI_Request *, int *, MPI_Status *)
TWILL_ABI(int, Request_get_status_any, int, const MPI_Request *, int *, int *, MPI_Status *)
TWILL_ABI(int, Request_get_status_some, int, const MPI_Request *, int *, int *, MPI_Status *)
TWILL_ABI(int, Request_toint, MPI_Request)
TWILL_ABI(int, Send, const void *, int, MPI_Datatype, int, int, MPI_Comm)
TWILL_ABI(int, Sendrecv, const void *, int, MPI_Datatype, int, int, void *, int, MPI_Datatype, int,
          int, MPI_Comm, MPI_Status *)
TWILL_ABI(int, Start, MPI_Request *)
TWILL_ABI(int, Startall, int, MPI_Request *)
TWILL_ABI(int, Test, MPI_Request *, int *, MPI_Status *)
TWILL_ABI(int, Testall, int, MPI_Request *, int *, MPI_Status *)
TWILL_ABI(int, Testany, int, MPI_Request *, int *, int *, MPI_Status *)
TWILL_ABI(int, Testsome, int, MPI_Request *, int *, int *, MPI_Status *)
TWILL_ABI(int, Type_commit, MPI_Datatype *)
TWILL_ABI(int, Type_contiguous, int, MPI_Datatype, MPI_Datatype *)
TWILL_ABI(int, Type_create_hindexed, int, const int *, const MPI_Aint *, MPI_Datatype,
          MPI_Datatype *)
TWILL_ABI(int, Type_create_keyval, MPI_Type_copy_attr_function *, MPI_Type_delete_attr_function *,
          int *, void *)
TWILL_ABI(int, Type_create_struct, int, const int *, const MPI_Aint *, const MPI_Datatype *,
          MPI_Datatype *)
TWILL_ABI(int, Type_free, MPI_Datatype *)
TWILL_ABI(int, Type_get_attr, MPI_Datatype, int, void *, int *)
TWILL_ABI(int, Type_get_contents, MPI_Datatype, int, int, int, int *, MPI_Aint *, MPI_Datatype *)
TWILL_ABI(int, Type_get_envelope, MPI_Datatype, int *, int *, int *, int *)
TWILL_ABI(int, Type_get_extent_x, MPI_Datatype, MPI_Count *, MPI_Count *)
TWILL_ABI(int, Type_get_true_extent_x, MPI_Datatype, MPI_Count *, MPI_Count *)
TWILL_ABI(int, Type_set_attr, MPI_Datatype, int, void *)
TWILL_ABI(int, Type_size_x, MPI_Datatype, MPI_Count *)
TWILL_ABI(int, Unpack, const void *, int, int *, void *, int, MPI_Datatype, MPI_Comm)
TWILL_ABI(int, Wait, MPI_Request *, MPI_Status *)
TWILL_ABI(int, Waitall, int, MPI_Request *, MPI_Status *)
TWILL_ABI(int, Waitany, int, MPI_Request *, int *, MPI_Status *)
TWILL_ABI(int, Waitsome, int, MPI_Request *, int *, int *, MPI_Status *)
TWILL_ABI(int, Win_allocate, MPI_Aint, int, MPI_Info, MPI_Comm, void *, MPI_Win *)
TWILL_ABI(int, Win_allocate_c, MPI_Aint, MPI_Aint, MPI_Info, MPI_Comm, void *, MPI_Win *)
TWILL_ABI(int, Win_allocate_shared, MPI_Aint, int, MPI_Info, MPI_Comm, void *, MPI_Win *)
TWILL_ABI(int, Win_allocate_shared_c, MPI_Aint, MPI_Aint, MPI_Info, MPI_Comm, void *, MPI_Win *)
TWILL_ABI(int, Win_create, void *, MPI_Aint, int, MPI_Info, MPI_Comm, MPI_Win *)
TWILL_ABI(int, Win_create_c, void *, MPI_Aint, MPI_Aint, MPI_Info, MPI_Comm, MPI_Win *)
TWILL_ABI(int, Win_create_dynamic, MPI_Info, MPI_Comm, MPI_Win *)
TWILL_ABI(int, Win_create_keyval, MPI_Win_copy_attr_function *, MPI_Win_delete_attr_function *,
          int *, void *)
TWILL_ABI(int, Win_free_keyval, int *)
TWILL_ABI(int, Win_set_attr, MPI_Win, int, void *)

/* The six forms of each collective. */
#define TWILL_ABI_FORMS(name, lower, N, D, suffix)                                                 \
    TWILL_ABI(int, name##suffix, PARAMETERS_##name(N, D))                                          \
    TWILL_ABI(int, I##lower##suffix, PARAMETERS_##name(N, D), MPI_Request *)                       \
    TWILL_ABI(int, name##_init##suffix, PARAMETERS_##name(N, D), MPI_Info, MPI_Request *)
#define TWILL_ABI_COLLECTIVE(name, lower)                                                          \
    TWILL_ABI_FORMS(name, lower, int, int, )                                                       \
    TWILL_ABI_FORMS(name, lower, MPI_Count, MPI_Aint, _c)
TWILL_MPI_COLLECTIVES(TWILL_ABI_COLLECTIVE)
TWILL_ABI_FORMS(Barrier, barrier, , , )
#undef TWILL_ABI_COLLECTIVE
#undef TWILL_ABI_FORMS
#undef TWILL_ABI

#endif

! SPDX-License-Identifier: Apache-2.0
! twill for Fortran 2008. Compile this file with your program, and link with twill:
!     prefix=$(pkg-config --variable=prefix twill)
!     gfortran -I$prefix/include $prefix/include/twill.F90 program.f90 $(pkg-config --libs twill)
! Buffers are arrays of rank 1 of integer(int32), integer(int64), real(real32) or real(real64). For other types and
! shapes pass c_loc() to c_allreduce ... c_recv. Counts are the sizes of arrays. If an array is too small, it is passed
! as NULL, so that the call fails on all ranks. Functions return twill_ok or a negative status. twill_comm_message()
! returns the reason of a failure, except for twill_init(), which has the argument message.
module twill_base
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    implicit none
    private

    integer(c_int), parameter, public :: twill_ok = 0, twill_err_argument = -1, twill_err_config = -2, &
        twill_err_memory = -3, twill_err_system = -4, twill_err_bootstrap = -5, twill_err_fabric = -6, &
        twill_err_timeout = -7, twill_err_peer = -8, twill_err_mismatch = -9, twill_err_broken = -10, &
        twill_err_forked = -11, twill_err_unsupported = -12, twill_err_internal = -13, &
        twill_err_revoked = -14, twill_err_excluded = -15
    integer(c_int), parameter, public :: twill_f32 = 0, twill_f64 = 1, twill_i32 = 2, twill_i64 = 3, &
        twill_f16 = 4, twill_bf16 = 5, twill_i8 = 6, twill_u8 = 7, twill_i16 = 8, twill_u16 = 9, &
        twill_u32 = 10, twill_u64 = 11, twill_f8e4m3 = 12, twill_f8e5m2 = 13
    integer(c_int), parameter, public :: twill_sum = 0, twill_prod = 1, twill_min = 2, twill_max = 3, &
        twill_avg = 4, twill_band = 5, twill_bor = 6, twill_bxor = 7, twill_land = 8, twill_lor = 9, &
        twill_lxor = 10
    integer(c_int), parameter, public :: twill_colour_none = -1

    ! A communicator. twill_init() creates the one of all ranks, and twill_finalize() destroys it.
    ! twill_comm_destroy() destroys those of twill_comm_split().
    type, public :: twill_comm
        type(c_ptr) :: handle = c_null_ptr
    end type

    ! A nonblocking call in progress. Its buffer needs the attribute asynchronous until twill_wait().
    type, public :: twill_request
        type(c_ptr) :: handle = c_null_ptr
    end type

    public :: twill_init, twill_finalize, twill_comm_split, twill_comm_destroy, twill_comm_rank, &
        twill_comm_size, twill_comm_node, twill_comm_nodes, twill_comm_message, twill_strerror, &
        twill_barrier, twill_wait, twill_test
    public :: fit
    public :: c_allreduce, c_allreduce_start, c_reduce, c_broadcast, c_allgather, c_reduce_scatter, &
        c_send, c_recv

    interface ! functions of twill.h
        integer(c_int) function c_allreduce(comm, src, dst, count, type, op) bind(c, name='twill_allreduce')
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: comm, src, dst
            integer(c_size_t), value :: count
            integer(c_int), value :: type, op
        end function
        integer(c_int) function c_allreduce_start(comm, src, dst, count, type, op, request) &
            bind(c, name='twill_allreduce_start')
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: comm, src, dst
            integer(c_size_t), value :: count
            integer(c_int), value :: type, op
            type(c_ptr), intent(inout) :: request
        end function
        integer(c_int) function c_reduce(comm, src, dst, count, type, op, root) bind(c, name='twill_reduce')
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: comm, src, dst
            integer(c_size_t), value :: count
            integer(c_int), value :: type, op, root
        end function
        integer(c_int) function c_broadcast(comm, src, dst, count, type, root) bind(c, name='twill_broadcast')
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: comm, src, dst
            integer(c_size_t), value :: count
            integer(c_int), value :: type, root
        end function
        integer(c_int) function c_allgather(comm, src, dst, count, type) bind(c, name='twill_allgather')
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: comm, src, dst
            integer(c_size_t), value :: count
            integer(c_int), value :: type
        end function
        integer(c_int) function c_reduce_scatter(comm, src, dst, count, type, op) bind(c, name='twill_reduce_scatter')
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: comm, src, dst
            integer(c_size_t), value :: count
            integer(c_int), value :: type, op
        end function
        integer(c_int) function c_send(comm, src, count, type, to) bind(c, name='twill_send')
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: comm, src
            integer(c_size_t), value :: count
            integer(c_int), value :: type, to
        end function
        integer(c_int) function c_recv(comm, dst, count, type, from) bind(c, name='twill_recv')
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: comm, dst
            integer(c_size_t), value :: count
            integer(c_int), value :: type, from
        end function
        integer(c_int) function c_init(comm) bind(c, name='twill_init')
            import :: c_int, c_ptr
            type(c_ptr), intent(out) :: comm
        end function
        integer(c_int) function c_init_with(comm, bootstrap, settings, message, bytes) bind(c, name='twill_init_with')
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), intent(out) :: comm
            type(c_ptr), value :: bootstrap, settings, message
            integer(c_size_t), value :: bytes
        end function
        integer(c_int) function c_comm_split(made, comm, colour, key) bind(c, name='twill_comm_split')
            import :: c_int, c_ptr
            type(c_ptr), intent(out) :: made
            type(c_ptr), value :: comm
            integer(c_int), value :: colour, key
        end function
        integer(c_int) function c_wait(request) bind(c, name='twill_wait')
            import :: c_int, c_ptr
            type(c_ptr), intent(inout) :: request
        end function
        integer(c_int) function c_test(request, done) bind(c, name='twill_test')
            import :: c_int, c_ptr
            type(c_ptr), intent(inout) :: request
            integer(c_int), intent(out) :: done
        end function
        subroutine c_finalize(comm) bind(c, name='twill_finalize')
            import :: c_ptr
            type(c_ptr), value :: comm
        end subroutine
        subroutine c_comm_destroy(comm) bind(c, name='twill_comm_destroy')
            import :: c_ptr
            type(c_ptr), value :: comm
        end subroutine
        type(c_ptr) function c_comm_message(comm) bind(c, name='twill_comm_message')
            import :: c_ptr
            type(c_ptr), value :: comm
        end function
        type(c_ptr) function c_strerror(status) bind(c, name='twill_strerror')
            import :: c_int, c_ptr
            integer(c_int), value :: status
        end function
        integer(c_size_t) function c_strlen(text) bind(c, name='strlen')
            import :: c_ptr, c_size_t
            type(c_ptr), value :: text
        end function
        integer(c_int) function c_comm_rank(comm) bind(c, name='twill_comm_rank')
            import :: c_int, c_ptr
            type(c_ptr), value :: comm
        end function
        integer(c_int) function c_comm_size(comm) bind(c, name='twill_comm_size')
            import :: c_int, c_ptr
            type(c_ptr), value :: comm
        end function
        integer(c_int) function c_comm_node(comm) bind(c, name='twill_comm_node')
            import :: c_int, c_ptr
            type(c_ptr), value :: comm
        end function
        integer(c_int) function c_comm_nodes(comm) bind(c, name='twill_comm_nodes')
            import :: c_int, c_ptr
            type(c_ptr), value :: comm
        end function
        integer(c_int) function c_barrier(comm) bind(c, name='twill_barrier')
            import :: c_int, c_ptr
            type(c_ptr), value :: comm
        end function
    end interface

contains

    ! Create the communicator of all ranks. The reason of a failure is stored in message, or printed if that is absent.
    integer(c_int) function twill_init(comm, message) result(status)
        type(twill_comm), intent(out) :: comm
        character(len=:), allocatable, intent(out), optional :: message
        character(kind=c_char), target :: text(1024)
        if (.not. present(message)) then
            status = c_init(comm%handle)
        else
            status = c_init_with(comm%handle, c_null_ptr, c_null_ptr, c_loc(text), size(text, kind=c_size_t))
            message = text_of(c_loc(text))
        end if
    end function

    subroutine twill_finalize(comm)
        type(twill_comm), intent(inout) :: comm
        call c_finalize(comm%handle)
        comm%handle = c_null_ptr
    end subroutine

    integer(c_int) function twill_comm_split(made, comm, colour, key) result(status)
        type(twill_comm), intent(out) :: made
        type(twill_comm), intent(in) :: comm
        integer, intent(in) :: colour, key
        status = c_comm_split(made%handle, comm%handle, int(colour, c_int), int(key, c_int))
    end function

    subroutine twill_comm_destroy(comm)
        type(twill_comm), intent(inout) :: comm
        call c_comm_destroy(comm%handle)
        comm%handle = c_null_ptr
    end subroutine

    function twill_comm_message(comm) result(message)
        type(twill_comm), intent(in) :: comm
        character(len=:), allocatable :: message
        message = text_of(c_comm_message(comm%handle))
    end function

    function twill_strerror(status) result(message)
        integer(c_int), intent(in) :: status
        character(len=:), allocatable :: message
        message = text_of(c_strerror(status))
    end function

    function text_of(pointer) result(text)
        type(c_ptr), intent(in) :: pointer
        character(len=:), allocatable :: text
        character(kind=c_char), pointer :: letters(:)
        integer :: i
        call c_f_pointer(pointer, letters, [c_strlen(pointer)])
        allocate (character(len=size(letters)) :: text)
        do i = 1, size(letters)
            text(i:i) = letters(i)
        end do
    end function

    integer(c_int) function twill_barrier(comm) result(status)
        type(twill_comm), intent(in) :: comm
        status = c_barrier(comm%handle)
    end function

    integer(c_int) function twill_wait(request) result(status)
        type(twill_request), intent(inout) :: request
        status = c_wait(request%handle)
    end function

    integer(c_int) function twill_test(request, done) result(status)
        type(twill_request), intent(inout) :: request
        logical, intent(out) :: done
        integer(c_int) :: complete
        status = c_test(request%handle, complete)
        done = complete /= 0
    end function

    integer function twill_comm_rank(comm)
        type(twill_comm), intent(in) :: comm
        twill_comm_rank = c_comm_rank(comm%handle)
    end function

    integer function twill_comm_size(comm)
        type(twill_comm), intent(in) :: comm
        twill_comm_size = c_comm_size(comm%handle)
    end function

    integer function twill_comm_node(comm)
        type(twill_comm), intent(in) :: comm
        twill_comm_node = c_comm_node(comm%handle)
    end function

    integer function twill_comm_nodes(comm)
        type(twill_comm), intent(in) :: comm
        twill_comm_nodes = c_comm_nodes(comm%handle)
    end function

    ! Return the address `where`, or c_null_ptr if the buffer there has fewer elements than needed.
    type(c_ptr) function fit(where, elements, needed)
        type(c_ptr), intent(in) :: where
        integer(c_size_t), intent(in) :: elements, needed
        fit = c_null_ptr
        if (elements >= needed) fit = where
    end function
end module

module twill_calls_i32
#define ELEMENT integer(int32)
#define TYPE twill_i32
#include "twill_calls.inc"
end module

module twill_calls_i64
#define ELEMENT integer(int64)
#define TYPE twill_i64
#include "twill_calls.inc"
end module

module twill_calls_f32
#define ELEMENT real(real32)
#define TYPE twill_f32
#include "twill_calls.inc"
end module

module twill_calls_f64
#define ELEMENT real(real64)
#define TYPE twill_f64
#include "twill_calls.inc"
end module

! The module that programs use.
module twill
    use twill_base
    use twill_calls_i32
    use twill_calls_i64
    use twill_calls_f32
    use twill_calls_f64
    implicit none
    private :: fit
end module

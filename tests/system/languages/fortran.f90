! SPDX-License-Identifier: Apache-2.0
! The module twill, call by call, on 2 ranks. Exit status 0: every value and every status was right.
program calls
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
    use twill
    implicit none
    type(twill_comm) :: world, half
    type(twill_request) :: request
    integer :: me, status, faults = 0
    integer(int32) :: i4(2), sum4(2), all4(4), one4(1)
    integer(int64) :: i8(3), sum8(3)
    real(real32), asynchronous :: r4(1000)
    real(real64) :: r8(2)
    real(real64), target :: plane(2, 3)
    integer(int32) :: short(1)
    logical :: done
    character(len=:), allocatable :: why
    interface
        integer(c_int) function setenv(name, value, overwrite) bind(c)
            import :: c_int, c_char
            character(kind=c_char), intent(in) :: name(*), value(*)
            integer(c_int), value :: overwrite
        end function
    end interface

    if (setenv('TWILL_TIMEOUT' // c_null_char, 'soon' // c_null_char, 1) /= 0) stop 1
    if (twill_init(world, why) /= twill_err_config .or. index(why, 'TWILL_TIMEOUT=soon') == 0) stop 1
    if (setenv('TWILL_TIMEOUT' // c_null_char, '60' // c_null_char, 1) /= 0) stop 1
    if (twill_init(world) /= twill_ok) stop 1
    me = twill_comm_rank(world)
    call expect(twill_comm_size(world) == 2 .and. twill_comm_nodes(world) >= 1 .and. twill_comm_node(world) >= 0, &
        'who')

    i4 = [me + 1, 10 * (me + 1)]
    status = twill_allreduce(world, i4, sum4, twill_sum)
    call expect(status == twill_ok .and. all(sum4 == [3, 30]), 'allreduce')
    i8 = me
    status = twill_allreduce(world, i8, sum8, twill_max)
    call expect(status == twill_ok .and. all(sum8 == 1), 'allreduce of int64')
    r8 = me + 0.5
    status = twill_allreduce(world, r8, twill_avg)
    call expect(status == twill_ok .and. all(r8 > 0.99 .and. r8 < 1.01), 'in place')
    sum4 = 0
    status = twill_reduce(world, i4, sum4, twill_prod, 1)
    call expect(status == twill_ok .and. sum4(1) == merge(2, 0, me == 1), 'reduce')
    r4 = merge(2.5, 0.0, me == 0)
    status = twill_broadcast(world, r4, 0)
    call expect(status == twill_ok .and. r4(1000) > 2.4, 'broadcast')
    status = twill_allgather(world, i4, all4)
    call expect(status == twill_ok .and. all(all4 == [1, 10, 2, 20]), 'allgather')
    status = twill_reduce_scatter(world, i4, one4, twill_sum)
    call expect(status == twill_ok .and. one4(1) == merge(3, 30, me == 0), 'reduce_scatter')
    if (me == 0) then
        call expect(twill_send(world, i4, 1) == twill_ok, 'send')
    else
        status = twill_recv(world, sum4, 0)
        call expect(status == twill_ok .and. all(sum4 == [1, 10]), 'recv')
    end if
    r4 = 1
    call expect(twill_allreduce_start(world, r4, twill_sum, request) == twill_ok, 'start')
    done = .false.
    do while (.not. done)
        if (twill_test(request, done) /= twill_ok) exit
    end do
    status = twill_wait(request)
    call expect(status == twill_ok .and. done .and. abs(r4(1000) - 2) < 0.01, 'test')
    plane = 1 ! of rank 2: by its address
    status = c_allreduce(world%handle, c_loc(plane), c_loc(plane), 6_c_size_t, twill_f64, twill_sum)
    call expect(status == twill_ok .and. all(plane > 1.9), 'an array of rank 2')
    status = twill_comm_split(half, world, me, 0)
    call expect(status == twill_ok .and. twill_comm_size(half) == 1, 'split')
    call twill_comm_destroy(half)
    status = twill_barrier(world)
    call expect(status == twill_ok .and. len(twill_comm_message(world)) == 0, 'no message')
    call expect(twill_strerror(twill_ok) == 'success', 'strerror')

    ! Too small an array on rank 0: an error on both.
    if (me == 0) then
        call expect(twill_allreduce(world, i4, short, twill_sum) /= twill_ok, 'too small an array')
    else
        call expect(twill_allreduce(world, i4, sum4, twill_sum) /= twill_ok, 'the other array')
    end if
    call expect(len(twill_comm_message(world)) > 0, 'the message')
    call twill_finalize(world)
    if (faults > 0) stop 1

contains

    subroutine expect(right, what)
        logical, intent(in) :: right
        character(len=*), intent(in) :: what
        if (right) return
        faults = faults + 1
        print '(a, i0, 3a)', 'rank ', me, ': ', what, ' is wrong'
    end subroutine
end program

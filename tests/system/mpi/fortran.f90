! SPDX-License-Identifier: Apache-2.0
! Collectives as Fortran programs call them, by the module and by mpif.h, with known results.
! check_mpi_fortran.sh counts the calls.
module operations
    implicit none
contains
    subroutine add(in, inout, count, type)
        integer, intent(in) :: count, type
        double precision, intent(in) :: in(count)
        double precision, intent(inout) :: inout(count)
        inout = inout + in + 0 * type
    end subroutine
end module

! By the module: 3 blocking allreduces, and nonblocking and persistent calls.
subroutine by_module()
    use mpi
    use harness
    use operations
    implicit none
    integer, parameter :: n = 5
    integer :: i, code, op, half, again, requests(4), statuses(MPI_STATUS_SIZE, 4), status(MPI_STATUS_SIZE)
    integer, asynchronous :: out(n), result(n), token, got
    double precision, asynchronous :: x(n), z(n)
    double precision :: y(n)
    logical :: flag

    x = [(dble(me + i), i = 1, n)]
    call MPI_Allreduce(x, y, n, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, code)
    call check(code == MPI_SUCCESS .and. all(y == [(dble(ranks * i + sum_to(ranks - 1)), i = 1, n)]), 'allreduce')
    y = x
    call MPI_Allreduce(MPI_IN_PLACE, y, n, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, code)
    call check(all(y == [(dble(ranks - 1 + i), i = 1, n)]), 'allreduce in place')
    call MPI_Op_create(add, .true., op, code)
    call MPI_Allreduce(x, y, n, MPI_DOUBLE_PRECISION, op, MPI_COMM_WORLD, code)
    call MPI_Op_free(op, code)
    call check(op == MPI_OP_NULL .and. all(y == [(dble(ranks * i + sum_to(ranks - 1)), i = 1, n)]), 'own operation')

    ! Mixed with messages of the MPI's in one array.
    out = me + 1
    token = me
    call MPI_Iallreduce(out, result, n, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1), code)
    call MPI_Irecv(got, 1, MPI_INTEGER, modulo(me - 1, ranks), 1, MPI_COMM_WORLD, requests(2), code)
    call MPI_Isend(token, 1, MPI_INTEGER, modulo(me + 1, ranks), 1, MPI_COMM_WORLD, requests(3), code)
    call MPI_Iallreduce(x, z, n, MPI_DOUBLE_PRECISION, MPI_MIN, MPI_COMM_WORLD, requests(4), code)
    call MPI_Waitall(4, requests, statuses, code)
    call check(code == MPI_SUCCESS .and. all(requests == MPI_REQUEST_NULL), 'waitall')
    call check(all(result == sum_to(ranks)) .and. all(z == [(dble(i), i = 1, n)]), 'iallreduce')
    call check(got == modulo(me - 1, ranks) .and. statuses(MPI_SOURCE, 2) == got, 'message')
    call MPI_Ibarrier(MPI_COMM_WORLD, requests(1), code)
    flag = .false.
    do while (.not. flag)
        call MPI_Test(requests(1), flag, status, code)
    end do
    call check(requests(1) == MPI_REQUEST_NULL, 'test of a barrier')

    ! Two communicators besides the world.
    call MPI_Comm_dup(MPI_COMM_WORLD, again, code)
    call MPI_Comm_split(MPI_COMM_WORLD, 0, -me, half, code)
    call MPI_Allreduce(me, got, 1, MPI_INTEGER, MPI_SUM, half, code)
    call check(got == sum_to(ranks - 1), 'split')
    call MPI_Allreduce(me, got, 1, MPI_INTEGER, MPI_MAX, again, code)
    call check(got == ranks - 1, 'dup')
    call MPI_Comm_free(half, code)
    call MPI_Comm_free(again, code)
    call check(half == MPI_COMM_NULL .and. again == MPI_COMM_NULL, 'free')
end subroutine

! By mpif.h: one call of each kind, and two allreduces of other types.
subroutine by_header()
    use harness
    implicit none
    include 'mpif.h'
    integer :: code, r, mine(3), parts(3 * 16), all_parts(3 * 16), part(3), counts(16), places(16)
    complex :: c, c_sum
    logical :: some

    counts = 3
    places = [(3 * (r - 1), r = 1, 16)]
    mine = [me, 10 * me, 100 * me]
    call MPI_Barrier(MPI_COMM_WORLD, code)
    part = merge(7, 0, me == 1)
    call MPI_Bcast(part, 3, MPI_INTEGER, 1, MPI_COMM_WORLD, code)
    call check(all(part == 7), 'bcast')
    call MPI_Reduce(mine, part, 3, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, code)
    if (me == 0) call check(all(part == sum_to(ranks - 1) * [1, 10, 100]), 'reduce')
    call MPI_Gather(mine, 3, MPI_INTEGER, parts, 3, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
    if (me == 0) call check(all(parts(4:6) == [1, 10, 100]), 'gather')
    call MPI_Gatherv(mine, 3, MPI_INTEGER, parts, counts, places, MPI_INTEGER, 1, MPI_COMM_WORLD, code)
    if (me == 1) call check(all(parts(1:3) == 0) .and. all(parts(7:9) == [2, 20, 200]), 'gatherv')
    call MPI_Allgather(mine, 3, MPI_INTEGER, all_parts, 3, MPI_INTEGER, MPI_COMM_WORLD, code)
    call check(all(all_parts(1:3 * ranks:3) == [(r, r = 0, ranks - 1)]), 'allgather')
    all_parts = -1
    all_parts(3 * me + 1:3 * me + 3) = mine
    call MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INTEGER, all_parts, counts, places, MPI_INTEGER, MPI_COMM_WORLD, code)
    call check(all(all_parts(3:3 * ranks:3) == [(100 * r, r = 0, ranks - 1)]), 'allgatherv in place')
    call MPI_Scatter(all_parts, 3, MPI_INTEGER, part, 3, MPI_INTEGER, 2, MPI_COMM_WORLD, code)
    call check(all(part == mine), 'scatter')
    call MPI_Scatterv(all_parts, counts, places, MPI_INTEGER, part, 3, MPI_INTEGER, 0, MPI_COMM_WORLD, code)
    call check(all(part == mine), 'scatterv')
    parts = me
    call MPI_Alltoall(parts, 3, MPI_INTEGER, all_parts, 3, MPI_INTEGER, MPI_COMM_WORLD, code)
    call check(all(all_parts(1:3 * ranks:3) == [(r, r = 0, ranks - 1)]), 'alltoall')
    call MPI_Alltoallv(parts, counts, places, MPI_INTEGER, all_parts, counts, places, MPI_INTEGER, &
                       MPI_COMM_WORLD, code)
    call check(all(all_parts(2:3 * ranks:3) == [(r, r = 0, ranks - 1)]), 'alltoallv')
    call MPI_Reduce_scatter(parts, part, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
    call check(all(part == sum_to(ranks - 1)), 'reduce_scatter')
    call MPI_Reduce_scatter_block(parts, part, 3, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, code)
    call check(all(part == ranks - 1), 'reduce_scatter_block')
    c = cmplx(me, 1)
    call MPI_Allreduce(c, c_sum, 1, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD, code)
    call check(c_sum == cmplx(sum_to(ranks - 1), ranks), 'complex')
    call MPI_Allreduce(me == 1, some, 1, MPI_LOGICAL, MPI_LOR, MPI_COMM_WORLD, code)
    call check(some, 'logical')
end subroutine

program fortran
    use mpi
    use harness
    implicit none
    integer :: code, mine(2), total(2)
    call MPI_Init(code)
    call MPI_Comm_rank(MPI_COMM_WORLD, me, code)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, code)
    call by_module()
    call by_header()
    mine = [cases, wrong]
    call MPI_Reduce(mine, total, 2, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, code)
    if (me == 0) print '(3(a, i0), a)', 'fortran: ', ranks, ' ranks: ', total(1), ' cases, ', total(2), ' wrong'
    call MPI_Finalize(code)
    if (wrong > 0) stop 1
end program

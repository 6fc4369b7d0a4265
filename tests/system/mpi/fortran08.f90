! SPDX-License-Identifier: Apache-2.0
! Calls by the module mpi_f08, mainly those without buffers, with an error code and without, with
! statuses and without. check_mpi_fortran.sh counts the calls.
module functions
    use, intrinsic :: iso_c_binding
    use mpi_f08
    implicit none
contains
    subroutine add(in, inout, count, type)
        type(c_ptr), value :: in, inout
        integer :: count
        type(MPI_Datatype) :: type
        integer, pointer :: left(:), right(:)
        call c_f_pointer(in, left, [count])
        call c_f_pointer(inout, right, [count])
        if (type /= MPI_DATATYPE_NULL) right = left + right
    end subroutine
end module

! One allreduce, one message around the ring, and a barrier before it; with and without statuses.
subroutine one_by_one()
    use mpi_f08
    use harness
    implicit none
    type(MPI_Request) :: request
    type(MPI_Status) :: status
    integer, asynchronous :: mine, total
    integer :: code, before
    logical :: flag

    mine = me + 1
    total = 0
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPI_Iallreduce(mine, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
    status%MPI_ERROR = 4711
    call MPI_Wait(request, status, code)
    call check(code == MPI_SUCCESS .and. total == sum_to(ranks) .and. request == MPI_REQUEST_NULL, 'wait')
    call check(status%MPI_ERROR == 4711, 'wait leaves MPI_ERROR alone')
    call MPI_Iallreduce(mine, total, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call check(total == ranks, 'wait, no status')
    call MPI_Ibarrier(MPI_COMM_WORLD, request)
    flag = .false.
    do while (.not. flag)
        call MPI_Request_get_status(request, flag, status)
    end do
    call check(request /= MPI_REQUEST_NULL, 'request_get_status')
    flag = .false.
    do while (.not. flag)
        call MPI_Test(request, flag, MPI_STATUS_IGNORE, code)
    end do
    call check(code == MPI_SUCCESS .and. request == MPI_REQUEST_NULL, 'test, no status')
    call MPI_Irecv(total, 1, MPI_INTEGER, modulo(me - 1, ranks), 7, MPI_COMM_WORLD, request)
    before = me
    call MPI_Send(before, 1, MPI_INTEGER, modulo(me + 1, ranks), 7, MPI_COMM_WORLD)
    flag = .false.
    do while (.not. flag)
        call MPI_Test(request, flag, status)
    end do
    call check(total == modulo(me - 1, ranks) .and. status%MPI_SOURCE == total .and. status%MPI_TAG == 7, &
               'test of a message')
    call MPI_Irecv(total, 1, MPI_INTEGER, me, 8, MPI_COMM_WORLD, request)
    call MPI_Cancel(request)
    call MPI_Wait(request, status)
    call MPI_Test_cancelled(status, flag)
    call check(flag, 'cancel')
end subroutine

! Arrays of requests: three collectives and a message, by each of the calls for them.
subroutine many(how, ignored)
    use mpi_f08
    use harness
    implicit none
    character(*), intent(in) :: how
    logical, intent(in) :: ignored
    integer, parameter :: n = 5
    type(MPI_Request) :: requests(n)
    type(MPI_Status) :: statuses(n), status
    integer, asynchronous :: mine, total(2), token, got
    integer :: left, index, done, indices(n), i, sources(n), code
    logical :: flag, seen(n)

    mine = me + 1
    total = 0
    token = me
    got = -1
    sources = -1
    seen = .false.
    call MPI_Iallreduce(mine, total(1), 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1))
    call MPI_Irecv(got, 1, MPI_INTEGER, modulo(me - 1, ranks), 1, MPI_COMM_WORLD, requests(2))
    call MPI_Isend(token, 1, MPI_INTEGER, modulo(me + 1, ranks), 1, MPI_COMM_WORLD, requests(3))
    call MPI_Ibarrier(MPI_COMM_WORLD, requests(4))
    call MPI_Iallreduce(mine, total(2), 1, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, requests(5))
    left = n
    do while (left > 0)
        done = 0
        select case (how)
        case ('waitall')
            if (ignored) call MPI_Waitall(n, requests, MPI_STATUSES_IGNORE)
            if (.not. ignored) call MPI_Waitall(n, requests, statuses, code)
            done = n
            indices = [(i, i = 1, n)]
        case ('testall')
            if (ignored) call MPI_Testall(n, requests, flag, MPI_STATUSES_IGNORE)
            if (.not. ignored) call MPI_Testall(n, requests, flag, statuses, code)
            if (flag) done = n
            indices = [(i, i = 1, n)]
        case ('waitsome')
            if (ignored) call MPI_Waitsome(n, requests, done, indices, MPI_STATUSES_IGNORE)
            if (.not. ignored) call MPI_Waitsome(n, requests, done, indices, statuses, code)
        case ('testsome')
            if (ignored) call MPI_Testsome(n, requests, done, indices, MPI_STATUSES_IGNORE)
            if (.not. ignored) call MPI_Testsome(n, requests, done, indices, statuses, code)
        case ('waitany')
            if (ignored) call MPI_Waitany(n, requests, index, MPI_STATUS_IGNORE)
            if (.not. ignored) call MPI_Waitany(n, requests, index, status, code)
            done = 1
            indices(1) = index
            statuses(1) = status
        case ('testany')
            if (ignored) call MPI_Testany(n, requests, index, flag, MPI_STATUS_IGNORE)
            if (.not. ignored) call MPI_Testany(n, requests, index, flag, status, code)
            if (flag) done = 1
            indices(1) = index
            statuses(1) = status
        end select
        do i = 1, done
            if (indices(i) < 1 .or. indices(i) > n) stop 'an index that is none'
            call check(.not. seen(indices(i)) .and. requests(indices(i)) == MPI_REQUEST_NULL, how // ': once')
            seen(indices(i)) = .true.
            sources(indices(i)) = statuses(i)%MPI_SOURCE
        end do
        left = left - done
    end do
    call check(total(1) == sum_to(ranks) .and. total(2) == 1, how // ': results')
    call check(got == modulo(me - 1, ranks), how // ': message')
    if (.not. ignored) call check(sources(2) == got, how // ': status')
    select case (how)
    case ('waitany')
        call MPI_Waitany(n, requests, index, status)
        call check(index == MPI_UNDEFINED, 'waitany of none')
    case ('testsome')
        call MPI_Testsome(n, requests, done, indices, statuses)
        call check(done == MPI_UNDEFINED, 'testsome of none')
    end select
end subroutine

! Persistent calls, started alone and together, and freed.
subroutine prepared()
    use mpi_f08
#ifdef OF_openmpi
    use mpi_f08_ext, only: MPI_Allreduce_init => MPIX_Allreduce_init, MPI_Barrier_init => MPIX_Barrier_init, &
        MPI_Bcast_init => MPIX_Bcast_init
#endif
    use harness
    implicit none
    type(MPI_Request) :: requests(3)
    integer, asynchronous :: mine, total, value
    integer :: round

    call MPI_Allreduce_init(mine, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1))
    call MPI_Bcast_init(value, 1, MPI_INTEGER, 1, MPI_COMM_WORLD, MPI_INFO_NULL, requests(2))
    call MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, requests(3))
    do round = 1, 3
        mine = round * (me + 1)
        value = merge(round, -1, me == 1)
        if (round == 2) then
            call MPI_Start(requests(1))
            call MPI_Start(requests(2))
            call MPI_Start(requests(3))
        else
            call MPI_Startall(3, requests)
        end if
        call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE)
        call check(total == round * sum_to(ranks) .and. value == round, 'persistent')
        call check(all([requests%MPI_VAL] /= MPI_REQUEST_NULL%MPI_VAL), 'persistent: they stay')
    end do
    do round = 1, 3
        call MPI_Request_free(requests(round))
        call check(requests(round) == MPI_REQUEST_NULL, 'request_free')
    end do
end subroutine

! A communicator works for one allreduce, and is then freed.
subroutine used_up(comm, what)
    use mpi_f08
    use harness
    implicit none
    type(MPI_Comm) :: comm
    character(*), intent(in) :: what
    integer :: n, total
    call MPI_Comm_size(comm, n)
    call MPI_Allreduce(1, total, 1, MPI_INTEGER, MPI_SUM, comm)
    call check(n == ranks .and. total == n, what)
    call MPI_Barrier(comm)
    call MPI_Comm_free(comm)
    call check(comm == MPI_COMM_NULL, what // ' is freed')
end subroutine

! All ways to create a communicator of all ranks.
subroutine communicators()
    use mpi_f08
    use harness
    implicit none
    type(MPI_Comm) :: comm, cart, between, alone
    type(MPI_Group) :: group
    integer :: next(1), before(1), weight(1), edges(2 * ranks), ends(ranks), i, code

    call MPI_Comm_dup(MPI_COMM_WORLD, comm, code)
    call check(code == MPI_SUCCESS, 'dup')
    call used_up(comm, 'dup')
    call MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, comm)
    call used_up(comm, 'dup_with_info')
    call MPI_Comm_split(MPI_COMM_WORLD, 3, -me, comm)
    call used_up(comm, 'split')
    call MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, comm)
    call used_up(comm, 'split_type')
    call MPI_Comm_group(MPI_COMM_WORLD, group)
    call MPI_Comm_create(MPI_COMM_WORLD, group, comm)
    call used_up(comm, 'create')
    call MPI_Comm_create_group(MPI_COMM_WORLD, group, 5, comm)
    call used_up(comm, 'create_group')
    call MPI_Group_free(group)
    call MPI_Cart_create(MPI_COMM_WORLD, 2, [ranks, 1], [.true., .false.], .false., cart)
    call MPI_Cart_sub(cart, [.true., .false.], comm)
    call used_up(comm, 'cart_sub')
    call used_up(cart, 'cart_create')
    ends = [(2 * i, i = 1, ranks)]
    edges = [(modulo(i - 1, ranks), modulo(i + 1, ranks), i = 0, ranks - 1)]
    call MPI_Graph_create(MPI_COMM_WORLD, ranks, ends, edges, .false., comm)
    call used_up(comm, 'graph_create')
    next = modulo(me + 1, ranks)
    before = modulo(me - 1, ranks)
    call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [me], [1], next, MPI_UNWEIGHTED, MPI_INFO_NULL, .false., comm)
    call used_up(comm, 'dist_graph_create, unweighted')
    call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [me], [1], next, [7], MPI_INFO_NULL, .false., comm)
    call MPI_Dist_graph_neighbors(comm, 1, before, weight, 1, next, edges)
    call check(weight(1) == 7 .and. before(1) == modulo(me - 1, ranks), 'weights')
    call used_up(comm, 'dist_graph_create')
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, before, MPI_UNWEIGHTED, 1, next, MPI_UNWEIGHTED, &
                                        MPI_INFO_NULL, .false., comm, code)
    call check(code == MPI_SUCCESS, 'dist_graph_create_adjacent')
    call used_up(comm, 'dist_graph_create_adjacent')
    call MPI_Comm_split(MPI_COMM_WORLD, merge(0, 1, me == 0), 0, alone)
    call MPI_Intercomm_create(alone, 0, MPI_COMM_WORLD, merge(1, 0, me == 0), 9, between)
    call MPI_Intercomm_merge(between, me == 0, comm)
    call used_up(comm, 'intercomm_merge')
    call MPI_Comm_free(between)
    call MPI_Comm_free(alone)
end subroutine

! User-defined operations and types, freed as early as allowed, and memory.
subroutine others()
    use, intrinsic :: iso_c_binding
    use mpi_f08
    use functions
    use harness
    implicit none
    integer, parameter :: n = 1000
    type(MPI_Op) :: op
    type(MPI_Datatype) :: pair
    type(MPI_Request) :: request
    type(MPI_Win) :: window
    type(MPI_File) :: file
    type(c_ptr) :: memory
    integer, pointer :: x(:)
    integer, asynchronous :: y(n)
    integer :: z(4), code

    call MPI_Alloc_mem(int(n * storage_size(y) / 8, MPI_ADDRESS_KIND), MPI_INFO_NULL, memory)
    call c_f_pointer(memory, x, [n])
    x = me + 1
    call MPI_Op_create(add, .true., op)
    call MPI_Iallreduce(x, y, n, MPI_INTEGER, op, MPI_COMM_WORLD, request)
    call MPI_Op_free(op, code)
    call check(code == MPI_SUCCESS .and. op == MPI_OP_NULL, 'op_free')
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call check(all(y == sum_to(ranks)), 'own operation')
    call MPI_Free_mem(x)
    call MPI_Type_contiguous(2, MPI_INTEGER, pair)
    call MPI_Type_commit(pair)
    z = merge(9, 0, me == 0)
    call MPI_Bcast(z, 2, pair, 0, MPI_COMM_WORLD)
    call MPI_Type_free(pair)
    call check(all(z == 9) .and. pair == MPI_DATATYPE_NULL, 'type_free')
    y = me
    call MPI_Bcast(y(1:n:2), n / 2, MPI_INTEGER, 1, MPI_COMM_WORLD)
    call check(all(y(1:n:2) == 1) .and. all(y(2:n:2) == me), 'every other element')
    y = me
    call MPI_Allreduce(MPI_IN_PLACE, y, n, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD)
    call check(all(y == ranks - 1), 'in place')
    call MPI_Scan(me, code, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call check(code == sum_to(me), 'scan')
    call MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, window, code)
    call check(code == MPI_SUCCESS, 'win_create_dynamic')
    call MPI_Win_free(window)
    call MPI_File_open(MPI_COMM_SELF, '/dev/zero', MPI_MODE_RDONLY, MPI_INFO_NULL, file, code)
    call check(code == MPI_SUCCESS, 'file_open')
    if (code == MPI_SUCCESS) call MPI_File_close(file, code)
    call check(code == MPI_SUCCESS, 'file_close')
end subroutine

program fortran08
    use mpi_f08
    use harness
    implicit none
    integer :: mine(2), total(2), provided
    call MPI_Init_thread(MPI_THREAD_MULTIPLE, provided) ! for user-defined operations in nonblocking calls
    call MPI_Comm_rank(MPI_COMM_WORLD, me)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    call one_by_one()
    call many('waitall', .true.)
    call many('waitall', .false.)
    call many('testall', .true.)
    call many('testall', .false.)
    call many('waitsome', .true.)
    call many('waitsome', .false.)
    call many('testsome', .true.)
    call many('testsome', .false.)
    call many('waitany', .true.)
    call many('waitany', .false.)
    call many('testany', .true.)
    call many('testany', .false.)
    call prepared()
    call communicators()
    call others()
    mine = [cases, wrong]
    call MPI_Reduce(mine, total, 2, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
    if (me == 0) print '(3(a, i0), a)', 'fortran08: ', ranks, ' ranks: ', total(1), ' cases, ', total(2), ' wrong'
    call MPI_Finalize()
    if (wrong > 0) stop 1
end program

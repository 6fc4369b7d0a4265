! SPDX-License-Identifier: Apache-2.0
! The Fortran half of mixed.c. Handles are passed as integers.
subroutine fortran_init() bind(C)
    use mpi_f08
    call MPI_Init()
end subroutine

subroutine fortran_barrier() bind(C)
    use mpi_f08
    call MPI_Barrier(MPI_COMM_WORLD)
end subroutine

integer(c_int) function fortran_dup() bind(C)
    use, intrinsic :: iso_c_binding
    use mpi_f08
    type(MPI_Comm) :: made
    call MPI_Comm_dup(MPI_COMM_WORLD, made)
    fortran_dup = made%MPI_VAL
end function

integer(c_int) function fortran_graph(rank, ranks) bind(C)
    use, intrinsic :: iso_c_binding
    use mpi_f08
    integer(c_int), value :: rank, ranks
    type(MPI_Comm) :: made
    call MPI_Dist_graph_create(MPI_COMM_WORLD, 1, [rank], [1], [modulo(rank + 1, ranks)], MPI_UNWEIGHTED, &
                               MPI_INFO_NULL, .false., made)
    fortran_graph = made%MPI_VAL
end function

integer(c_int) function fortran_start(mine, total, comm) bind(C)
    use, intrinsic :: iso_c_binding
    use mpi_f08
    integer(c_int), asynchronous :: mine, total
    integer(c_int), value :: comm
    type(MPI_Request) :: request
    call MPI_Iallreduce(mine, total, 1, MPI_INTEGER, MPI_SUM, MPI_Comm(comm), request)
    fortran_start = request%MPI_VAL
end function

integer(c_int) function fortran_prepare(mine, total, comm) bind(C)
    use, intrinsic :: iso_c_binding
    use mpi_f08
#ifdef OF_openmpi
    use mpi_f08_ext, only: MPI_Allreduce_init => MPIX_Allreduce_init
#endif
    integer(c_int), asynchronous :: mine, total
    integer(c_int), value :: comm
    type(MPI_Request) :: request
    call MPI_Allreduce_init(mine, total, 1, MPI_INTEGER, MPI_SUM, MPI_Comm(comm), MPI_INFO_NULL, request)
    fortran_prepare = request%MPI_VAL
end function

subroutine fortran_again(number) bind(C)
    use, intrinsic :: iso_c_binding
    use mpi_f08
    integer(c_int) :: number
    type(MPI_Request) :: request
    request%MPI_VAL = number
    call MPI_Start(request)
    number = request%MPI_VAL
end subroutine

subroutine fortran_wait(number) bind(C)
    use, intrinsic :: iso_c_binding
    use mpi_f08
    integer(c_int) :: number
    type(MPI_Request) :: request
    request%MPI_VAL = number
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    number = request%MPI_VAL
end subroutine

subroutine fortran_forget(number) bind(C)
    use, intrinsic :: iso_c_binding
    use mpi_f08
    integer(c_int) :: number
    type(MPI_Request) :: request
    request%MPI_VAL = number
    call MPI_Request_free(request)
    number = request%MPI_VAL
end subroutine

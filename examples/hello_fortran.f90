! SPDX-License-Identifier: Apache-2.0
! The smallest twill program in Fortran. Every rank adds its number to a sum, and a gradient is averaged while something
! else is computed. Run it by twillrun -n 4 hello_fortran
program hello_fortran
    use, intrinsic :: iso_fortran_env, only: error_unit, real32, real64
    use twill
    implicit none
    type(twill_comm) :: world
    type(twill_request) :: averaging
    real(real64) :: total(1)
    real(real32), asynchronous :: gradients(1000)
    integer :: rank, ranks, status

    if (twill_init(world) /= twill_ok) stop 1 ! the reason was printed
    rank = twill_comm_rank(world)
    ranks = twill_comm_size(world)

    total = rank + 1
    status = twill_allreduce(world, total, twill_sum)
    if (status == twill_ok) print '(a, i0, a, i0, a, i0, a, f0.0)', 'rank ', rank, ' of ', ranks, &
        ': the sum of 1..', ranks, ' is ', total(1)

    gradients = rank
    if (status == twill_ok) status = twill_allreduce_start(world, gradients, twill_avg, averaging)
    ! ... the next layer's gradients are computed here ...
    if (status == twill_ok) status = twill_wait(averaging)
    if (status /= twill_ok) write (error_unit, '(2a)') 'hello_fortran: ', twill_comm_message(world)

    call twill_finalize(world)
    if (status /= twill_ok .or. nint(total(1)) /= ranks * (ranks + 1) / 2) stop 1
    if (abs(gradients(1000) - (ranks - 1) / 2.0) > 0.0) stop 1
end program

! SPDX-License-Identifier: Apache-2.0
! What the Fortran programs share: rank, size and counts of cases.
module harness
    implicit none
    integer :: me, ranks, cases = 0, wrong = 0
contains
    subroutine check(fine, what)
        logical, intent(in) :: fine
        character(*), intent(in) :: what
        cases = cases + 1
        if (fine) return
        wrong = wrong + 1
        print '(a, i0, 2a)', 'fortran: rank ', me, ': ', what
    end subroutine

    ! 1 + 2 + ... + n
    integer function sum_to(n)
        integer, intent(in) :: n
        sum_to = n * (n + 1) / 2
    end function
end module

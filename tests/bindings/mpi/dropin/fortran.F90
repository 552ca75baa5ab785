! SPDX-License-Identifier: Apache-2.0
!
! Every operation from Fortran, with MPI_IN_PLACE and MPI_BOTTOM, which are no
! constants there but places in memory. Compiled once for each of the three
! interfaces: -DUSE_MPIF (mpif.h), -DUSE_MPI (use mpi), -DUSE_F08 (use mpi_f08).

#if defined(USE_F08)
#define HANDLE(kind) type(kind)
#else
#define HANDLE(kind) integer
#endif

program fortran
#if defined(USE_MPI)
    use mpi
#elif defined(USE_F08)
    use mpi_f08
#endif
    implicit none
#if defined(USE_MPIF)
    include 'mpif.h'
#endif
    integer, parameter :: most = 64, n = 5
    integer :: rank, ranks, ierr, r, i, k
    integer :: in(n * most), out(n * most), counts(most), displs(most)
    integer :: bytes(most), halves(most), want
    double precision :: reals(n * most), sums(n * most), scale
    logical :: flag, flags(2), all_flags(2)
    character(len=16) :: argument
    double precision :: pair(2), least(2)
    complex :: z, zs
    HANDLE(MPI_Comm) :: comm
    HANDLE(MPI_Datatype) :: holes, absolute, types(most), twos(most)
    HANDLE(MPI_Op) :: first
    integer(kind=MPI_ADDRESS_KIND) :: address(1), there(1)
    integer :: grid(4, 6), copy(4, 6)
    external :: keep_left

    ! Data differ from run to run by the number after --seed.
    k = 1
    call get_command_argument(2, argument)
    read (argument, *, iostat=ierr) k
    k = modulo(k, 1000)

    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
    call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierr)
    call must(ierr == MPI_SUCCESS, 'dup')

    call begin('barrier')
    call MPI_Barrier(comm, ierr)
    call must(ierr == MPI_SUCCESS, 'barrier')
    call done('barrier')

    call begin('bcast')
    in = -7
    if (rank == ranks - 1) in(1:n) = [(item(rank, 0, i), i = 1, n)]
    call MPI_Bcast(in, n, MPI_INTEGER, ranks - 1, comm, ierr)
    do i = 1, n
        call must(in(i) == item(ranks - 1, 0, i), 'bcast')
    end do
    call must(in(n + 1) == -7, 'bcast, behind')
    call done('bcast')

    call begin('alltoall')
    do r = 0, ranks - 1
        do i = 1, n
            in(n * r + i) = item(rank, r, i)
        end do
    end do
    out = -7
    call MPI_Alltoall(in, n, MPI_INTEGER, out, n, MPI_INTEGER, comm, ierr)
    call check_all('alltoall')
    call done('alltoall')

    call begin('alltoall_in_place')
    out = -7
    out(1:n * ranks) = in(1:n * ranks)
    call MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INTEGER, out, n, MPI_INTEGER, comm, &
        ierr)
    call check_all('alltoall in place')
    call done('alltoall_in_place')

    call begin('alltoallv')
    ! Blocks from the last to the first, of n - 1 elements.
    do r = 0, ranks - 1
        counts(r + 1) = n - 1
        displs(r + 1) = n * (ranks - 1 - r)
        bytes(r + 1) = 4 * displs(r + 1)
        types(r + 1) = MPI_INTEGER
        do i = 1, n
            in(displs(r + 1) + i) = item(rank, r, i)
        end do
    end do
    out = -7
    call MPI_Alltoallv(in, counts, displs, MPI_INTEGER, out, counts, displs, &
        MPI_INTEGER, comm, ierr)
    call check_displaced('alltoallv')
    call done('alltoallv')

    call begin('alltoallv_in_place')
    out = -7
    do r = 1, ranks
        out(displs(r) + 1:displs(r) + n - 1) = in(displs(r) + 1:displs(r) + n - 1)
    end do
    call MPI_Alltoallv(MPI_IN_PLACE, counts, displs, MPI_INTEGER, out, counts, &
        displs, MPI_INTEGER, comm, ierr)
    call check_displaced('alltoallv in place')
    call done('alltoallv_in_place')

    call begin('alltoallw')
    out = -7
    call MPI_Alltoallw(in, counts, bytes, types, out, counts, bytes, types, &
        comm, ierr)
    call check_displaced('alltoallw')
    out = -7
    do r = 1, ranks
        out(displs(r) + 1:displs(r) + n - 1) = in(displs(r) + 1:displs(r) + n - 1)
    end do
    call MPI_Alltoallw(MPI_IN_PLACE, counts, bytes, types, out, counts, bytes, &
        types, comm, ierr)
    call check_displaced('alltoallw in place')
    ! Other types are received than are sent: two integers each.
    call MPI_Type_contiguous(2, MPI_INTEGER, twos(1), ierr)
    call MPI_Type_commit(twos(1), ierr)
    twos(2:ranks) = twos(1)
    halves = (n - 1) / 2
    out = -7
    call MPI_Alltoallw(in, counts, bytes, types, out, halves, bytes, twos, &
        comm, ierr)
    call check_displaced('alltoallw of twos')
    call MPI_Type_free(twos(1), ierr)
    call done('alltoallw')

    call begin('allgather')
    in(1:n) = [(item(rank, 0, i), i = 1, n)]
    out = -7
    call MPI_Allgather(in, n, MPI_INTEGER, out, n, MPI_INTEGER, comm, ierr)
    call check_gathered('allgather')
    out = -7
    out(n * rank + 1:n * rank + n) = in(1:n)
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_INTEGER, out, n, MPI_INTEGER, comm, &
        ierr)
    call check_gathered('allgather in place')
    call done('allgather')

    call begin('allgatherv')
    out = -7
    do r = 1, ranks
        counts(r) = n
        displs(r) = n * (r - 1)
    end do
    call MPI_Allgatherv(in, n, MPI_INTEGER, out, counts, displs, MPI_INTEGER, &
        comm, ierr)
    call check_gathered('allgatherv')
    out = -7
    out(n * rank + 1:n * rank + n) = in(1:n)
    call MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_INTEGER, out, counts, displs, &
        MPI_INTEGER, comm, ierr)
    call check_gathered('allgatherv in place')
    call done('allgatherv')

    call begin('allreduce')
    do i = 1, n
        reals(i) = item(rank, 0, i)
    end do
    sums = -7
    call MPI_Allreduce(reals, sums, n, MPI_DOUBLE_PRECISION, MPI_SUM, comm, ierr)
    call check_sums('allreduce', 0)
    sums = -7
    sums(1:n) = reals(1:n)
    call MPI_Allreduce(MPI_IN_PLACE, sums, n, MPI_DOUBLE_PRECISION, MPI_SUM, &
        comm, ierr)
    call check_sums('allreduce in place', 0)
    call done('allreduce')

    call begin('allreduce_of_types')
    flag = rank == 0
    flags = [flag, .true.]
    call MPI_Allreduce(flags, all_flags, 2, MPI_LOGICAL, MPI_LAND, comm, ierr)
    call must((all_flags(1) .eqv. ranks == 1) .and. all_flags(2), 'land')
    call MPI_Allreduce(flags, all_flags, 2, MPI_LOGICAL, MPI_LOR, comm, ierr)
    call must(all_flags(1) .and. all_flags(2), 'lor')
    pair = [dble(modulo(rank + k, ranks)), dble(rank)]
    call MPI_Allreduce(pair, least, 1, MPI_2DOUBLE_PRECISION, MPI_MINLOC, comm, &
        ierr)
    call must(least(1) == 0d0, 'minloc')
    call must(modulo(nint(least(2)) + k, ranks) == 0, 'minloc, where')
    z = cmplx(rank, 1)
    call MPI_Allreduce(z, zs, 1, MPI_COMPLEX, MPI_SUM, comm, ierr)
    call must(zs == cmplx(ranks * (ranks - 1) / 2, ranks), 'complex')
    call done('allreduce_of_types')

    call begin('own_op')
    call MPI_Op_create(keep_left, .false., first, ierr)
    in(1:n) = [(item(rank, 0, i), i = 1, n)]
    out = -7
    call MPI_Allreduce(in, out, n, MPI_INTEGER, first, comm, ierr)
    do i = 1, n
        call must(out(i) == item(0, 0, i), 'own operation')
    end do
    call MPI_Op_free(first, ierr)
    call done('own_op')

    call begin('reduce_scatter')
    do r = 0, ranks - 1
        counts(r + 1) = n
        do i = 1, n
            reals(n * r + i) = item(rank, r, i)
        end do
    end do
    sums = -7
    call MPI_Reduce_scatter(reals, sums, counts, MPI_DOUBLE_PRECISION, MPI_SUM, &
        comm, ierr)
    call check_sums('reduce_scatter', rank)
    sums = reals
    call MPI_Reduce_scatter(MPI_IN_PLACE, sums, counts, MPI_DOUBLE_PRECISION, &
        MPI_SUM, comm, ierr)
    sums(n + 1:) = -7
    call check_sums('reduce_scatter in place', rank)
    sums = -7
    call MPI_Reduce_scatter_block(reals, sums, n, MPI_DOUBLE_PRECISION, MPI_SUM, &
        comm, ierr)
    call check_sums('reduce_scatter_block', rank)
    sums = reals
    call MPI_Reduce_scatter_block(MPI_IN_PLACE, sums, n, MPI_DOUBLE_PRECISION, &
        MPI_SUM, comm, ierr)
    sums(n + 1:) = -7
    call check_sums('reduce_scatter_block in place', rank)
    call done('reduce_scatter')

    call begin('bottom')
    ! Every second column of a grid, by its address.
    grid = -7
    if (rank == 0) then
        do i = 1, 6
            do r = 1, 4
                grid(r, i) = item(r, i, k)
            end do
        end do
    end if
    copy = grid
    call MPI_Type_vector(3, 4, 8, MPI_INTEGER, holes, ierr)
    call MPI_Get_address(grid, address(1), ierr)
    call MPI_Type_create_hindexed(1, [1], address, holes, absolute, ierr)
    call MPI_Type_commit(absolute, ierr)
    call MPI_Bcast(MPI_BOTTOM, 1, absolute, 0, comm, ierr)
    call fence(grid)
    do i = 1, 6
        do r = 1, 4
            want = copy(r, i)
            if (modulo(i, 2) == 1) want = item(r, i, k)
            call must(grid(r, i) == want, 'bottom')
        end do
    end do
    call MPI_Type_free(absolute, ierr)
    call MPI_Type_free(holes, ierr)
    ! As both buffers of an exchange.
    do r = 0, ranks - 1
        do i = 1, n
            in(n * r + i) = item(rank, r, i)
        end do
    end do
    out = -7
    call MPI_Get_address(in, address(1), ierr)
    call MPI_Get_address(out, there(1), ierr)
    call MPI_Type_create_hindexed(1, [n], address, MPI_INTEGER, absolute, ierr)
    call MPI_Type_create_hindexed(1, [n], there, MPI_INTEGER, holes, ierr)
    call MPI_Type_commit(absolute, ierr)
    call MPI_Type_commit(holes, ierr)
    call MPI_Alltoall(MPI_BOTTOM, 1, absolute, MPI_BOTTOM, 1, holes, comm, ierr)
    call fence(out)
    call check_all('alltoall at the bottom')
    call MPI_Type_free(absolute, ierr)
    call MPI_Type_free(holes, ierr)
    call done('bottom')

    call begin('errors')
    call MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN, ierr)
    call MPI_Bcast(in, 1, MPI_INTEGER, -17, comm, ierr)
    call must(ierr /= MPI_SUCCESS, 'an error')
    i = ierr
    call MPI_Error_class(i, want, ierr)
    call must(want == MPI_ERR_ROOT, 'its class')
    call MPI_Barrier(comm, ierr)
    call must(ierr == MPI_SUCCESS, 'barrier afterwards')
    call done('errors')

    call begin('tests_after_a_barrier')
    if (ranks > 1) call tests
    call done('tests_after_a_barrier')

#if defined(USE_F08)
    call begin('without_ierror')
    call MPI_Barrier(comm)
    call MPI_Allreduce(MPI_IN_PLACE, k, 1, MPI_INTEGER, MPI_MAX, comm)
    call MPI_Bcast(grid(:, 1), 4, MPI_INTEGER, 0, comm)
    call MPI_Iprobe(rank, 0, comm, flag, MPI_STATUS_IGNORE)
    call must(.not. flag, 'no message')
    call done('without_ierror')
#endif

    call MPI_Comm_free(comm, ierr)
    call MPI_Finalize(ierr)

contains

    ! Rank 0 sends a message before a barrier: the first test afterwards finds it.
    subroutine tests
        HANDLE(MPI_Comm) :: two
        HANDLE(MPI_Request) :: requests(1)
        integer, asynchronous :: got
        integer :: test, ready, at(1)
        call MPI_Comm_split(comm, rank / 2, rank, two, ierr)
        do test = 1, 5
            got = -7
            if (rank == 0) then
                call MPI_Barrier(two, ierr)
                call MPI_Isend(test, 1, MPI_INTEGER, 1, 5, two, requests(1), ierr)
            end if
            if (rank == 1) then
                if (test > 1) call MPI_Irecv(got, 1, MPI_INTEGER, 0, 5, two, &
                    requests(1), ierr)
                call MPI_Barrier(two, ierr)
            end if
            call MPI_Barrier(two, ierr)
            if (rank == 1) then
                flag = .false.
                select case (test)
                case (1)
                    call MPI_Iprobe(0, 5, two, flag, MPI_STATUS_IGNORE, ierr)
                    call MPI_Irecv(got, 1, MPI_INTEGER, 0, 5, two, requests(1), &
                        ierr)
                case (2)
                    call MPI_Test(requests(1), flag, MPI_STATUS_IGNORE, ierr)
                case (3)
                    call MPI_Testall(1, requests, flag, MPI_STATUSES_IGNORE, ierr)
                case (4)
                    call MPI_Testany(1, requests, at(1), flag, &
                        MPI_STATUS_IGNORE, ierr)
                case (5)
                    call MPI_Testsome(1, requests, ready, at, &
                        MPI_STATUSES_IGNORE, ierr)
                    flag = ready == 1
                end select
                call must(ierr == MPI_SUCCESS, 'test')
                call must(flag, 'found by the first test')
            end if
            if (rank < 2) call MPI_Waitall(1, requests, MPI_STATUSES_IGNORE, ierr)
            call must(rank /= 1 .or. got == test, 'message')
        end do
        call MPI_Comm_free(two, ierr)
    end subroutine

    integer function item(from, to, number)
        integer, intent(in) :: from, to, number
        item = 100000 * (from + 1) + 1000 * to + 10 * number + modulo(k, 10)
    end function

    subroutine begin(name)
        character(len=*), intent(in) :: name
        if (rank == 0) print '(2a)', 'case ', name
    end subroutine

    subroutine done(name)
        character(len=*), intent(in) :: name
        if (rank == 0) print '(2a)', 'done ', name
        flush (6)
    end subroutine

    subroutine must(right, what)
        logical, intent(in) :: right
        character(len=*), intent(in) :: what
        integer :: error
        if (right) return
        write (0, '(a,i0,a,i0,2a)') 'rank ', rank, ' of ', ranks, ', wrong: ', &
            what
        flush (0)
        call MPI_Abort(MPI_COMM_WORLD, 1, error)
    end subroutine

    ! out: n elements from each rank.
    subroutine check_all(what)
        character(len=*), intent(in) :: what
        integer :: a, b
        call must(ierr == MPI_SUCCESS, what)
        do a = 0, ranks - 1
            do b = 1, n
                call must(out(n * a + b) == item(a, rank, b), what)
            end do
        end do
        call must(out(n * ranks + 1) == -7, what // ', behind')
    end subroutine

    subroutine check_displaced(what)
        character(len=*), intent(in) :: what
        integer :: a, b
        call must(ierr == MPI_SUCCESS, what)
        do a = 0, ranks - 1
            do b = 1, n - 1
                call must(out(displs(a + 1) + b) == item(a, rank, b), what)
            end do
            call must(out(displs(a + 1) + n) == -7, what // ', gap')
        end do
    end subroutine

    subroutine check_gathered(what)
        character(len=*), intent(in) :: what
        integer :: a, b
        call must(ierr == MPI_SUCCESS, what)
        do a = 0, ranks - 1
            do b = 1, n
                call must(out(n * a + b) == item(a, 0, b), what)
            end do
        end do
        call must(out(n * ranks + 1) == -7, what // ', behind')
    end subroutine

    ! sums: of all ranks' item(rank, to, i).
    subroutine check_sums(what, to)
        character(len=*), intent(in) :: what
        integer, intent(in) :: to
        integer :: a, b
        call must(ierr == MPI_SUCCESS, what)
        do b = 1, n
            scale = 0
            do a = 0, ranks - 1
                scale = scale + item(a, to, b)
            end do
            call must(sums(b) == scale, what)
        end do
        call must(sums(n + 1) == -7, what // ', behind')
    end subroutine

    ! What MPI wrote by its address, the compiler cannot know of.
    subroutine fence(memory)
        integer, intent(inout) :: memory(*)
        if (k < -1) memory(1) = k
    end subroutine

end program

subroutine keep_left(left, right, length, datatype)
#if defined(USE_F08)
    use mpi_f08, only: MPI_Datatype
#endif
    implicit none
    integer :: length
    integer :: left(length), right(length)
    HANDLE(MPI_Datatype) :: datatype
    right = left
end subroutine

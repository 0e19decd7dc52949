#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# mpi_test.sh RANKS PROGRAM [ARGUMENT...]: runs a test program on ranks of this machine.
#
# Open MPI keeps sockets under TMPDIR, whose paths must be short. The job is ended after MPI_TEST_LIMIT
# seconds (120), with everything it started.
set -u
ranks=$1
shift
scratch=$(mktemp -d /tmp/mpi.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
export TMPDIR=$scratch
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_mpi_yield_when_idle=1
# Open MPI's mpirun misses a rank's abort now and then where memory is filled for tests (tools/mutate).
# The ranks' memory is.
filled=${MALLOC_PERTURB_:-}
unset MALLOC_PERTURB_
timeout --kill-after=5 "${MPI_TEST_LIMIT:-120}" \
  mpirun --oversubscribe --bind-to none -n "$ranks" ${filled:+-x "MALLOC_PERTURB_=$filled"} "$@"

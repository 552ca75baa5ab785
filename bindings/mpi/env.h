// SPDX-License-Identifier: Apache-2.0
/*
 * Names of the drop-in's environment variables; env.c says what they mean.
 */
#ifndef SHUNTI_MPI_ENV_H
#define SHUNTI_MPI_ENV_H

#define SHUNTI_MPI_VARIABLE "SHUNT_MPI"
#define SHUNTI_MPI_STATS_VARIABLE "SHUNT_MPI_STATS"

#endif

// SPDX-License-Identifier: Apache-2.0
/* The progress thread, which advances operations while their caller
 * computes. */
#ifndef SHUNTI_PROGRESS_H
#define SHUNTI_PROGRESS_H

#include <shunt/status.h>

struct shunt_comm;

enum shunt_status shunti_progress_thread_start(struct shunt_comm *comm);
void shunti_progress_thread_stop(struct shunt_comm *comm);

#endif

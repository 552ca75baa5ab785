// SPDX-License-Identifier: Apache-2.0
/*
 * Small calls trust that all ranks' arguments agree, and give their operation a
 * digest (src/op/request.h). Then every rank finds in it whether they do. If not, and
 * all have made the same call (above.disagreed, not above.strayed), all may gather
 * checks of arguments behind it, to learn what is wrong.
 */
#ifndef SHUNTI_DIGEST_H
#define SHUNTI_DIGEST_H

#include <stdint.h>

struct shunt_request;

/* Another rank, whose call has this signature, disagrees with a request, or has
 * refused. */
void shunti_digest_disagrees(struct shunt_request *request, uint32_t signature);

#endif

// SPDX-License-Identifier: Apache-2.0
/*
 * Digests of arguments. A small call trusts that all ranks' arguments agree,
 * and its operation has a digest of them (src/op/request.h). If the digests
 * differ, every rank notices that in this operation. If all ranks nevertheless
 * made the same call (coll_state.h: disagreed, not strayed), they may then
 * gather checks of arguments (argument_check.h) to learn what is wrong.
 */
#ifndef SHUNTI_DIGEST_H
#define SHUNTI_DIGEST_H

#include <stdint.h>

struct shunt_request;

/* Record that another rank disagrees with `request`, or has refused.
 * `signature` is that of the other rank's call. Does nothing if the request has
 * no digest. */
void shunti_digest_disagrees(struct shunt_request *request, uint32_t signature);

#endif

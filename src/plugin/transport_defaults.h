// SPDX-License-Identifier: Apache-2.0
/* The operations that a transport plugin may leave out. */
#ifndef SHUNTI_TRANSPORT_DEFAULTS_H
#define SHUNTI_TRANSPORT_DEFAULTS_H

#include <shunt/transport.h>

/* Replace each optional operation that is NULL by its default. */
void shunti_transport_complete(struct shunt_transport *transport);

#endif

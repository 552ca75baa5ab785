// SPDX-License-Identifier: Apache-2.0
/*
 * What is inside a struct shunt_id: where to meet, and the secret.
 *
 *     offset  bytes
 *          0      8  "shuntid" and a zero
 *          8      1  layout version, 2
 *          9      1  kind: enum shunti_id_kind
 *         10      1  flags: enum shunti_id_flag
 *         11      1  other kind: where else to look, or 0
 *         12      2  port, big endian (TCP)
 *         14      2  0
 *         16     16  address, network order (IPv4: the first 4)
 *         32      4  IPv6 scope, big endian
 *         36     12  0
 *         48     32  secret
 *         80     16  tag
 *         96     16  0
 *        112     16  the first half of the SHA-256 of all before
 *
 * The tag says which birth it is, and is no secret: a rank recognizes by it that
 * another birth's ranks meet where it came to. A unix socket is named after it.
 *
 * The digest is there to recognise a truncated or mistyped id, not to
 * authenticate it.
 */
#ifndef SHUNTI_ID_H
#define SHUNTI_ID_H

#include <stdbool.h>
#include <stdint.h>

#include <sys/socket.h>

#include <shunt/comm.h>

enum shunti_id_kind {
    SHUNTI_ID_IPV4 = 4,
    SHUNTI_ID_IPV6 = 6,
    /* An abstract unix socket, named by the tag: one host, one user. */
    SHUNTI_ID_LOCAL = 1,
};

enum shunti_id_flag {
    /* The root may not be up yet: keep trying. (Ids from the environment; one
     * that was handed on is served already.) */
    SHUNTI_ID_RETRY = 1u << 0,
    /* The root listens on all addresses: names may resolve differently from
     * host to host. */
    SHUNTI_ID_ANY = 1u << 1,
    /* The secret is made of what anybody on this host can read: the kernel's
     * word that a process is of our user counts as well, where it has one. */
    SHUNTI_ID_PUBLIC = 1u << 2,
};

#define SHUNTI_SECRET_BYTES 32
#define SHUNTI_TAG_BYTES 16

struct shunti_id_parts {
    enum shunti_id_kind kind;
    /* Where ranks meet that know less or more of the job: 0, or another kind;
     * one of the two is SHUNTI_ID_LOCAL. Never listened at. */
    enum shunti_id_kind other;
    unsigned flags;
    uint16_t port;
    unsigned char address[16];
    uint32_t scope;
    unsigned char secret[SHUNTI_SECRET_BYTES];
    unsigned char tag[SHUNTI_TAG_BYTES];
};

void shunti_id_pack(const struct shunti_id_parts *parts, struct shunt_id *id);
/* SHUNT_ERR_INVALID with a text for what is no id. */
enum shunt_status shunti_id_unpack(const struct shunt_id *id,
                                   struct shunti_id_parts *parts);

/* The address to connect to, or (listening) to bind. */
void shunti_id_sockaddr(const struct shunti_id_parts *parts, bool listening,
                        struct sockaddr_storage *addr, socklen_t *len);
/* Takes family, address, port and scope over; false: a family we lack. */
bool shunti_id_set_sockaddr(struct shunti_id_parts *parts,
                            const struct sockaddr_storage *addr);
/* "10.0.0.1:4321", "[::1]:4321" or "unix:@shunt-0a1b2c3d", for messages. */
void shunti_id_describe(const struct shunti_id_parts *parts, char *text,
                        size_t len);

/*
 * The address that ids made here advertise: SHUNT_HOST (an address, host name
 * or interface) if set; else the first routable IPv4 address of an interface
 * that is up, else a routable IPv6 one, else 127.0.0.1. Port SHUNT_PORT or 0.
 *
 * later  the id is of a communicator that is made from another one: SHUNT_HOST
 *        may then be rank 0's address, and this another host, where it does not
 *        count.
 */
enum shunt_status shunti_id_choose_address(struct shunti_id_parts *parts,
                                           bool later);
/* Resolve a host name or address for TCP. */
enum shunt_status shunti_id_resolve(const char *host, uint16_t port,
                                    struct shunti_id_parts *parts);

#endif

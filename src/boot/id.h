// SPDX-License-Identifier: Apache-2.0
/*
 * The contents of a struct shunt_id: the addresses of the root, and the secret.
 *
 *     offset  bytes
 *          0      8  "shuntid" and a zero
 *          8      1  layout version, 3
 *          9      1  kind: enum shunti_id_kind
 *         10      1  flags: enum shunti_id_flag
 *         11      1  other kind: of a second address to try, or 0
 *         12      2  port, big endian (TCP)
 *         14      2  0
 *         16      4  IPv6 scope of the first address, big endian
 *         20     32  secret
 *         52     16  tag
 *         68     44  addresses, network order: the first (4 bytes, or 16 of
 *                    IPv6), then a byte of its kind and the address for each
 *                    further one, then 0; with SHUNTI_ID_START 28 bytes
 *         96     16  with SHUNTI_ID_START: the start
 *        112     16  the first half of the SHA-256 of bytes 0 to 111
 *
 * The tag identifies the communicator that is made, and is not secret. With it
 * a rank notices that the root at an address serves another communicator. A
 * unix socket is named after the tag.
 *
 * The start is random. Only rank 0 of a launcher's job has it, because rank 0
 * made it for the root that it runs. So the root can distinguish this rank 0
 * from that of another job with the same name.
 *
 * The digest detects a truncated or mistyped id. It does not authenticate.
 */
#ifndef SHUNTI_ID_H
#define SHUNTI_ID_H

#include <stdbool.h>
#include <stdint.h>

#include <sys/socket.h>

#include <shunt/comm.h>

#include "src/boot/auth.h"

enum shunti_id_kind {
    SHUNTI_ID_IPV4 = 4,
    SHUNTI_ID_IPV6 = 6,
    /* An abstract unix socket, named after the tag; for one host and one
     * user. */
    SHUNTI_ID_LOCAL = 1,
};

enum shunti_id_flag {
    /* Retry, because the root may not be up yet. (For ids from the environment.
     * The root of an id of shunt_id_create() runs already.) */
    SHUNTI_ID_RETRY = 1u << 0,
    /* The root listens on all addresses, as names may resolve differently on
     * different hosts. */
    SHUNTI_ID_ANY = 1u << 1,
    /* The secret is derived from data that any process of this host can read.
     * So also check, if the kernel can say, that a process belongs to this
     * user. */
    SHUNTI_ID_PUBLIC = 1u << 2,
    /* This process runs the root, and the id has its start. */
    SHUNTI_ID_START = 1u << 3,
};

/* A further address at which the root listens, at the same port. */
struct shunti_id_place {
    enum shunti_id_kind kind; /* SHUNTI_ID_IPV4 or SHUNTI_ID_IPV6 */
    unsigned char address[16];
};

#define SHUNTI_ID_MORE 8 /* an id has room for this many IPv4 addresses */
#define SHUNTI_SECRET_BYTES 32
#define SHUNTI_TAG_BYTES 16

struct shunti_id_parts {
    enum shunti_id_kind kind;
    /* The kind of a second address to try, or 0. The root listens there if the
     * launcher gave rank 0 other facts about the job than this rank. For rank 0
     * itself, the root never listens there. One of the two kinds is
     * SHUNTI_ID_LOCAL. */
    enum shunti_id_kind other;
    unsigned flags;
    uint16_t port;
    unsigned char address[16];
    uint32_t scope;
    unsigned char secret[SHUNTI_SECRET_BYTES];
    unsigned char tag[SHUNTI_TAG_BYTES];
    unsigned char start[SHUNTI_START_BYTES];
    /* Further addresses, because no host knows which of its addresses another
     * host reaches. An id of shunt_id_create() has several. */
    struct shunti_id_place more[SHUNTI_ID_MORE];
    int nmore;
};

void shunti_id_pack(const struct shunti_id_parts *parts, struct shunt_id *id);
/* Unpack an id. SHUNT_ERR_INVALID, with a text, if it is not a valid id. */
enum shunt_status shunti_id_unpack(const struct shunt_id *id,
                                   struct shunti_id_parts *parts);

/* The address to connect to, or to bind (`listening`). */
void shunti_id_sockaddr(const struct shunti_id_parts *parts, bool listening,
                        struct sockaddr_storage *addr, socklen_t *len);
/* Copy family, address, port and scope. False: the family is not supported. */
bool shunti_id_set_sockaddr(struct shunti_id_parts *parts,
                            const struct sockaddr_storage *addr);
/* Print the address for messages: "10.0.0.1:4321", "[::1]:4321" or
 * "unix:@shunt-0a1b2c3d". */
void shunti_id_describe(const struct shunti_id_parts *parts, char *text,
                        size_t len);

/* Print all addresses: "10.0.0.1:4321, 10.1.0.1:4321". */
void shunti_id_describe_all(const struct shunti_id_parts *parts, char *text,
                            size_t len);
/* Set *one to `parts` with only its i-th address. False: it has fewer. */
bool shunti_id_nth(const struct shunti_id_parts *parts, int i,
                   struct shunti_id_parts *one);

/*
 * Choose the addresses that ids made here advertise. SHUNT_HOST (an address,
 * host name or interface) if set; otherwise every routable address of the
 * interfaces that are up, best first (IPv4 before IPv6); otherwise 127.0.0.1.
 * The port is SHUNT_PORT or 0. If there are several addresses, sets
 * SHUNTI_ID_ANY.
 *
 * later  the id is for a communicator made from another one. SHUNT_HOST may
 *        then be an address of rank 0's host, and is ignored unless it is one
 *        of this host.
 */
enum shunt_status shunti_id_choose_address(struct shunti_id_parts *parts,
                                           bool later);
/* Get the addresses of interface `name` of this host. False: it has none, or
 * does not exist. */
bool shunti_id_interface(const char *name, struct shunti_id_parts *parts);
/*
 * The order in which this host tries the addresses of `parts`, as arguments of
 * shunti_id_nth(). Addresses in a network of this host are first. Addresses
 * that this host has itself are last, since they most likely belong to a bridge
 * which every host has. Returns the number of addresses.
 */
int shunti_id_order(const struct shunti_id_parts *parts,
                    int order[1 + SHUNTI_ID_MORE]);
/* Is the first address one of this host? */
bool shunti_id_is_of_this_host(const struct shunti_id_parts *parts);
/* The spare port. If rank 0 of a launcher's job cannot listen at the port of
 * the id, it sends that error to the others here, at the same addresses. */
uint16_t shunti_id_spare_port(const struct shunti_id_parts *parts);
/* Resolve a host name or address for TCP: "a", "10.0.0.1", "::1", "[::1]",
 * "fe80::1%eth0". */
enum shunt_status shunti_id_resolve(const char *host, uint16_t port,
                                    struct shunti_id_parts *parts);

#endif

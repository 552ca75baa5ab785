// SPDX-License-Identifier: Apache-2.0
#include "tests/collectives/table.h"

static enum shunt_status barrier(const struct collective_call *c,
                                 struct shunt_request **q)
{
    return q ? shunt_barrier_start(c->comm, q) : shunt_barrier(c->comm);
}

static enum shunt_status broadcast(const struct collective_call *c,
                                   struct shunt_request **q)
{
    return q ? shunt_broadcast_start(c->comm, c->recv, c->count, c->dtype,
                                     c->root, q)
             : shunt_broadcast(c->comm, c->recv, c->count, c->dtype, c->root);
}

static enum shunt_status allgather(const struct collective_call *c,
                                   struct shunt_request **q)
{
    return q ? shunt_allgather_start(c->comm, c->send, c->recv, c->count,
                                     c->dtype, q)
             : shunt_allgather(c->comm, c->send, c->recv, c->count, c->dtype);
}

static enum shunt_status allgatherv(const struct collective_call *c,
                                    struct shunt_request **q)
{
    return q ? shunt_allgatherv_start(c->comm, c->send, c->count, c->recv,
                                      c->recv_counts, c->recv_displs, c->dtype,
                                      q)
             : shunt_allgatherv(c->comm, c->send, c->count, c->recv,
                                c->recv_counts, c->recv_displs, c->dtype);
}

static enum shunt_status reduce_scatter(const struct collective_call *c,
                                        struct shunt_request **q)
{
    return q ? shunt_reduce_scatter_start(c->comm, c->send, c->recv, c->count,
                                          c->dtype, c->op, q)
             : shunt_reduce_scatter(c->comm, c->send, c->recv, c->count,
                                    c->dtype, c->op);
}

static enum shunt_status reduce_scatterv(const struct collective_call *c,
                                         struct shunt_request **q)
{
    return q ? shunt_reduce_scatterv_start(c->comm, c->send, c->recv,
                                           c->send_counts, c->dtype, c->op, q)
             : shunt_reduce_scatterv(c->comm, c->send, c->recv, c->send_counts,
                                     c->dtype, c->op);
}

static enum shunt_status allreduce(const struct collective_call *c,
                                   struct shunt_request **q)
{
    return q ? shunt_allreduce_start(c->comm, c->send, c->recv, c->count,
                                     c->dtype, c->op, q)
             : shunt_allreduce(c->comm, c->send, c->recv, c->count, c->dtype,
                               c->op);
}

static enum shunt_status alltoall(const struct collective_call *c,
                                  struct shunt_request **q)
{
    return q ? shunt_alltoall_start(c->comm, c->send, c->recv, c->count,
                                    c->dtype, q)
             : shunt_alltoall(c->comm, c->send, c->recv, c->count, c->dtype);
}

static enum shunt_status alltoallv(const struct collective_call *c,
                                   struct shunt_request **q)
{
    return q ? shunt_alltoallv_start(c->comm, c->send, c->send_counts,
                                     c->send_displs, c->recv, c->recv_counts,
                                     c->recv_displs, c->dtype, q)
             : shunt_alltoallv(c->comm, c->send, c->send_counts, c->send_displs,
                               c->recv, c->recv_counts, c->recv_displs,
                               c->dtype);
}

const struct collective collectives[COLLECTIVES] = {
    [BARRIER] = {"barrier", .call = barrier},
    [BROADCAST] = {"broadcast", .call = broadcast},
    [ALLGATHER] = {"allgather", .from_each = true, .call = allgather},
    [ALLGATHERV] = {"allgatherv", .from_each = true, .varies = true,
                    .call = allgatherv},
    [REDUCE_SCATTER] = {"reduce_scatter", .to_each = true, .reduces = true,
                        .call = reduce_scatter},
    [REDUCE_SCATTERV] = {"reduce_scatterv", .to_each = true, .varies = true,
                         .reduces = true, .call = reduce_scatterv},
    [ALLREDUCE] = {"allreduce", .reduces = true, .call = allreduce},
    [ALLTOALL] = {"alltoall", .to_each = true, .from_each = true,
                  .call = alltoall},
    [ALLTOALLV] = {"alltoallv", .to_each = true, .from_each = true,
                   .varies = true, .call = alltoallv},
};

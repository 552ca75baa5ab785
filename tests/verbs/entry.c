// SPDX-License-Identifier: Apache-2.0
/* Devices, ports, protection domains and memory: functions that libibverbs
 * exports. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/verbs/nic.h"
#include "tests/verbs/pages.h"

#undef ibv_reg_mr
#undef ibv_query_port

/* --- devices ----------------------------------------------------------------- */

struct ibv_device **ibv_get_device_list(int *count)
{
    const int n = harm()->devices;
    struct ibv_device **list = calloc((size_t)n + 1, sizeof(*list));

    for (int i = 0; list && i < n; i++) {
        list[i] = calloc(1, sizeof(**list));
        if (!list[i])
            abort();
        /* the node type of a NIC that has SRD (efa) */
        list[i]->node_type =
            harm()->unordered ? IBV_NODE_UNSPECIFIED : IBV_NODE_CA;
        list[i]->transport_type =
            harm()->unordered ? IBV_TRANSPORT_UNSPECIFIED : IBV_TRANSPORT_IB;
        snprintf(list[i]->name, sizeof(list[i]->name), "mean%d", i);
        snprintf(list[i]->dev_name, sizeof(list[i]->dev_name), "uverbs%d", i);
    }
    if (count)
        *count = list ? n : 0;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
    return (uint64_t)(device->name[4] - '0' + 1) << 56;
}

uint16_t nic_new_lid(void)
{
    static atomic_uint count;
    const unsigned n = (unsigned)getpid() * 64 + atomic_fetch_add(&count, 1);

    return (uint16_t)(n % 0xbfff + 1);
}

uint8_t nic_subnet(const struct nic *nic)
{
    const int own = harm()->subnets ? nic->ibv.device->name[4] - '0' : 0;

    return (uint8_t)(own + nic->moved);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct nic *nic = calloc(1, sizeof(*nic));
    struct ibv_device *own = malloc(sizeof(*own));
    int fds[2];

    if (!nic || !own || pipe2(fds, O_CLOEXEC)) {
        free(nic);
        free(own);
        return NULL;
    }
    *own = *device;
    nic->lid = nic->guid = nic_new_lid();
    nic->ibv.device = own;
    nic->ibv.ops.poll_cq = nic_poll_cq;
    nic->ibv.ops.req_notify_cq = nic_req_notify_cq;
    nic->ibv.ops.post_send = nic_post_send;
    nic->ibv.ops.post_srq_recv = nic_post_srq_recv;
    nic->ibv.cmd_fd = -1;
    nic->ibv.async_fd = fds[0];
    nic->ibv.num_comp_vectors = 1;
    nic->async_write = fds[1];
    fcntl(fds[1], F_SETFL, O_NONBLOCK);
    pthread_mutex_init(&nic->lock, NULL);
    pthread_mutex_init(&nic->ibv.mutex, NULL);
    nic->random = harm()->seed * 1000003 + (uint64_t)getpid();
    /* Let peers read this process's memory, which they need to get payloads.
     * Some kernels require this call. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    if (!nic_start(nic))
        abort();
    nic_list(nic);
    return &nic->ibv;
}

int ibv_close_device(struct ibv_context *context)
{
    struct nic *nic = nic_of(context);

    if (nic->qps || nic->pds) {
        harm_report("a device is closed while something of it is left");
        return EBUSY;
    }
    nic_unlist(nic);
    nic_stop(nic);
    close(nic->epoll);
    close(nic->kick);
    close(nic->async_write);
    close(context->async_fd);
    free(context->device);
    free(nic->mrs);
    free(nic);
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    (void)context;
    memset(attr, 0, sizeof(*attr));
    strcpy(attr->fw_ver, "0");
    attr->max_mr_size = harm()->mr && !harm()->modest ? harm()->mr : UINT64_MAX;
    attr->max_qp = 65536;
    attr->max_qp_wr = 16384;
    attr->max_sge = NIC_SGES;
    attr->max_cq = 65536;
    attr->max_cqe = harm()->depth;
    attr->max_mr = 1 << 20;
    attr->max_pd = 1024;
    attr->max_qp_rd_atom = 16;
    attr->max_srq = 1024;
    attr->max_srq_wr = harm()->depth;
    attr->max_srq_sge = NIC_SGES;
    attr->max_pkeys = 1;
    attr->phys_port_cnt = 1;
    return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port,
                   struct _compat_ibv_port_attr *compat)
{
    struct ibv_port_attr *attr = (struct ibv_port_attr *)(void *)compat;

    if (port != 1)
        return EINVAL;
    if (nic_of(context)->fatal)
        return EIO;
    attr->state = nic_of(context)->down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    attr->max_mtu = IBV_MTU_4096;
    attr->active_mtu = IBV_MTU_4096;
    attr->gid_tbl_len = harm()->infiniband ? 1 : 3;
    attr->max_msg_sz = 8 << 20;
    attr->pkey_tbl_len = 1;
    attr->active_width = 1;
    attr->active_speed = 1;
    attr->phys_state = 5;
    attr->link_layer = IBV_LINK_LAYER_ETHERNET;
    if (harm()->infiniband) {
        attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
        attr->lid = nic_of(context)->lid;
        attr->flags = harm()->grh ? IBV_QPF_GRH_REQUIRED : 0;
    }
    return 0;
}

/* Set a GID of InfiniBand: the subnet's prefix and a GUID. */
static int query_ib_gid(const struct nic *nic, union ibv_gid *gid)
{
    memset(gid, 0, sizeof(*gid));
    gid->raw[0] = 0xfe;
    gid->raw[1] = 0x80;
    if (nic) {
        gid->raw[7] = nic_subnet(nic);
        gid->raw[14] = (uint8_t)(nic->guid >> 8);
        gid->raw[15] = (uint8_t)nic->guid;
    }
    return 0;
}

/* The GIDs are a link-local one (0), and one of IPv4 for each version of RoCE
 * (1 and 2). */
int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
                  union ibv_gid *gid)
{
    const int device = context ? context->device->name[4] - '0' : 0;

    if (port != 1 || index < 0 || index > 2) {
        errno = EINVAL;
        return -1;
    }
    if (harm()->infiniband && index == 0)
        return query_ib_gid(context ? nic_of(context) : NULL, gid);
    if (harm()->infiniband) {
        errno = EINVAL;
        return -1;
    }
    memset(gid, 0, sizeof(*gid));
    if (index == 0) {
        gid->raw[0] = 0xfe;
        gid->raw[1] = 0x80;
    } else {
        gid->raw[10] = gid->raw[11] = 0xff;
        gid->raw[12] = 10;
        gid->raw[13] = (uint8_t)(99 + harm()->network);
        gid->raw[14] = context ? (uint8_t)nic_of(context)->gids : 0;
    }
    gid->raw[15] = (uint8_t)(device + 1);
    return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port,
                      uint32_t index, struct ibv_gid_entry *entry,
                      uint32_t flags, size_t size)
{
    (void)flags;
    if (size < sizeof(*entry) || index > 2)
        return EINVAL;
    memset(entry, 0, size);
    entry->gid_index = index;
    entry->port_num = port;
    entry->gid_type = harm()->infiniband ? IBV_GID_TYPE_IB
                      : index == 1       ? IBV_GID_TYPE_ROCE_V1
                                         : IBV_GID_TYPE_ROCE_V2;
    return ibv_query_gid(context, (uint8_t)port, (int)index, &entry->gid)
               ? errno
               : 0;
}

int ibv_fork_init(void)
{
    return 0;
}

/* --- asynchronous events ------------------------------------------------------ */

/* Does the object of the event still exist? Events of a queue pair end with the
 * queue pair. */
static bool is_current(struct nic *nic, const struct nic_event *event)
{
    const struct nic_qp *qp;

    pthread_mutex_lock(&nic->lock);
    for (qp = nic->qps; qp && &qp->ibv != event->event.element.qp;)
        qp = qp->next;
    pthread_mutex_unlock(&nic->lock);
    return !event->qp_num || (qp && qp->ibv.qp_num == event->qp_num);
}

int ibv_get_async_event(struct ibv_context *context,
                        struct ibv_async_event *event)
{
    struct nic_event found;

    do {
        if (read(context->async_fd, &found, sizeof(found)) !=
            (ssize_t)sizeof(found))
            return -1;
    } while (!is_current(nic_of(context), &found));
    *event = found.event;
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
    (void)event;
}

/* --- protection domains and memory -------------------------------------------- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    struct nic_pd *pd = calloc(1, sizeof(*pd));

    if (!pd)
        return NULL;
    pd->ibv.context = context;
    nic_of(context)->pds++;
    return &pd->ibv;
}

int ibv_dealloc_pd(struct ibv_pd *ibv)
{
    struct nic_pd *pd = (struct nic_pd *)(void *)ibv;

    if (pd->users) {
        harm_report("a protection domain is freed while %d things are in it",
                    pd->users);
        return EBUSY;
    }
    nic_of(ibv->context)->pds--;
    free(pd);
    return 0;
}

/* Returns a key, which has the slot and a number that differs each time. */
static uint32_t key_of(struct nic *nic, size_t slot)
{
    return (uint32_t)slot << 12 | (++nic->generation & 0xfff);
}

struct nic_mr *nic_mr_find(struct nic *nic, uint32_t key, uint64_t address,
                           uint64_t bytes, int access)
{
    struct nic_mr *mr = key >> 12 < nic->mr_slots ? nic->mrs[key >> 12] : NULL;
    uint64_t offset;

    if (!mr || mr->ibv.lkey != key || (mr->access & access) != access)
        return NULL;
    offset = address - (uint64_t)(uintptr_t)mr->ibv.addr;
    return offset <= mr->ibv.length && bytes <= mr->ibv.length - offset ? mr
                                                                        : NULL;
}

static bool find_slot(struct nic *nic, size_t *slot)
{
    size_t n = nic->mr_slots ? 2 * nic->mr_slots : 64;
    struct nic_mr **grown;

    for (*slot = 1; *slot < nic->mr_slots; ++*slot)
        if (!nic->mrs[*slot])
            return true;
    grown = realloc(nic->mrs, n * sizeof(*grown));
    if (!grown)
        return false;
    memset(grown + nic->mr_slots, 0, (n - nic->mr_slots) * sizeof(*grown));
    *slot = nic->mr_slots ? nic->mr_slots : 1;
    nic->mrs = grown;
    nic->mr_slots = n;
    return true;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t bytes,
                          int access)
{
    struct nic_mr *mr = calloc(1, sizeof(*mr));
    struct nic *nic = nic_of(pd->context);
    const int64_t start = harm()->reg ? nic_now() : 0;
    size_t slot;

    while (harm()->reg && nic_now() < start + harm()->reg)
        ;
    if (!mr || !addr || !bytes || (harm()->mr && bytes > harm()->mr) ||
        ((access & IBV_ACCESS_REMOTE_WRITE) &&
         !(access & IBV_ACCESS_LOCAL_WRITE))) {
        free(mr);
        errno = EINVAL;
        return NULL;
    }
    if (harm_call_fails()) {
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    if (harm()->pages) {
        mr->pages = nic_pages_pin(addr, bytes);
        if (!mr->pages) {
            free(mr);
            return NULL;
        }
    }
    pthread_mutex_lock(&nic->lock);
    if (nic->fatal) {
        pthread_mutex_unlock(&nic->lock);
        free(mr);
        errno = EIO;
        return NULL;
    }
    if ((harm()->pinned && bytes > harm()->pinned - nic->pinned) ||
        !find_slot(nic, &slot)) {
        pthread_mutex_unlock(&nic->lock);
        nic_pages_unpin(mr->pages);
        free(mr);
        errno = ENOMEM;
        return NULL;
    }
    nic->pinned += bytes;
    mr->ibv.context = pd->context;
    mr->ibv.pd = pd;
    mr->ibv.addr = addr;
    mr->ibv.length = bytes;
    mr->ibv.lkey = mr->ibv.rkey = key_of(nic, slot);
    mr->access = access;
    nic->mrs[slot] = mr;
    ((struct nic_pd *)(void *)pd)->users++;
    pthread_mutex_unlock(&nic->lock);
    return &mr->ibv;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t bytes,
                                uint64_t iova, unsigned int access)
{
    if (iova != (uint64_t)(uintptr_t)addr) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    return ibv_reg_mr(pd, addr, bytes,
                      (int)(access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE));
}

/* If the NIC is just placing data in this memory, the lock makes this call
 * wait. */
int ibv_dereg_mr(struct ibv_mr *ibv)
{
    struct nic *nic = nic_of(ibv->context);

    pthread_mutex_lock(&nic->lock);
    nic->mrs[ibv->lkey >> 12] = NULL;
    nic->pinned -= ibv->length;
    ((struct nic_pd *)(void *)ibv->pd)->users--;
    pthread_mutex_unlock(&nic->lock);
    nic_pages_unpin(((struct nic_mr *)(void *)ibv)->pages);
    free((struct nic_mr *)(void *)ibv);
    return 0;
}

/* --- words -------------------------------------------------------------------- */

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
    static const char *const words[] = {
        [IBV_WC_SUCCESS] = "success",
        [IBV_WC_LOC_PROT_ERR] = "local protection error",
        [IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
        [IBV_WC_REM_ACCESS_ERR] = "remote access error",
        [IBV_WC_REM_OP_ERR] = "remote operation error",
        [IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
        [IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
    };

    return (size_t)status < sizeof(words) / sizeof(words[0]) && words[status]
               ? words[status]
               : "unknown";
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
    (void)event;
    return "event";
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
    return state == IBV_PORT_ACTIVE ? "active" : "down";
}

// SPDX-License-Identifier: Apache-2.0
/*
 * The part of the CUDA driver API that this engine uses. It is declared here
 * from its public documentation (docs.nvidia.com/cuda/cuda-driver-api), and
 * loaded at run time. So neither building nor installing Shunt needs CUDA.
 *
 * A context, stream or event is an opaque pointer; a device pointer is a number
 * of 64 bits. Every function returns a CUresult.
 */
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { /* CUresult */
       CUDA_OK = 0,
       CUDA_INVALID_VALUE = 1,
       CUDA_OUT_OF_MEMORY = 2,
       CUDA_NO_DEVICE = 100,
       CUDA_PEER_ACCESS_UNSUPPORTED = 217,
       CUDA_NOT_READY = 600,
       CUDA_TOO_MANY_PEERS = 711,
       CUDA_NOT_SUPPORTED = 801,
};

enum { /* CUdevice_attribute */
       CUDA_ATTRIBUTE_MAX_PITCH = 11,
       CUDA_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
       /* for cuStreamWriteValue64_v2(), which exists since CUDA 11.7 */
       CUDA_ATTRIBUTE_STREAM_MEM_OPS_64 = 122,
};

enum { /* CUpointer_attribute */
       CUDA_POINTER_MEMORY_TYPE = 2,
};

enum { /* CUmemorytype */
       CUDA_MEMORY_HOST = 1,
       CUDA_MEMORY_DEVICE = 2,
       CUDA_MEMORY_UNIFIED = 4, /* the driver finds the type by the address */
};

enum {
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_EVENT_DISABLE_TIMING = 2,
    CUDA_HOST_PORTABLE = 1,  /* every context can use the memory */
    CUDA_HOST_DEVICEMAP = 2, /* the memory has a device pointer */
    CUDA_IPC_LAZY_PEER_ACCESS = 1,
    CUDA_COPY_ORDER_STREAM = 1, /* a source is read in the stream's order */
};

/* CUipcMemHandle */
struct cuda_ipc_handle {
    char reserved[64];
};

/* CUDA_MEMCPY2D */
struct cuda_memcpy_2d {
    size_t from_x, from_y;
    int from_type;
    const void *from_host;
    uint64_t from;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_type;
    void *to_host;
    uint64_t to;
    void *to_array;
    size_t to_pitch;
    size_t width, height;
};

/* CUmemcpyAttributes. Both locations are hints, for memory that the driver
 * migrates. */
struct cuda_copy_attributes {
    int order;
    int from_place[2], to_place[2];
    unsigned flags;
};

/* The first version that has all required functions: CUDA 11.0. */
#define CUDA_DRIVER_MIN 11000

struct cuda_driver {
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*error_name)(int result, const char **text);
    int (*error_text)(int result, const char **text);
    int (*device_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*device_name)(char *name, int len, int device);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_current)(void **context);
    int (*context_device)(int *device);
    int (*context_push)(void *context);
    int (*context_pop)(void **context);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_query)(void *stream);
    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_query)(void *event);
    int (*host_alloc)(void **memory, size_t bytes, unsigned flags);
    int (*host_free)(void *memory);
    int (*memory_alloc)(uint64_t *memory, size_t bytes);
    int (*memory_free)(uint64_t memory);
    int (*host_device_pointer)(uint64_t *device, void *memory, unsigned flags);
    int (*pointer_attribute)(void *value, int attribute, uint64_t pointer);
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
    int (*copy_2d)(const struct cuda_memcpy_2d *copy, void *stream);
    int (*launch)(void *stream, void (*function)(void *), void *arg);
    /* The following pointers are NULL if the driver lacks the function. A
     * handle is for a whole allocation, whose base address_range() returns. */
    int (*address_range)(uint64_t *base, size_t *bytes, uint64_t pointer);
    int (*ipc_get)(struct cuda_ipc_handle *handle, uint64_t base);
    int (*ipc_open)(uint64_t *base, struct cuda_ipc_handle handle,
                    unsigned flags);
    int (*ipc_close)(uint64_t base);
    /* Make `n` copies. attributes[i] applies to the copies from first[i] on. */
    int (*copy_batch)(uint64_t *to, uint64_t *from, size_t *bytes, size_t n,
                      struct cuda_copy_attributes *attributes, size_t *first,
                      size_t attributes_n, void *stream);
    /* The same function in drivers of CUDA 12.8 and 12.9. */
    int (*copy_batch_v1)(uint64_t *to, uint64_t *from, size_t *bytes, size_t n,
                         struct cuda_copy_attributes *attributes, size_t *first,
                         size_t attributes_n, size_t *failed, void *stream);
    int (*write_value)(void *stream, uint64_t at, uint64_t value,
                       unsigned flags);
};

/* Returns the initialized driver of this process, or NULL with the reason in
 * `why`. The driver stays loaded. */
const struct cuda_driver *cuda_driver(char *why, size_t why_len);

/* Write the text of an error, such as
 * "cuMemcpyAsync: CUDA_ERROR_ILLEGAL_ADDRESS (700: an illegal ...)". */
void cuda_driver_say(const struct cuda_driver *driver, const char *call,
                     int result, char *text, size_t len);

static inline uint64_t cuda_address(const void *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

#endif

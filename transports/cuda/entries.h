// SPDX-License-Identifier: Apache-2.0
/*
 * The functions of the CUDA driver that this engine calls, by their exported
 * names. A function whose parameters have changed has a version suffix.
 *
 *     X(symbol, member of struct cuda_driver, may be absent)
 */
#ifndef CUDA_ENTRIES_H
#define CUDA_ENTRIES_H

/* clang-format off */
#define CUDA_DRIVER_ENTRIES(X)                                        \
    X(cuInit, init, false)                                            \
    X(cuDriverGetVersion, version, false)                             \
    X(cuGetErrorName, error_name, false)                              \
    X(cuGetErrorString, error_text, false)                            \
    X(cuDeviceGetCount, device_count, false)                          \
    X(cuDeviceGet, device_get, false)                                 \
    X(cuDeviceGetName, device_name, false)                            \
    X(cuDeviceGetAttribute, device_attribute, false)                  \
    X(cuDevicePrimaryCtxRetain, context_retain, false)                \
    X(cuDevicePrimaryCtxRelease_v2, context_release, false)           \
    X(cuCtxGetCurrent, context_current, false)                        \
    X(cuCtxGetDevice, context_device, false)                          \
    X(cuCtxPushCurrent_v2, context_push, false)                       \
    X(cuCtxPopCurrent_v2, context_pop, false)                         \
    X(cuStreamCreate, stream_create, false)                           \
    X(cuStreamDestroy_v2, stream_destroy, false)                      \
    X(cuStreamQuery, stream_query, false)                             \
    X(cuEventCreate, event_create, false)                             \
    X(cuEventDestroy_v2, event_destroy, false)                        \
    X(cuEventRecord, event_record, false)                             \
    X(cuEventQuery, event_query, false)                               \
    X(cuMemHostAlloc, host_alloc, false)                              \
    X(cuMemFreeHost, host_free, false)                                \
    X(cuMemAlloc_v2, memory_alloc, false)                             \
    X(cuMemFree_v2, memory_free, false)                               \
    X(cuMemHostGetDevicePointer_v2, host_device_pointer, false)       \
    X(cuPointerGetAttribute, pointer_attribute, false)                \
    X(cuMemcpyAsync, copy, false)                                     \
    X(cuMemcpy2DAsync_v2, copy_2d, false)                             \
    X(cuLaunchHostFunc, launch, false)                                \
    X(cuStreamWriteValue64_v2, write_value, true)                     \
    X(cuMemGetAddressRange_v2, address_range, true)                   \
    X(cuIpcGetMemHandle, ipc_get, true)                               \
    X(cuIpcOpenMemHandle_v2, ipc_open, true)                          \
    X(cuIpcCloseMemHandle, ipc_close, true)                           \
    X(cuMemcpyBatchAsync_v2, copy_batch, true)

/* Older versions of functions above, for older drivers. */
#define CUDA_DRIVER_OLD_ENTRIES(X)                                    \
    X(cuMemcpyBatchAsync, copy_batch_v1, true)
/* clang-format on */

#endif

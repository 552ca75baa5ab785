// SPDX-License-Identifier: Apache-2.0
/*
 * A CUDA driver without a GPU, for tests: a libcuda.so.1 written from the
 * public documentation of the driver API. It has the entry points that Shunt
 * and its tests use.
 *
 * Device memory cannot be accessed at its address: a process that tries is
 * killed. The fake itself copies through another mapping of the same pages.
 * Streams are queues. One thread, the device, runs their operations one at a
 * time, each from a stream that it chooses at random. So copies may be as late,
 * and in any order, as the documentation permits. As with the real driver,
 * calls need a current context, and memory must be known. An IPC handle is of a
 * whole allocation, and only another process can open it. To free memory that
 * another process has open is an error of the owner, even if it has no effect.
 *
 * FAKE_CUDA sets, separated by commas:
 *
 * devices=N    GPUs (1) version=N    the version that cuDriverGetVersion()
 * returns (12020)
 * memops=0     no cuStreamWriteValue64() seed=N       seed of the random order
 * pitch=N      the largest pitch that the device reports
 * refused_pitch=N  2D copies of a larger pitch are refused, whatever the device
 * reports
 * batch=N      cuMemcpyBatchAsync(): 2: that of CUDA 13 and 12.8, 1: of 12.8,
 * 0: none
 * batch_max=N  a batch of more copies is refused ipc=0        no IPC handles
 * peers=0      no GPU accesses the memory of another one memory=N     bytes of
 * device memory of a process (1 GiB) fail=NAME/N/RESULT   the N-th call of NAME
 * returns RESULT break=N/RESULT       after N operations the device is lost: it
 * drops all queued operations, and calls return RESULT
 *     tell         at its exit, a process prints how many bytes its device has
 *                  copied from memory of a device to memory of a device
 *     strict       a process exits with status 97 if it has not freed all
 *                  memory, or has freed memory that another process had open
 *
 * A test finds the functions below by dlsym() of FAKE_CUDA_CONTROL.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

/* The numbers of existing objects. */
struct fake_cuda_live {
    int contexts, streams, events, host, device, mapped, queued;
};

struct fake_cuda_control {
    struct fake_cuda_live (*live)(void);
    /* From now on, the n-th call of `name` returns `result`; n 0: no call
     * fails. */
    void (*fail)(const char *name, int n, int result);
    void (*lose)(int operations, int result);
    /* The lost device works again. */
    void (*repair)(void);
    unsigned long (*calls)(const char *name);
    /* While `held` is not 0, the device runs no operations. */
    void (*hold)(int held);
};

#define FAKE_CUDA_CONTROL "fake_cuda_control"

#endif

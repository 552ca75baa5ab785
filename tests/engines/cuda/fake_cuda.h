// SPDX-License-Identifier: Apache-2.0
/*
 * A CUDA driver without a GPU, for tests: a libcuda.so.1 of its own, made by the
 * public documentation of the driver API. It has the entry points that Shunt
 * uses and those that its tests need.
 *
 * Device memory cannot be accessed at its address: whoever tries is killed. The
 * fake's own copies go by another mapping of the same pages. Streams are queues
 * that a thread, the device, empties one operation at a time, of a stream that
 * it chooses at random. So copies are as late, and in as any an order, as the
 * documentation permits. Calls need a current context, memory must be known, an
 * IPC handle is opened by another process only, and is that of a whole
 * allocation, as there. Memory that is freed while another process has it open is
 * a mistake of its owner's, also if nothing comes of it.
 *
 * FAKE_CUDA sets, separated by commas:
 *
 *     devices=N    GPUs (1)
 *     version=N    what cuDriverGetVersion() says (12020)
 *     memops=0     no cuStreamWriteValue64()
 *     seed=N       of the order
 *     pitch=N      the largest pitch, as an attribute of the device
 *     refused_pitch=N  2D copies of a larger pitch are refused all the same
 *     batch=N      2: cuMemcpyBatchAsync() of CUDA 13 and 12.8, 1: of 12.8, 0: none
 *     batch_max=N  a batch of more copies is refused
 *     ipc=0        no IPC handles
 *     peers=0      no GPU accesses the memory of another one
 *     memory=N     bytes of device memory of a process (1 GiB)
 *     fail=NAME/N/RESULT   the N-th call of NAME returns RESULT
 *     break=N/RESULT       after N operations the device is lost: it drops what
 *                          is queued, and calls return RESULT
 *     tell         a process that exits says how many bytes its device has copied
 *                  from memory of a device to memory of a device
 *     strict       a process that exits and has not freed all, or has freed what
 *                  another one had open, ends with 97
 *
 * A test finds the functions below by dlsym().
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

/* Numbers of existing objects. */
struct fake_cuda_live {
    int contexts, streams, events, host, device, mapped, queued;
};

struct fake_cuda_control {
    struct fake_cuda_live (*live)(void);
    /* The n-th call of `name` from now on returns `result`; n 0: none does. */
    void (*fail)(const char *name, int n, int result);
    void (*lose)(int operations, int result);
    /* The device is there again. */
    void (*repair)(void);
    unsigned long (*calls)(const char *name);
    /* While it is held, the device does nothing. */
    void (*hold)(int held);
};

#define FAKE_CUDA_CONTROL "fake_cuda_control"

#endif

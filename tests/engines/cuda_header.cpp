// SPDX-License-Identifier: Apache-2.0
//
// Compares the declarations of transports/cuda/driver.h with NVIDIA's cuda.h,
// if that is installed. Compares constants, structs and their offsets, and for
// each function the symbol and the size and kind of its parameters. Needs no
// driver and no GPU.

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "transports/cuda/driver.h"
#include "transports/cuda/entries.h"

namespace {

// Shunt's declarations have void * for handles, and int for enums. So two types
// are alike if both are pointers to types that are alike, or if neither is a
// pointer and their sizes are equal.
template <class Theirs, class Ours> constexpr bool alike()
{
    if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
        using T = std::remove_cv_t<std::remove_pointer_t<Theirs>>;
        using O = std::remove_cv_t<std::remove_pointer_t<Ours>>;

        if constexpr (!std::is_pointer_v<Ours> || !std::is_pointer_v<Theirs>)
            return false;
        else if constexpr (std::is_void_v<O> || std::is_function_v<O>)
            return true;
        else
            return alike<T, O>();
    } else {
        return sizeof(Theirs) == sizeof(Ours) &&
               std::is_class_v<Theirs> == std::is_class_v<Ours>;
    }
}

template <class Theirs, class Ours> struct calls {
    static constexpr bool match = false;
};

template <class R, class... T, class S, class... O>
struct calls<R (*)(T...), S (*)(O...)> {
    static constexpr bool parameters()
    {
        if constexpr (sizeof...(T) == sizeof...(O))
            return (alike<T, O>() && ...);
        else
            return false;
    }
    static constexpr bool match = alike<R, S>() && parameters();
};

int number, failures;

void check(bool good, const char *what)
{
    std::printf("%s %d - %s\n", good ? "ok" : "not ok", ++number, what);
    failures += !good;
}

#define TEXT(x) #x
#define EXPANDED(x) TEXT(x)

void check_functions()
{
    // If cuda.h defines the name as another one, it names an older version.
#define CHECK_ENTRY(symbol, member, optional)                                \
    check(std::strcmp(#symbol, EXPANDED(symbol)) == 0, #symbol ": version"); \
    check(calls<decltype(&symbol), decltype(cuda_driver::member)>::match,    \
          #symbol ": parameters");
    CUDA_DRIVER_ENTRIES(CHECK_ENTRY)
#undef CHECK_ENTRY
    check(calls<PFN_cuMemcpyBatchAsync_v12080,
                decltype(cuda_driver::copy_batch_v1)>::match,
          "cuMemcpyBatchAsync of CUDA 12.8: parameters");
}

void check_constants()
{
#define SAME(ours, theirs) check((long)(ours) == (long)(theirs), #theirs)
    SAME(CUDA_OK, CUDA_SUCCESS);
    SAME(CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
    SAME(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
    SAME(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
    SAME(CUDA_PEER_ACCESS_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    SAME(CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
    SAME(CUDA_TOO_MANY_PEERS, CUDA_ERROR_TOO_MANY_PEERS);
    SAME(CUDA_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
    SAME(CUDA_ATTRIBUTE_MAX_PITCH, CU_DEVICE_ATTRIBUTE_MAX_PITCH);
    SAME(CUDA_ATTRIBUTE_UNIFIED_ADDRESSING,
         CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
    SAME(CUDA_ATTRIBUTE_STREAM_MEM_OPS_64,
         CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
    SAME(CUDA_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
    SAME(CUDA_MEMORY_HOST, CU_MEMORYTYPE_HOST);
    SAME(CUDA_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
    SAME(CUDA_MEMORY_UNIFIED, CU_MEMORYTYPE_UNIFIED);
    SAME(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
    SAME(CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
    SAME(CUDA_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
    SAME(CUDA_HOST_DEVICEMAP, CU_MEMHOSTALLOC_DEVICEMAP);
    SAME(CUDA_COPY_ORDER_STREAM, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
    SAME(CUDA_IPC_LAZY_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

void check_structs()
{
    SAME(sizeof(cuda_ipc_handle), sizeof(CUipcMemHandle));
    SAME(sizeof(cuda_memcpy_2d), sizeof(CUDA_MEMCPY2D));
    SAME(sizeof(cuda_copy_attributes), sizeof(CUmemcpyAttributes));
    SAME(offsetof(cuda_copy_attributes, order),
         offsetof(CUmemcpyAttributes, srcAccessOrder));
    SAME(offsetof(cuda_copy_attributes, from_place),
         offsetof(CUmemcpyAttributes, srcLocHint));
    SAME(offsetof(cuda_copy_attributes, to_place),
         offsetof(CUmemcpyAttributes, dstLocHint));
    SAME(offsetof(cuda_copy_attributes, flags),
         offsetof(CUmemcpyAttributes, flags));
#define FIELD(ours, theirs)                                                \
    check(offsetof(cuda_memcpy_2d, ours) ==                                \
                  offsetof(CUDA_MEMCPY2D, theirs) &&                       \
              alike<decltype(CUDA_MEMCPY2D::theirs),                       \
                    decltype(cuda_memcpy_2d::ours)>(),                     \
          "CUDA_MEMCPY2D." #theirs)
    FIELD(from_x, srcXInBytes);
    FIELD(from_y, srcY);
    FIELD(from_type, srcMemoryType);
    FIELD(from_host, srcHost);
    FIELD(from, srcDevice);
    FIELD(from_array, srcArray);
    FIELD(from_pitch, srcPitch);
    FIELD(to_x, dstXInBytes);
    FIELD(to_y, dstY);
    FIELD(to_type, dstMemoryType);
    FIELD(to_host, dstHost);
    FIELD(to, dstDevice);
    FIELD(to_array, dstArray);
    FIELD(to_pitch, dstPitch);
    FIELD(width, WidthInBytes);
    FIELD(height, Height);
}

} // namespace

int main()
{
    check_functions();
    check_constants();
    check_structs();
    std::printf("1..%d\n# cuda.h of CUDA %d.%d\n", number, CUDA_VERSION / 1000,
                CUDA_VERSION % 1000 / 10);
    return failures != 0;
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Compiled with NVIDIA's headers, and only to see that it compiles: what the stubs and
 * devices/checkpoint/driver.py believe of them. */
#include <cuda.h>
#include <nvml.h>
#include <stddef.h>

#include "sizes.h"

#define SAME(what, size) _Static_assert(sizeof(what) == (size), #what " has another size")
#define AT(type, member, offset) \
    _Static_assert(offsetof(type, member) == (offset), #member " lies elsewhere")
#define IS(name, value) _Static_assert((int)(name) == (value), #name " has another value")

SAME(nvmlMemory_v2_t, SIZE_MEMORY);
SAME(nvmlProcessInfo_t, SIZE_PROCESS);
SAME(nvmlEventData_t, SIZE_EVENT);
SAME(nvmlFieldValue_t, SIZE_FIELD);
SAME(nvmlUtilization_t, SIZE_RATES);
SAME(nvmlProcessUtilizationSample_t, SIZE_SAMPLE);
SAME(CUcheckpointGpuPair, SIZE_PAIR);
SAME(CUcheckpointLockArgs, SIZE_ARGS);
SAME(CUcheckpointCheckpointArgs, SIZE_ARGS);
SAME(CUcheckpointRestoreArgs, SIZE_ARGS);
SAME(CUcheckpointUnlockArgs, SIZE_ARGS);
AT(CUcheckpointLockArgs, timeoutMs, 0);
AT(CUcheckpointRestoreArgs, gpuPairs, 0);
AT(CUcheckpointRestoreArgs, gpuPairsCount, 8);
AT(CUcheckpointGpuPair, newUuid, 16);
AT(nvmlProcessInfo_t, usedGpuMemory, 8);
AT(nvmlProcessUtilizationSample_t, timeStamp, 8);
AT(nvmlFieldValue_t, value, 32);
IS(CU_PROCESS_STATE_RUNNING, 0);
IS(CU_PROCESS_STATE_LOCKED, 1);
IS(CU_PROCESS_STATE_CHECKPOINTED, 2);
IS(CU_PROCESS_STATE_FAILED, 3);
IS(CUDA_ERROR_NOT_READY, 600);
IS(CUDA_ERROR_ILLEGAL_STATE, 401);
IS(CUDA_ERROR_NOT_SUPPORTED, 801);
IS(NVML_ERROR_GPU_IS_LOST, 15);
IS(NVML_ERROR_NOT_FOUND, 6);

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sizes in bytes that the stubs keep to; abi.c compares them with NVIDIA's headers. */
#define SIZE_MEMORY 40      /* nvmlMemory_v2_t */
#define SIZE_PROCESS 24     /* nvmlProcessInfo_t */
#define SIZE_EVENT 32       /* nvmlEventData_t */
#define SIZE_FIELD 40       /* nvmlFieldValue_t */
#define SIZE_RATES 8        /* nvmlUtilization_t */
#define SIZE_SAMPLE 32      /* nvmlProcessUtilizationSample_t */
#define SIZE_PAIR 32        /* CUcheckpointGpuPair */
#define SIZE_ARGS 64        /* CUcheckpoint{Lock,Checkpoint,Restore,Unlock}Args */

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A libnvidia-ml.so.1 for machines without a GPU: the calls that devices/nvml.py makes.
 * $STUB_NVML_WORLD names a text file that is read anew at each call. Its lines, of which a
 * later one changes what an earlier one said ("_" in a name is a blank):
 *
 *   gpu INDEX UUID NAME TOTAL_MIB RESERVED_MIB
 *   mig INDEX 0|1                               MIG off or on (without a line: not supported)
 *   slice INDEX SLOT UUID NAME TOTAL_MIB        one MIG slice
 *   nvlink A B                                  NVLink joins these GPUs (no line: not told)
 *   numa INDEX NODE                             its NUMA node (without a line: not told)
 *   proc UUID PID MIB                           a compute process; PID gone: it ended
 *   recovery INDEX ACTION                       what is to be done with it (no line: not told)
 *   event INDEX|-1 TYPE DATA                    wakes whoever waits for events (-1: of no GPU)
 *   fail CALL INDEX|* CODE                      that call returns CODE (0: works again)
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define GPUS 8
#define SLOTS 7
#define PROCS 64
enum { OK, UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND = 6, SMALL = 7, NOT_LOADED = 9, TIMEOUT };

typedef struct { char uuid[96], name[96]; unsigned long long total, reserved; int gpu; } Device;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Process;
typedef struct { char uuid[96]; unsigned pid, mib; } Running;
typedef struct { Device *device; unsigned long long type, data; unsigned gi, ci; } Event;
typedef struct { unsigned long long types[GPUS]; int seen; } Set;
typedef struct {
    unsigned field, scope;
    long long time, latency;
    unsigned type, result;
    union { unsigned ui; unsigned long long ull; } value;
} Field;

static Device devices[GPUS][1 + SLOTS]; /* [0]: the GPU, the others: its slices */
static Running running[PROCS];
static Event events[PROCS];
static int mig[GPUS], recovery[GPUS], numa[GPUS], nvlink[GPUS][GPUS], links, gpus, told;

static void set(int gpu, int slot, const char *uuid, const char *name, int total, int reserved) {
    Device *d = &devices[gpu][slot];
    snprintf(d->uuid, sizeof d->uuid, "%s", uuid);
    snprintf(d->name, sizeof d->name, "%s", name);
    for (char *c = d->name; *c; c++)
        if (*c == '_') *c = ' ';
    d->total = (unsigned long long)total << 20;
    d->reserved = (unsigned long long)reserved << 20;
    d->gpu = gpu;
    if (slot == 0 && gpu >= gpus) gpus = gpu + 1;
}

static void run(const char *uuid, unsigned pid, unsigned mib) {
    for (int i = 0; i < PROCS; i++)
        if (!running[i].pid || (running[i].pid == pid && !strcmp(running[i].uuid, uuid))) {
            snprintf(running[i].uuid, sizeof running[i].uuid, "%s", uuid);
            running[i].pid = pid;
            running[i].mib = mib;
            return;
        }
}

/* Read the world; the code that `call` on this GPU (-1: on none) fails with, else OK. */
static int look(const char *call, int gpu) {
    const char *path = getenv("STUB_NVML_WORLD");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], a[96], b[96];
    int i, j, n, m, code = OK;
    if (!file) return NOT_LOADED;
    memset(devices, 0, sizeof devices);
    memset(running, 0, sizeof running);
    memset(nvlink, 0, sizeof nvlink);
    gpus = told = links = 0;
    for (i = 0; i < GPUS; i++) mig[i] = recovery[i] = numa[i] = -1;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "gpu %d %95s %95s %d %d", &i, a, b, &n, &m) == 5) set(i, 0, a, b, n, m);
        else if (sscanf(line, "slice %d %d %95s %95s %d", &i, &j, a, b, &n) == 5) set(i, j + 1, a, b, n, 0);
        else if (sscanf(line, "mig %d %d", &i, &n) == 2) mig[i] = n;
        else if (sscanf(line, "recovery %d %d", &i, &n) == 2) recovery[i] = n;
        else if (sscanf(line, "numa %d %d", &i, &n) == 2) numa[i] = n;
        else if (sscanf(line, "nvlink %d %d", &i, &n) == 2) links = nvlink[i][n] = nvlink[n][i] = 1;
        else if (sscanf(line, "event %d %d %d", &i, &n, &m) == 3 && told < PROCS)
            events[told++] = (Event){i < 0 ? NULL : &devices[i][0], n, m, ~0u, ~0u};
        else if (sscanf(line, "proc %95s %d %d", a, &i, &n) == 3) run(a, i, n);
        else if (sscanf(line, "proc %95s %d gone", a, &i) == 2) run(a, i, 0);
        else if (sscanf(line, "fail %95s %95s %d", a, b, &n) == 3 && !strcmp(a, call) &&
                 (!strcmp(b, "*") || (gpu >= 0 && atoi(b) == gpu))) code = n;
    }
    fclose(file);
    return code;
}

#define LOOK(gpu) do { int code_ = look(__func__, gpu); if (code_) return code_; } while (0)

API int nvmlInitWithFlags(unsigned flags) { (void)flags; LOOK(-1); return OK; }

API const char *nvmlErrorString(int code) {
    switch (code) {
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

API int nvmlDeviceGetCount_v2(unsigned *count) { LOOK(-1); *count = gpus; return OK; }

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **handle) {
    LOOK((int)index);
    if ((int)index >= gpus) return INVALID;
    *handle = &devices[index][0];
    return OK;
}

API int nvmlDeviceGetUUID(Device *d, char *uuid, unsigned size) {
    LOOK(d->gpu);
    snprintf(uuid, size, "%s", d->uuid);
    return OK;
}

API int nvmlDeviceGetName(Device *d, char *name, unsigned size) {
    LOOK(d->gpu);
    snprintf(name, size, "%s", d->name);
    return OK;
}

API int nvmlDeviceGetMemoryInfo_v2(Device *d, Memory *memory) {
    LOOK(d->gpu);
    if (memory->version != 0x02000028) return INVALID;
    memory->total = d->total;
    memory->reserved = d->reserved;
    return OK;
}

API int nvmlDeviceGetMigMode(Device *d, unsigned *current, unsigned *pending) {
    LOOK(d->gpu);
    if (mig[d->gpu] < 0) return NOT_SUPPORTED;
    *current = *pending = mig[d->gpu];
    return OK;
}

API int nvmlDeviceGetMaxMigDeviceCount(Device *d, unsigned *count) {
    LOOK(d->gpu);
    *count = SLOTS;
    return OK;
}

API int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, unsigned slot, Device **handle) {
    LOOK(d->gpu);
    if (slot >= SLOTS || !devices[d->gpu][slot + 1].total) return NOT_FOUND;
    *handle = &devices[d->gpu][slot + 1];
    return OK;
}

API int nvmlDeviceGetP2PStatus(Device *a, Device *b, int what, int *status) {
    LOOK(a->gpu);
    if (what != 2 || !links) return NOT_SUPPORTED;
    *status = nvlink[a->gpu][b->gpu] ? 0 : 5;
    return OK;
}

API int nvmlDeviceGetTopologyCommonAncestor(Device *a, Device *b, int *level) {
    LOOK(a->gpu);
    if (numa[a->gpu] < 0 || numa[b->gpu] < 0) return NOT_SUPPORTED;
    *level = numa[a->gpu] == numa[b->gpu] ? 40 : 50;
    return OK;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *count, Process *list) {
    unsigned room = *count, n = 0;
    LOOK(d->gpu);
    for (int i = 0; i < PROCS; i++)
        if (running[i].mib && !strcmp(running[i].uuid, d->uuid)) {
            if (list && n < room)
                list[n] = (Process){running[i].pid, (unsigned long long)running[i].mib << 20, ~0u, ~0u};
            n++;
        }
    *count = n;
    return n > room ? SMALL : OK;
}

API int nvmlDeviceGetFieldValues(Device *d, int count, Field *fields) {
    LOOK(d->gpu);
    for (int i = 0; i < count; i++) {
        int known = fields[i].field == 230 && recovery[d->gpu] >= 0;
        fields[i].result = known ? OK : NOT_SUPPORTED;
        if (known) fields[i].value.ui = recovery[d->gpu];
    }
    return OK;
}

API int nvmlEventSetCreate(Set **set) {
    LOOK(-1);
    *set = calloc(1, sizeof **set);
    (*set)->seen = told; /* what happened before is lost */
    return OK;
}

API int nvmlEventSetFree(Set *set) { free(set); return OK; }

API int nvmlDeviceGetSupportedEventTypes(Device *d, unsigned long long *types) {
    LOOK(d->gpu);
    *types = 0x11f;
    return OK;
}

API int nvmlDeviceRegisterEvents(Device *d, unsigned long long types, Set *set) {
    LOOK(d->gpu);
    if (types & ~0x11full) return NOT_SUPPORTED;
    set->types[d->gpu] |= types;
    return OK;
}

API int nvmlEventSetWait_v2(Set *set, Event *event, unsigned timeout) {
    for (unsigned waited = 0;; waited += 10) {
        LOOK(-1);
        while (set->seen < told) {
            *event = events[set->seen++];
            if (!event->device || (set->types[event->device->gpu] & event->type)) return OK;
        }
        if (waited >= timeout) return TIMEOUT;
        poll(NULL, 0, 10);
    }
}

/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A libnvidia-ml.so.1 for machines without a GPU: the calls that devices/nvml.py makes, and
 * what the real nvidia-ml-py asks beside. Driven by a text file: world.h. */
#include "sizes.h"
#include "world.h"

#define GPUS 8
#define SLOTS 7
#define PROCS 64
enum { OK, UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND = 6, SMALL = 7, NOT_LOADED = 9, TIMEOUT, LOST = 15 };

typedef struct { char uuid[96], name[96]; unsigned long long total, reserved; int gpu; } Device;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Process;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { unsigned pid; unsigned long long time; unsigned sm, memory, encoder, decoder; } Sample;
typedef struct { char uuid[96]; unsigned pid, mib; int ghost, mps, parked; } Running;
typedef struct { Device *device; unsigned long long type, data; unsigned gi, ci; } Event;
typedef struct { unsigned long long types[GPUS]; int seen; } Set;
typedef struct {
    unsigned field, scope;
    long long time, latency;
    unsigned type, result;
    union { unsigned ui; unsigned long long ull; } value;
} Field;
_Static_assert(sizeof(Memory) == SIZE_MEMORY && sizeof(Process) == SIZE_PROCESS, "memory");
_Static_assert(sizeof(Event) == SIZE_EVENT && sizeof(Field) == SIZE_FIELD, "events");
_Static_assert(sizeof(Rates) == SIZE_RATES && sizeof(Sample) == SIZE_SAMPLE, "use");

static Device devices[GPUS][1 + SLOTS]; /* [0]: the GPU, the others: its slices */
static Running running[PROCS];
static Event events[PROCS];
static Rates rates[GPUS];
static struct { int gpu; Sample sample; } samples[PROCS];
static int sampled, lost[GPUS];
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

static void run(const char *uuid, unsigned pid, unsigned mib, int ghost) {
    for (int i = 0; i < PROCS; i++)
        if (!running[i].pid || (running[i].pid == pid && !strcmp(running[i].uuid, uuid))) {
            snprintf(running[i].uuid, sizeof running[i].uuid, "%s", uuid);
            running[i].pid = pid;
            running[i].mib = mib;
            running[i].ghost = ghost;
            return;
        }
}

/* Whether this entry takes memory on its device now. */
static int takes(const Running *r) {
    return r->mib && !r->parked && (r->ghost || lives((int)r->pid));
}

static void mark(unsigned pid, int mps, int parked) {
    for (int i = 0; i < PROCS; i++)
        if (running[i].pid == pid) {
            if (mps) running[i].mps = 1;
            else running[i].parked = parked;
        }
}

static void forget(void) {
    memset(devices, 0, sizeof devices);
    memset(running, 0, sizeof running);
    memset(nvlink, 0, sizeof nvlink);
    memset(rates, 0, sizeof rates);
    memset(lost, 0, sizeof lost);
    gpus = told = links = sampled = 0;
    for (int i = 0; i < GPUS; i++) mig[i] = recovery[i] = numa[i] = -1;
}

static void learn(const char *line) {
    char a[96], b[96];
    int i, j, n, m;
    long long time;
    if (sscanf(line, "gpu %d %95s %95s %d %d", &i, a, b, &n, &m) == 5) set(i, 0, a, b, n, m);
    else if (sscanf(line, "slice %d %d %95s %95s %d", &i, &j, a, b, &n) == 5) set(i, j + 1, a, b, n, 0);
    else if (sscanf(line, "mig %d %d", &i, &n) == 2) mig[i] = n;
    else if (sscanf(line, "recovery %d %d", &i, &n) == 2) recovery[i] = n;
    else if (sscanf(line, "numa %d %d", &i, &n) == 2) numa[i] = n;
    else if (sscanf(line, "lost %d %d", &i, &n) == 2) lost[i] = n;
    else if (sscanf(line, "nvlink %d %d", &i, &n) == 2) links = nvlink[i][n] = nvlink[n][i] = 1;
    else if (sscanf(line, "rates %d %d %d", &i, &n, &m) == 3) rates[i] = (Rates){n, m};
    else if (sscanf(line, "event %d %d %d", &i, &n, &m) == 3 && told < PROCS)
        events[told++] = (Event){i < 0 ? NULL : &devices[i][0], n, m, ~0u, ~0u};
    else if (sscanf(line, "sample %d %d %lld %d", &i, &n, &time, &m) == 4 && sampled < PROCS) {
        samples[sampled].gpu = i;
        samples[sampled++].sample = (Sample){n, time, m, 0, 0, 0};
    } else if (sscanf(line, "proc %95s %d %d", a, &i, &n) == 3) run(a, i, n, 0);
    else if (sscanf(line, "ghost %95s %d %d", a, &i, &n) == 3) run(a, i, n, 1);
    else if (sscanf(line, "proc %95s %d gone", a, &i) == 2) run(a, i, 0, 0);
    else if (sscanf(line, "mps %d", &i) == 1) mark(i, 1, 0);
    else if (sscanf(line, "cuda %d %d", &i, &n) == 2) mark(i, 0, n == 2);
}

/* Read the world; the code that `call` on this GPU (-1: on none) fails with, else OK. */
static int look(const char *call, int gpu) {
    FILE *file = world("r");
    char line[512];
    if (!file) return NOT_LOADED;
    forget();
    while (fgets(line, sizeof line, file)) learn(line);
    fclose(file);
    if (gpu >= 0 && gpu < GPUS && lost[gpu]) return LOST;
    return verdict(call, gpu);
}

#define LOOK(gpu) do { int code_ = look(__func__, gpu); if (code_) return code_; } while (0)

API int nvmlInitWithFlags(unsigned flags) { (void)flags; LOOK(-1); return OK; }

API const char *nvmlErrorString(int code) {
    switch (code) {
    case LOST: return "GPU is lost";
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
    memory->used = 0;
    for (int i = 0; i < PROCS; i++)
        if (takes(&running[i]) && !strcmp(running[i].uuid, d->uuid))
            memory->used += (unsigned long long)running[i].mib << 20;
    memory->free = memory->total - memory->reserved - memory->used;
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

static int list(Device *d, int mps, unsigned *count, Process *found) {
    unsigned room = *count, n = 0;
    for (int i = 0; i < PROCS; i++)
        if (takes(&running[i]) && running[i].mps >= mps && !strcmp(running[i].uuid, d->uuid)) {
            if (found && n < room)
                found[n] = (Process){running[i].pid, (unsigned long long)running[i].mib << 20, ~0u, ~0u};
            n++;
        }
    *count = n;
    return n > room ? SMALL : OK;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *count, Process *found) {
    LOOK(d->gpu);
    return list(d, 0, count, found);
}

API int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *d, unsigned *count, Process *found) {
    LOOK(d->gpu);
    return list(d, 1, count, found);
}

API int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device *slice, Device **gpu) {
    LOOK(slice->gpu);
    if (slice == &devices[slice->gpu][0]) return INVALID;
    *gpu = &devices[slice->gpu][0];
    return OK;
}

API int nvmlDeviceGetUtilizationRates(Device *d, Rates *found) {
    LOOK(d->gpu);
    if (mig[d->gpu] == 1) return NOT_SUPPORTED;
    *found = rates[d->gpu];
    return OK;
}

API int nvmlDeviceGetProcessUtilization(Device *d, Sample *found, unsigned *count, unsigned long long since) {
    unsigned room = *count, n = 0;
    LOOK(d->gpu);
    if (mig[d->gpu] == 1) return NOT_SUPPORTED;
    for (int i = 0; i < sampled; i++)
        if (samples[i].gpu == d->gpu && samples[i].sample.time > since) {
            if (found && n < room) found[n] = samples[i].sample;
            n++;
        }
    *count = n;
    if (!n) return NOT_FOUND;
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

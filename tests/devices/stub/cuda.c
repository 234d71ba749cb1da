/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A libcuda.so.1 for machines without a GPU: the driver's checkpoint API, as
 * devices/checkpoint/driver.py calls it. It moves nothing: it keeps the states of processes in
 * the world that the NVML stub reads (world.h), where memory goes and comes back with them. */
#include "sizes.h"
#include "world.h"

enum { OK, INVALID, NOT_INITIALIZED = 3, ILLEGAL_STATE = 401, NOT_READY = 600, NOT_SUPPORTED = 801 };
enum { RUNNING, LOCKED, CHECKPOINTED, FAILED };

typedef struct { unsigned timeout_ms, reserved0; unsigned long long reserved1[7]; } LockArgs;
typedef struct { unsigned char old[16], new[16]; } Pair;
typedef struct { Pair *pairs; unsigned count; unsigned char reserved[52]; } RestoreArgs;
_Static_assert(sizeof(LockArgs) == SIZE_ARGS && sizeof(RestoreArgs) == SIZE_ARGS, "arguments");
_Static_assert(sizeof(Pair) == SIZE_PAIR, "pair");

static int initialised;

/* The state of a process; -1: it never used CUDA. */
static int state(int pid) {
    FILE *file = world("r");
    char line[512], uuid[96];
    int who, value, found = -1;
    if (!file) return -1;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "proc %95s %d %d", uuid, &who, &value) == 3 && who == pid) {
            if (found < 0) found = RUNNING;
        } else if (sscanf(line, "cuda %d %d", &who, &value) == 2 && who == pid) found = value;
    }
    fclose(file);
    return found;
}

static void say(int pid, int value) {
    FILE *file = world("a");
    if (!file) return;
    fprintf(file, "cuda %d %d\n", pid, value);
    fclose(file);
}

static int same(const unsigned char *raw, const char *uuid) {
    char text[48] = "GPU-";
    int at = 4;
    for (int i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) text[at++] = '-';
        at += sprintf(text + at, "%02x", raw[i]);
    }
    return !strcmp(text, uuid);
}

/* The uuid of the GPU with these bytes; empty: there is none. */
static void name(const unsigned char *raw, char *uuid) {
    FILE *file = world("r");
    char line[512], found[96];
    *uuid = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "gpu %*d %95s", found) == 1 && same(raw, found)) strcpy(uuid, found);
    if (file) fclose(file);
}

/* Write where the memory of a process is now. INVALID: a GPU is not there or not in the map. */
static int move(int pid, const RestoreArgs *args) {
    FILE *file = world("r");
    char line[512], uuid[96], from[96], to[96], moved[8][96], gone[8][96];
    int who, mib, sizes[8], count = 0, gpus = 0;
    if (!args || !args->count) { if (file) fclose(file); return OK; }
    while (file && fgets(line, sizeof line, file)) {
        if (!strncmp(line, "gpu ", 4)) gpus++;
        if (sscanf(line, "proc %95s %d %d", uuid, &who, &mib) == 3 && who == pid && count < 8)
            for (unsigned i = 0; i < args->count; i++)
                if (same(args->pairs[i].old, uuid)) {
                    name(args->pairs[i].new, to);
                    strcpy(gone[count], uuid);
                    strcpy(moved[count], to);
                    sizes[count++] = mib;
                }
    }
    if (file) fclose(file);
    if (args->count != (unsigned)gpus) return INVALID; /* the driver wants all that it sees */
    for (unsigned i = 0; i < args->count; i++) {
        name(args->pairs[i].old, from);
        name(args->pairs[i].new, to);
        if (!*from || !*to) return INVALID;
    }
    file = world("a");
    for (int i = 0; i < count; i++) fprintf(file, "proc %s %d gone\n", gone[i], pid);
    for (int i = 0; i < count; i++) fprintf(file, "proc %s %d %d\n", moved[i], pid, sizes[i]);
    fclose(file);
    return OK;
}

/* What every call begins with. */
static int begin(const char *call, int pid) {
    int code = verdict(call, pid);
    if (code) return code;
    if (!lives(pid)) return INVALID;
    return state(pid) < 0 ? NOT_INITIALIZED : OK;
}

#define BEGIN(pid) do { int code_ = begin(__func__, pid); if (code_) return code_; } while (0)
#define NEEDS(pid, wanted) do { if (state(pid) != (wanted)) return ILLEGAL_STATE; } while (0)

API int cuInit(unsigned flags) {
    int code = verdict(__func__, -1);
    initialised = !code && !flags;
    return code;
}

API int cuDriverGetVersion(int *version) { *version = 13000; return verdict(__func__, -1); }

API int cuGetErrorName(int code, const char **text) {
    switch (code) {
    case INVALID: *text = "CUDA_ERROR_INVALID_VALUE"; break;
    case NOT_INITIALIZED: *text = "CUDA_ERROR_NOT_INITIALIZED"; break;
    case ILLEGAL_STATE: *text = "CUDA_ERROR_ILLEGAL_STATE"; break;
    case NOT_READY: *text = "CUDA_ERROR_NOT_READY"; break;
    case NOT_SUPPORTED: *text = "CUDA_ERROR_NOT_SUPPORTED"; break;
    default: *text = NULL; return INVALID;
    }
    return OK;
}

API int cuCheckpointProcessGetState(int pid, int *found) {
    BEGIN(pid);
    *found = state(pid);
    return OK;
}

API int cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
    BEGIN(pid);
    *thread = pid;
    return OK;
}

API int cuCheckpointProcessLock(int pid, LockArgs *args) {
    BEGIN(pid);
    NEEDS(pid, RUNNING);
    if (!args || !args->timeout_ms) return INVALID; /* ours never waits without end */
    say(pid, LOCKED);
    return OK;
}

API int cuCheckpointProcessCheckpoint(int pid, void *args) {
    (void)args;
    BEGIN(pid);
    NEEDS(pid, LOCKED);
    say(pid, CHECKPOINTED);
    return OK;
}

API int cuCheckpointProcessRestore(int pid, RestoreArgs *args) {
    int code;
    BEGIN(pid);
    NEEDS(pid, CHECKPOINTED);
    if (!initialised) return NOT_INITIALIZED;
    if ((code = move(pid, args))) return code;
    say(pid, LOCKED);
    return OK;
}

API int cuCheckpointProcessUnlock(int pid, void *args) {
    (void)args;
    BEGIN(pid);
    NEEDS(pid, LOCKED);
    say(pid, RUNNING);
    return OK;
}

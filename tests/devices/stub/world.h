/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The file that both stubs read: $STUB_WORLD, a text to which lines are added while a test
 * runs, and which is read anew at each call. A later line changes what an earlier one said
 * ("_" in a name is a blank):
 *
 *   gpu INDEX UUID NAME TOTAL_MIB RESERVED_MIB
 *   mig INDEX 0|1                               MIG off or on (without a line: not supported)
 *   slice INDEX SLOT UUID NAME TOTAL_MIB        one MIG slice; TOTAL_MIB 0: it is not there
 *   nvlink A B                                  NVLink joins these GPUs (no line: not told)
 *   numa INDEX NODE                             its NUMA node (without a line: not told)
 *   proc UUID PID MIB                           a compute process, until its pid is gone
 *   proc UUID PID gone                          it freed its memory and lives
 *   ghost UUID PID MIB                          the same of a pid that nobody sees
 *   mps PID                                     a client of MPS
 *   cuda PID STATE                              0 running, 1 locked, 2 checkpointed, 3 failed;
 *                                               the CUDA stub writes these lines, too
 *   sample INDEX PID MICROSECONDS PERCENT       what a process used of the processors till then
 *   rates INDEX GPU% MEMORY%                    how busy the GPU is
 *   recovery INDEX ACTION                       what is to be done with it (no line: not told)
 *   event INDEX|-1 TYPE DATA                    wakes whoever waits for events (-1: of no GPU)
 *   lost INDEX 0|1                              it fell off the bus
 *   fail CALL WHERE CODE                        that call returns CODE (0: works again)
 *   hang CALL WHERE 0|1                         that call does not return, until 0
 *
 * WHERE is the index of a GPU for NVML, a pid for CUDA, or "*". */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

static FILE *world(const char *mode) {
    const char *path = getenv("STUB_WORLD");
    return path ? fopen(path, mode) : NULL;
}

static int is(const char *where, int here) {
    return !strcmp(where, "*") || (here >= 0 && atoi(where) == here);
}

/* The code that this call fails with here, else 0; not before it hangs no more. */
static int verdict(const char *call, int here) {
    for (;;) {
        FILE *file = world("r");
        char line[512], what[96], where[96];
        int value, code = 0, hangs = 0;
        if (!file) return 0;
        while (fgets(line, sizeof line, file)) {
            if (sscanf(line, "fail %95s %95s %d", what, where, &value) == 3) {
                if (!strcmp(what, call) && is(where, here)) code = value;
            } else if (sscanf(line, "hang %95s %95s %d", what, where, &value) == 3) {
                if (!strcmp(what, call) && is(where, here)) hangs = value;
            }
        }
        fclose(file);
        if (!hangs) return code;
        poll(NULL, 0, 10);
    }
}

/* Whether a process of this pid still has memory: a zombie has none. */
static int lives(int pid) {
    char path[64], state = 'X';
    FILE *file;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (!(file = fopen(path, "r"))) return 0;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 'R';
    fclose(file);
    return state != 'Z' && state != 'X';
}

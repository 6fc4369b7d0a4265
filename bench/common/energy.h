/* SPDX-License-Identifier: Apache-2.0 */
/* The joules that this machine uses, by the first of pm_counters (Cray), RAPL and hwmon it has. */
#ifndef TWILL_ENERGY_H
#define TWILL_ENERGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The part of the machine for which joules are counted. CPU and MEMORY are within ALL. */
enum twill_energy_part {
    TWILL_ENERGY_ALL, /* everything measured, with pm_counters the node */
    TWILL_ENERGY_CPU,
    TWILL_ENERGY_MEMORY,
    TWILL_ENERGY_PARTS
};

enum { TWILL_ENERGY_COUNTERS = 64, TWILL_ENERGY_PATH = 512 };

/* A file of a meter, with a number that counts energy or is a power. An entry of meter->counters,
 * which twill_energy_open() sets. */
struct twill_energy_counter {
    char path[TWILL_ENERGY_PATH];
    char name[48];
    double unit; /* joules, or watts, per unit of the number */
    bool power;  /* it is a power; energy is the mean of two readings times the time between them */
    unsigned parts;  /* parts for which it counts, 1 << part each */
    uint64_t range;  /* where it wraps around to 0, or 0 if it never does */
    uint64_t last;   /* at the last reading */
    uint64_t number; /* of a reading that may still be discarded */
};

/* The counters of a machine and what they have counted, in the caller's memory. twill_energy_open()
 * sets all of it. It holds nothing open, so nothing is to be closed or freed. */
struct twill_energy_meter {
    const char *kind;              /* "pm_counters", "rapl" or "hwmon" */
    char stamp[TWILL_ENERGY_PATH]; /* file that changes with each update, or "" if there is none */
    struct twill_energy_counter counters[TWILL_ENERGY_COUNTERS];
    size_t n;
    unsigned parts;                    /* parts that are measured, 1 << part each */
    double joules[TWILL_ENERGY_PARTS]; /* of each part since the first reading */
    double at;                         /* seconds at the last reading */
    bool started;                      /* the last reading succeeded, to compare the next with */
    unsigned gaps;      /* failed readings, after each of which some energy is not counted */
    char message[1024]; /* why the last function returned false */
};

/* The joules counted until a point in time, set by twill_energy_read(). */
struct twill_energy_reading {
    bool known; /* the counters could be read */
    double at;  /* seconds */
    double joules[TWILL_ENERGY_PARTS];
    unsigned gaps; /* as in the meter, then */
};

/* Set *meter to the counters below `sysfs`, usually "/sys", of the first kind that can be read, in
 * the order pm_counters, RAPL and hwmon. Returns false and meter->message if there are none. */
bool twill_energy_open(struct twill_energy_meter *meter, const char *sysfs);

/* Print the kind of counters and their names, such as "rapl: package-0, dram", into a text of that
 * size. */
void twill_energy_describe(const struct twill_energy_meter *meter, char *text, size_t bytes);

/* Read the counters at `now`, seconds by a monotonic clock, and add the energy since the last
 * reading to meter->joules. The first reading adds nothing. A counter may wrap once in between.
 * Sets *reading in any case. Returns false and meter->message if the energy since the last reading
 * is unknown. */
bool twill_energy_read(struct twill_energy_meter *meter, double now,
                       struct twill_energy_reading *reading);

/* Compute the joules used between two readings, by part, and the seconds between them. Returns
 * false if unknown, because one of these readings or one between them failed or no counter was
 * updated. */
bool twill_energy_between(const struct twill_energy_reading *from,
                          const struct twill_energy_reading *to, double joules[TWILL_ENERGY_PARTS],
                          double *seconds);

#endif

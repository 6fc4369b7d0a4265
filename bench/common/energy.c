/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of energy counters in sysfs. Each kind of counters is a row of `energy_kinds`. */
#include "bench/common/energy.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* pm_counters are updated ten times a second, and reading them takes far less than a tenth. */
#define STAMPED_READINGS 16
/* Most watts that a counter with a range counts. It passes a package's 262 kJ once in 262 s. */
#define MOST_WATTS 1000.0

enum {
    OF_ALL = 1 << TWILL_ENERGY_ALL,
    OF_CPU = 1 << TWILL_ENERGY_CPU,
    OF_MEMORY = 1 << TWILL_ENERGY_MEMORY
};

/* Store "folder/file" in path. Returns false if that is too long. */
static bool energy_path(char path[TWILL_ENERGY_PATH], const char *folder, const char *file)
{
    int length = snprintf(path, TWILL_ENERGY_PATH, "%s/%s", folder, file);
    return length > 0 && length < TWILL_ENERGY_PATH;
}

static bool energy_file_exists(const char *folder, const char *file)
{
    char path[TWILL_ENERGY_PATH];
    return energy_path(path, folder, file) && access(path, F_OK) == 0;
}

/* Read the first line of a file, without its newline. Returns false and sets errno on failure. */
static bool read_energy_line(const char *path, char *text, int bytes)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    errno = 0;
    bool good = fgets(text, bytes, file) != NULL;
    int error = errno != 0 ? errno : ENODATA; /* an empty file sets none */
    fclose(file);
    errno = error;
    if (good)
        text[strcspn(text, "\n")] = '\0';
    return good;
}

/* Read a number, which a unit may follow, as in "123 J". Returns false and errno on failure. */
static bool read_energy_number(const char *path, uint64_t *number)
{
    char text[128], *end;
    if (!read_energy_line(path, text, sizeof(text)))
        return false;
    errno = 0;
    *number = strtoull(text, &end, 10);
    if (errno == 0 && (text[0] < '0' || text[0] > '9' || (*end != '\0' && *end != ' ')))
        errno = EINVAL;
    return errno == 0;
}

static bool fail_energy(struct twill_energy_meter *meter, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Set the message of the meter. Returns false. */
static bool fail_energy(struct twill_energy_meter *meter, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(meter->message, sizeof(meter->message), format, arguments);
    va_end(arguments);
    return false;
}

/* Add a counter that reads folder/file. Returns false with a message if there is no place. */
static bool add_energy_counter(struct twill_energy_meter *meter, const char *folder,
                               const char *file, const char *name,
                               struct twill_energy_counter counter)
{
    if (meter->n == TWILL_ENERGY_COUNTERS)
        return fail_energy(meter, "%s: more than %d counters", folder, TWILL_ENERGY_COUNTERS);
    if (!energy_path(counter.path, folder, file))
        return fail_energy(meter, "%s: the path is too long", folder);
    snprintf(counter.name, sizeof(counter.name), "%s", name);
    meter->counters[meter->n++] = counter;
    meter->parts |= counter.parts;
    return true;
}

/* Set meter->stamp, and add Cray's pm_counters in `folder` for the node, its CPUs and its memory,
 * as far as they exist. Each reads energy or, without that file, power. Returns true also if there
 * are none. Returns false and sets meter->message if only the node's is missing or one cannot be
 * added. */
static bool find_pm_counters(struct twill_energy_meter *meter, const char *folder)
{
    static const struct {
        const char *energy, *power;
        unsigned parts;
    } files[] = {{"energy", "power", OF_ALL},
                 {"cpu_energy", "cpu_power", OF_CPU},
                 {"memory_energy", "memory_power", OF_MEMORY}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        bool energy = energy_file_exists(folder, files[i].energy);
        const char *file = energy ? files[i].energy : files[i].power;
        struct twill_energy_counter counter = {
            .unit = 1, .power = !energy, .parts = files[i].parts};
        if ((energy || energy_file_exists(folder, file)) &&
            !add_energy_counter(meter, folder, file, file, counter))
            return false;
    }
    if (meter->n > 0 && (meter->parts & OF_ALL) == 0)
        return fail_energy(meter, "%s: neither energy nor power", folder);
    return energy_path(meter->stamp, folder, "freshness") ||
           fail_energy(meter, "%s: the path is too long", folder);
}

/* Add a zone of RAPL if its name begins with "package" or is "dram". Others are parts or sums of
 * these and are skipped. Returns false with meter->message if it cannot be read or added. */
static bool add_rapl_zone(struct twill_energy_meter *meter, const char *zone)
{
    char path[TWILL_ENERGY_PATH], name[48];
    if (!energy_path(path, zone, "name") || !read_energy_line(path, name, sizeof(name)))
        return fail_energy(meter, "%s/name: %s", zone, strerror(errno));
    struct twill_energy_counter counter = {.unit = 1e-6};
    if (strncmp(name, "package", 7) == 0)
        counter.parts = OF_ALL | OF_CPU;
    else if (strcmp(name, "dram") == 0)
        counter.parts = OF_ALL | OF_MEMORY;
    else
        return true;
    if (!energy_path(path, zone, "max_energy_range_uj") ||
        !read_energy_number(path, &counter.range))
        return fail_energy(meter, "%s/max_energy_range_uj: %s", zone, strerror(errno));
    return add_energy_counter(meter, zone, "energy_uj", name, counter);
}

/* Call `add` in order of name with the path of each entry of `folder` whose name begins with
 * `prefix`, until it returns false. Returns false then and if a path is too long, else true, also
 * if there is no folder. */
static bool for_energy_folders(struct twill_energy_meter *meter, const char *folder,
                               const char *prefix,
                               bool (*add)(struct twill_energy_meter *meter, const char *path))
{
    struct dirent **entries;
    char path[TWILL_ENERGY_PATH];
    int n = scandir(folder, &entries, NULL, alphasort);
    bool good = true;
    for (int i = 0; i < n; i++) {
        if (good && strncmp(entries[i]->d_name, prefix, strlen(prefix)) == 0)
            good = energy_path(path, folder, entries[i]->d_name) && add(meter, path);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return good;
}

/* Add the zones of RAPL in `folder`, but not "intel-rapl-mmio:0", which repeats one. Returns false
 * and sets meter->message if a zone cannot be read or added. */
static bool find_rapl(struct twill_energy_meter *meter, const char *folder)
{
    return for_energy_folders(meter, folder, "intel-rapl:", add_rapl_zone);
}

/* Return whether the name of a file is `prefix`, digits and `suffix`. Stores the digits as text. */
static bool is_hwmon_file(const char *file, const char *prefix, const char *suffix, char number[8])
{
    size_t before = strlen(prefix);
    if (strncmp(file, prefix, before) != 0)
        return false;
    size_t digits = strspn(file + before, "0123456789");
    if (digits == 0 || digits > 7 || strcmp(file + before + digits, suffix) != 0)
        return false;
    memcpy(number, file + before, digits);
    number[digits] = '\0';
    return true;
}

/* Add the channel that `file` in the folder `chip` gives. `quantity` is "energy" or "power", and
 * `number` that in the file's name. Do nothing for powerN_input beside powerN_average, or for a
 * core whose socket is also a channel. Returns false with meter->message on failure. */
static bool add_hwmon_channel(struct twill_energy_meter *meter, const char *chip, const char *file,
                              const char *quantity, const char *number)
{
    char path[TWILL_ENERGY_PATH], other[32], name[24], label[24] = "", both[48];
    bool power = strcmp(quantity, "power") == 0;
    snprintf(other, sizeof(other), "power%s_average", number);
    if (power && strcmp(file, other) != 0 && energy_file_exists(chip, other))
        return true; /* powerN_input, where there is also powerN_average */
    if (!energy_path(path, chip, "name") || !read_energy_line(path, name, sizeof(name)))
        snprintf(name, sizeof(name), "hwmon");
    snprintf(other, sizeof(other), "%s%s_label", quantity, number);
    if (!energy_path(path, chip, other) || !read_energy_line(path, label, sizeof(label)))
        snprintf(label, sizeof(label), "%s%s", quantity, number);
    if (strncmp(label, "Ecore", 5) == 0)
        return true; /* amd_energy: the cores of a socket, which is itself a channel */
    snprintf(both, sizeof(both), "%s %s", name, label);
    struct twill_energy_counter counter = {.unit = 1e-6, .power = power, .parts = OF_ALL};
    return add_energy_counter(meter, chip, file, both, counter);
}

/* Add a chip's counters of energy, or if it has none those of power. Returns false on failure. */
static bool add_hwmon_chip(struct twill_energy_meter *meter, const char *chip)
{
    static const struct {
        const char *quantity, *suffix;
    } files[] = {{"energy", "_input"}, {"power", "_average"}, {"power", "_input"}};
    struct dirent **entries;
    size_t before = meter->n;
    char number[8];
    int n = scandir(chip, &entries, NULL, alphasort);
    bool good = true;
    for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
        bool has_energy = f > 0 && meter->n > before && !meter->counters[before].power;
        for (int i = 0; i < n && good && !has_energy; i++)
            if (is_hwmon_file(entries[i]->d_name, files[f].quantity, files[f].suffix, number))
                good =
                    add_hwmon_channel(meter, chip, entries[i]->d_name, files[f].quantity, number);
    }
    for (int i = 0; i < n; i++)
        free(entries[i]);
    if (n >= 0)
        free(entries);
    return good;
}

/* Add the counters of all chips. If one is ACPI's meter of the whole machine, keep only that one.
 * Returns false with meter->message on failure. */
static bool find_hwmon(struct twill_energy_meter *meter, const char *folder)
{
    static const char whole[] = "power_meter ";
    if (!for_energy_folders(meter, folder, "hwmon", add_hwmon_chip))
        return false;
    size_t n = 0;
    for (size_t i = 0; i < meter->n; i++)
        if (strncmp(meter->counters[i].name, whole, strlen(whole)) == 0)
            meter->counters[n++] = meter->counters[i];
    if (n > 0)
        meter->n = n;
    return true;
}

/* A kind of energy counters, in a constant table in order of preference. */
static const struct energy_kind {
    const char *name, *folder; /* folder below sysfs */
    /* Add the counters of `folder`, if any. Returns false with a message if one is unusable. */
    bool (*find)(struct twill_energy_meter *meter, const char *folder);
} energy_kinds[] = {
    {"pm_counters", "cray/pm_counters", find_pm_counters},
    {"rapl", "class/powercap", find_rapl},
    {"hwmon", "class/hwmon", find_hwmon},
};

/* Read each counter once and store what it shows in its member `number`. Returns false with
 * meter->message if one cannot be read. */
static bool read_energy_counters(struct twill_energy_meter *meter)
{
    for (size_t i = 0; i < meter->n; i++)
        if (!read_energy_number(meter->counters[i].path, &meter->counters[i].number))
            return fail_energy(meter, "%s: %s", meter->counters[i].path, strerror(errno));
    return true;
}

/* Read all counters into their members `number`, at most 16 times, until the stamps before and
 * after are equal. Without a stamp it does so once. Returns false with meter->message if they never
 * are, or a file cannot be read. */
static bool read_energy_at_once(struct twill_energy_meter *meter)
{
    uint64_t before = 0, after = 0;
    for (int i = 0; i < STAMPED_READINGS; i++) {
        if (meter->stamp[0] != '\0' && !read_energy_number(meter->stamp, &before))
            return fail_energy(meter, "%s: %s", meter->stamp, strerror(errno));
        if (!read_energy_counters(meter))
            return false;
        if (meter->stamp[0] != '\0' && !read_energy_number(meter->stamp, &after))
            return fail_energy(meter, "%s: %s", meter->stamp, strerror(errno));
        if (before == after)
            return true;
    }
    return fail_energy(meter, "%s: changed in each of %d readings", meter->stamp, STAMPED_READINGS);
}

/* Set *joules to the energy between two readings of a counter, counter->last and, `seconds` later,
 * counter->number. Returns false with meter->message if it is unknown. */
static bool count_energy(struct twill_energy_meter *meter,
                         const struct twill_energy_counter *counter, double seconds, double *joules)
{
    if (counter->power) {
        *joules = ((double)counter->last + (double)counter->number) / 2 * counter->unit * seconds;
        return true;
    }
    bool wrapped = counter->number < counter->last;
    if (wrapped && (counter->range == 0 || counter->last > counter->range))
        return fail_energy(meter, "%s: went back from %llu to %llu", counter->path,
                           (unsigned long long)counter->last, (unsigned long long)counter->number);
    if (counter->range > 0 && seconds * MOST_WATTS > (double)counter->range * counter->unit)
        return fail_energy(meter, "%s: may have wrapped around more than once in %.0f s",
                           counter->path, seconds);
    uint64_t counted = wrapped ? counter->range - counter->last + counter->number
                               : counter->number - counter->last;
    *joules = (double)counted * counter->unit;
    return true;
}

bool twill_energy_read(struct twill_energy_meter *meter, double now,
                       struct twill_energy_reading *reading)
{
    double joules[TWILL_ENERGY_COUNTERS] = {0};
    bool read = read_energy_at_once(meter), good = read;
    for (size_t i = 0; i < meter->n && good && meter->started; i++)
        good = count_energy(meter, &meter->counters[i], now - meter->at, &joules[i]);
    for (size_t i = 0; i < meter->n && good; i++)
        for (int part = 0; part < TWILL_ENERGY_PARTS; part++)
            if ((meter->counters[i].parts >> part & 1) != 0)
                meter->joules[part] += joules[i];
    for (size_t i = 0; i < meter->n && read; i++)
        meter->counters[i].last = meter->counters[i].number;
    meter->started = read; /* the next one is compared with this one */
    meter->gaps += !good;
    meter->at = now;
    *reading = (struct twill_energy_reading){.known = read, .at = now, .gaps = meter->gaps};
    memcpy(reading->joules, meter->joules, sizeof(reading->joules));
    return good;
}

bool twill_energy_between(const struct twill_energy_reading *from,
                          const struct twill_energy_reading *to, double joules[TWILL_ENERGY_PARTS],
                          double *seconds)
{
    *seconds = to->at - from->at;
    for (int part = 0; part < TWILL_ENERGY_PARTS; part++)
        joules[part] = to->joules[part] - from->joules[part];
    return from->known && to->known && from->gaps == to->gaps && *seconds > 0 &&
           joules[TWILL_ENERGY_ALL] > 0;
}

bool twill_energy_open(struct twill_energy_meter *meter, const char *sysfs)
{
    char why[sizeof(meter->message)] = "", folder[TWILL_ENERGY_PATH];
    for (size_t i = 0; i < sizeof(energy_kinds) / sizeof(energy_kinds[0]); i++) {
        *meter = (struct twill_energy_meter){.kind = energy_kinds[i].name};
        bool found = energy_path(folder, sysfs, energy_kinds[i].folder) &&
                     energy_kinds[i].find(meter, folder);
        if (found && meter->n > 0 && read_energy_at_once(meter))
            return true;
        if (meter->message[0] != '\0') {
            strncat(why, "; ", sizeof(why) - strlen(why) - 1);
            strncat(why, meter->message, sizeof(why) - strlen(why) - 1);
        }
    }
    *meter = (struct twill_energy_meter){.kind = "none"};
    return fail_energy(meter, "no counters of pm_counters, rapl or hwmon in %.*s%.*s",
                       TWILL_ENERGY_PATH, sysfs, TWILL_ENERGY_PATH - 64, why);
}

void twill_energy_describe(const struct twill_energy_meter *meter, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "%s", meter->kind);
    for (size_t i = 0; i < meter->n && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s %s", i == 0 ? ":" : ",",
                                 meter->counters[i].name);
}

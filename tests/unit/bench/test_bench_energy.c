/* SPDX-License-Identifier: Apache-2.0 */
/* The readers of energy counters, on a made /sys. Files are opened through a function of this test,
 * which can change what is read between two files, or refuse one. The tool is not a library, so its
 * source is included. */
#include "tests/support/unit.h"

#include <sys/stat.h>

/* What happens when a file is opened. */
static struct {
    const char *refused; /* files whose path ends so: permission denied */
    int updates;         /* times that pm_counters are updated between their freshness and energy */
    int opened;          /* times that a freshness was opened */
} script;

static char root[64];

/* Write a file below the root, and the folders that it is in. */
static void put_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "%s\n", text) > 0);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", root, name);
    assert_int_equal(unlink(path), 0);
}

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text), of_end = strlen(end);
    return length >= of_end && strcmp(text + length - of_end, end) == 0;
}

static FILE *open_scripted(const char *path, const char *mode)
{
    char text[32];
    if (script.refused != NULL && ends_in(path, script.refused)) {
        errno = EACCES;
        return NULL;
    }
    FILE *file = fopen(path, mode);
    if (!ends_in(path, "/freshness") || ++script.opened % 2 != 1 || script.updates == 0)
        return file;
    /* This file is read as it was: the update comes after. */
    script.updates--;
    assert_true(ungetc(getc(file), file) != EOF);
    snprintf(text, sizeof(text), "%d", 100 + script.opened);
    put_file("cray/pm_counters/freshness", text);
    snprintf(text, sizeof(text), "%d J", 5000 + script.opened);
    put_file("cray/pm_counters/energy", text);
    return file;
}

#define fopen open_scripted
#include "bench/common/energy.c"
#undef fopen

static int make_root(void **state)
{
    memset(&script, 0, sizeof(script));
    snprintf(root, sizeof(root), "/tmp/twill_energy_XXXXXX");
    return mkdtemp(root) == NULL;
}

static int remove_root(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

static void put_pm_counters(void)
{
    put_file("cray/pm_counters/freshness", "7");
    put_file("cray/pm_counters/energy", "1000 J");
    put_file("cray/pm_counters/power", "200 W");
    put_file("cray/pm_counters/cpu_energy", "600 J 1700000000 us");
    put_file("cray/pm_counters/memory_energy", "50 J");
}

/* A zone of powercap: its folder, name and counters in microjoules. */
static void put_zone(const char *zone, const char *name, const char *energy, const char *range)
{
    const char *const files[][2] = {
        {"name", name}, {"energy_uj", energy}, {"max_energy_range_uj", range}};
    for (size_t i = 0; i < 3; i++) {
        char file[128];
        snprintf(file, sizeof(file), "class/powercap/%s/%s", zone, files[i][0]);
        put_file(file, files[i][1]);
    }
}

/* Two packages with memory, and zones that must not be added to them. */
static void put_rapl(void)
{
    put_file("class/powercap/intel-rapl/enabled", "1");
    put_zone("intel-rapl:0", "package-0", "1000000", "262143000000");
    put_zone("intel-rapl:0:0", "core", "7", "262143000000");
    put_zone("intel-rapl:0:1", "dram", "500000", "65712000000");
    put_zone("intel-rapl:1", "package-1-die-0", "262142000000", "262143000000");
    put_zone("intel-rapl:1:0", "uncore", "7", "262143000000");
    put_zone("intel-rapl:1:1", "dram", "0", "65712000000");
    put_zone("intel-rapl:2", "psys", "7", "262143000000");
    put_zone("intel-rapl-mmio:0", "package-0", "1000000", "262143000000");
}

static void open_meter(struct twill_energy_meter *meter, const char *counters)
{
    char text[512];
    assert_true(twill_energy_open(meter, root));
    twill_energy_describe(meter, text, sizeof(text));
    assert_string_equal(text, counters);
}

static struct twill_energy_reading read_good(struct twill_energy_meter *meter, double now)
{
    struct twill_energy_reading reading;
    if (!twill_energy_read(meter, now, &reading))
        fail_msg("%s", meter->message);
    return reading;
}

static void read_bad(struct twill_energy_meter *meter, double now, const char *why,
                     struct twill_energy_reading *reading)
{
    assert_false(twill_energy_read(meter, now, reading));
    if (strstr(meter->message, why) == NULL)
        fail_msg("'%s' does not have '%s'", meter->message, why);
}

/* Check what was used between two readings. */
static void check_used(struct twill_energy_reading from, struct twill_energy_reading to,
                       double seconds, double all, double cpu, double memory)
{
    const double expected[TWILL_ENERGY_PARTS] = {all, cpu, memory};
    double joules[TWILL_ENERGY_PARTS], took;
    assert_true(twill_energy_between(&from, &to, joules, &took));
    assert_true(fabs(took - seconds) < 1e-9);
    for (int part = 0; part < TWILL_ENERGY_PARTS; part++)
        if (fabs(joules[part] - expected[part]) > 1e-6)
            fail_msg("part %d: %g J, not %g J", part, joules[part], expected[part]);
}

static void check_unknown(struct twill_energy_reading from, struct twill_energy_reading to)
{
    double joules[TWILL_ENERGY_PARTS], seconds;
    assert_false(twill_energy_between(&from, &to, joules, &seconds));
}

/* Cray's counters are preferred to RAPL's; without an update nothing is known. */
TWILL_TEST_BETWEEN(test_pm_counters, make_root, remove_root)
{
    struct twill_energy_meter meter;
    put_pm_counters();
    put_rapl();
    open_meter(&meter, "pm_counters: energy, cpu_energy, memory_energy");
    struct twill_energy_reading first = read_good(&meter, 10);
    struct twill_energy_reading same = read_good(&meter, 10.05);
    put_file("cray/pm_counters/energy", "1440 J");
    put_file("cray/pm_counters/cpu_energy", "800 J 1700000002 us");
    put_file("cray/pm_counters/memory_energy", "61 J");
    put_file("cray/pm_counters/freshness", "27");
    struct twill_energy_reading last = read_good(&meter, 12);
    check_unknown(first, same);
    check_used(first, last, 2, 440, 200, 11);
    check_used(same, last, 1.95, 440, 200, 11);
}

/* Values that are updated while they are read are read again. */
TWILL_TEST_BETWEEN(test_freshness, make_root, remove_root)
{
    struct twill_energy_meter meter;
    struct twill_energy_reading bad;
    put_pm_counters();
    open_meter(&meter, "pm_counters: energy, cpu_energy, memory_energy");
    struct twill_energy_reading first = read_good(&meter, 1);
    script.opened = 0;
    script.updates = 2;
    struct twill_energy_reading second = read_good(&meter, 2);
    assert_int_equal(script.opened, 6); /* three readings, each between two stamps */
    check_used(first, second, 1, 4003, 0, 0);

    script.updates = 1000;
    read_bad(&meter, 3, "freshness: changed in each of 16 readings", &bad);
    script.updates = 0;
    struct twill_energy_reading third = read_good(&meter, 4);
    check_unknown(second, bad);
    check_unknown(second, third);
    put_file("cray/pm_counters/energy", "9000 J");
    struct twill_energy_reading fourth = read_good(&meter, 5);
    double joules[TWILL_ENERGY_PARTS], seconds;
    assert_true(twill_energy_between(&third, &fourth, joules, &seconds));
    put_file("cray/pm_counters/energy", "12 J"); /* the controller has restarted */
    read_bad(&meter, 6, "energy: went back from 9000 to 12", &bad);
    check_unknown(fourth, bad);
    put_file("cray/pm_counters/energy", "112 J");
    check_used(bad, read_good(&meter, 7), 1, 100, 0, 0);
}

/* Without a counter of energy, power is integrated; without freshness nothing is read. */
TWILL_TEST_BETWEEN(test_pm_power, make_root, remove_root)
{
    struct twill_energy_meter meter;
    put_pm_counters();
    remove_file("cray/pm_counters/energy");
    open_meter(&meter, "pm_counters: power, cpu_energy, memory_energy");
    struct twill_energy_reading first = read_good(&meter, 1);
    put_file("cray/pm_counters/power", "300 W");
    struct twill_energy_reading last = read_good(&meter, 5);
    check_used(first, last, 4, 1000, 0, 0);
    remove_file("cray/pm_counters/freshness");
    assert_false(twill_energy_open(&meter, root));
    assert_non_null(strstr(meter.message, "pm_counters/freshness: No such file"));
    put_rapl();
    open_meter(&meter, "rapl: package-0, dram, package-1-die-0, dram");
}

TWILL_TEST_BETWEEN(test_rapl, make_root, remove_root)
{
    struct twill_energy_meter meter;
    struct twill_energy_reading bad;
    put_rapl();
    open_meter(&meter, "rapl: package-0, dram, package-1-die-0, dram");
    struct twill_energy_reading first = read_good(&meter, 0);
    put_file("class/powercap/intel-rapl:0/energy_uj", "51000000");    /* 50 J */
    put_file("class/powercap/intel-rapl:0:1/energy_uj", "4500000");   /* 4 J */
    put_file("class/powercap/intel-rapl:1/energy_uj", "39000000");    /* 1 J to the range, 39 on */
    put_file("class/powercap/intel-rapl:1:1/energy_uj", "6000000");   /* 6 J */
    put_file("class/powercap/intel-rapl:0:0/energy_uj", "999000000"); /* within package-0 */
    struct twill_energy_reading second = read_good(&meter, 1);
    check_used(first, second, 1, 100, 90, 10);
    put_file("class/powercap/intel-rapl:1/energy_uj", "41500000");
    struct twill_energy_reading third = read_good(&meter, 2);
    check_used(second, third, 1, 2.5, 2.5, 0);
    check_used(first, third, 2, 102.5, 92.5, 10);
    /* A package at 1 kW passes its range in 262 s, memory in 65.7 s. */
    read_bad(&meter, 68, "may have wrapped around more than once in 66 s", &bad);
    put_file("class/powercap/intel-rapl:1/energy_uj", "42500000");
    struct twill_energy_reading fourth = read_good(&meter, 133);
    check_unknown(third, fourth);
    check_used(bad, fourth, 65, 1, 1, 0);
}

TWILL_TEST_BETWEEN(test_vanished, make_root, remove_root)
{
    struct twill_energy_meter meter;
    struct twill_energy_reading bad;
    put_rapl();
    open_meter(&meter, "rapl: package-0, dram, package-1-die-0, dram");
    struct twill_energy_reading first = read_good(&meter, 0);
    remove_file("class/powercap/intel-rapl:1/energy_uj");
    read_bad(&meter, 1, "intel-rapl:1/energy_uj: No such file", &bad);
    check_unknown(first, bad);
    read_bad(&meter, 2, "intel-rapl:1/energy_uj: No such file", &bad);
    put_file("class/powercap/intel-rapl:1/energy_uj", "5");
    struct twill_energy_reading back = read_good(&meter, 3);
    check_unknown(first, back);
    check_unknown(bad, back);
    put_file("class/powercap/intel-rapl:1/energy_uj", "3000005");
    check_used(back, read_good(&meter, 4), 1, 3, 3, 0);
    put_file("class/powercap/intel-rapl:1/energy_uj", "much");
    read_bad(&meter, 5, "intel-rapl:1/energy_uj: Invalid argument", &bad);
}

/* A package that may not be read: the sum without it would be wrong, and hwmon is used. */
TWILL_TEST_BETWEEN(test_denied, make_root, remove_root)
{
    struct twill_energy_meter meter;
    put_rapl();
    script.refused = "intel-rapl:1/energy_uj";
    assert_false(twill_energy_open(&meter, root));
    assert_non_null(strstr(meter.message, "no counters of pm_counters, rapl or hwmon in "));
    assert_non_null(strstr(meter.message, "intel-rapl:1/energy_uj: Permission denied"));
    put_file("class/hwmon/hwmon0/name", "ina226");
    put_file("class/hwmon/hwmon0/power1_input", "1500000");
    open_meter(&meter, "hwmon: ina226 power1");
    script.refused = NULL;
    open_meter(&meter, "rapl: package-0, dram, package-1-die-0, dram");
}

TWILL_TEST_BETWEEN(test_hwmon, make_root, remove_root)
{
    struct twill_energy_meter meter;
    put_file("class/hwmon/hwmon0/name", "coretemp");
    put_file("class/hwmon/hwmon0/temp1_input", "45000");
    put_file("class/hwmon/hwmon1/name", "amd_energy");
    put_file("class/hwmon/hwmon1/energy1_input", "11");
    put_file("class/hwmon/hwmon1/energy1_label", "Ecore000");
    put_file("class/hwmon/hwmon1/energy2_input", "2000000");
    put_file("class/hwmon/hwmon1/energy2_label", "Esocket0");
    put_file("class/hwmon/hwmon1/power1_input", "90000000");
    put_file("class/hwmon/hwmon2/name", "scmi_sensors");
    put_file("class/hwmon/hwmon2/power1_average", "10000000");
    put_file("class/hwmon/hwmon2/power1_input", "99000000");
    put_file("class/hwmon/hwmon2/power1_average_interval", "1000");
    put_file("class/hwmon/hwmon2/power2_input", "2000000");
    open_meter(&meter, "hwmon: amd_energy Esocket0, scmi_sensors power1, scmi_sensors power2");
    struct twill_energy_reading first = read_good(&meter, 0);
    put_file("class/hwmon/hwmon1/energy2_input", "5500000");
    put_file("class/hwmon/hwmon2/power1_average", "14000000");
    check_used(first, read_good(&meter, 2), 2, 3.5 + 24 + 4, 0, 0);

    /* The meter of the whole machine includes all of them. */
    put_file("class/hwmon/hwmon3/name", "power_meter");
    put_file("class/hwmon/hwmon3/power1_average", "120000000");
    open_meter(&meter, "hwmon: power_meter power1");
    first = read_good(&meter, 0);
    check_used(first, read_good(&meter, 0.5), 0.5, 60, 0, 0);
}

TWILL_TEST_BETWEEN(test_none, make_root, remove_root)
{
    struct twill_energy_meter meter;
    assert_false(twill_energy_open(&meter, root));
    assert_non_null(strstr(meter.message, "no counters of pm_counters, rapl or hwmon in /tmp/"));
    put_zone("intel-rapl:0", "psys", "1", "2"); /* nothing that is added up */
    put_file("class/hwmon/hwmon0/name", "coretemp");
    assert_false(twill_energy_open(&meter, root));
    assert_null(strstr(meter.message, ";"));
    assert_false(twill_energy_open(&meter, "/nonexistent"));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What /sys says of networks: libfabric is not asked only where there is nothing but Ethernet. */
#include "fabric/ofi/ofi_devices.h"
#include "lib/base/base.h"
#include "tests/support/unit.h"

#include <sys/stat.h>

static const struct machine {
    const char *title;
    const char *files[8]; /* path=text; a path that ends with a slash is a folder */
    bool only_ethernet;
} machines[] = {
    {"no /sys", {NULL}, false},
    {"no interface", {"class/net/", NULL}, false},
    {"loopback", {"class/net/lo/type=772\n", NULL}, true},
    {"Ethernet", {"class/net/lo/type=772\n", "class/net/eth0/type=1\n", NULL}, true},
    {"a bond", {"class/net/bond0/type=1\n", "class/net/bonding_masters=bond0\n", NULL}, true},
    {"tunnels",
     {"class/net/eth0/type=1\n", "class/net/tun0/type=65534\n", "class/net/sit0/type=776\n", NULL},
     true},
    {"IP over Infiniband", {"class/net/eth0/type=1\n", "class/net/ib0/type=32\n", NULL}, false},
    {"an interface of an unknown type", {"class/net/x0/type=4242\n", NULL}, false},
    {"an interface without a type", {"class/net/x0/", NULL}, false},
    {"RoCE, EFA", {"class/net/eth0/type=1\n", "class/infiniband/efa_0/", NULL}, false},
    {"no RDMA device", {"class/net/eth0/type=1\n", "class/infiniband/", NULL}, true},
    {"Slingshot", {"class/net/hsn0/type=1\n", "class/cxi_user/cxi0/", NULL}, false},
    {"Omni-Path", {"class/net/eth0/type=1\n", "class/hfi1_user/hfi1_0/", NULL}, false},
    {"a disk on PCI",
     {"class/net/eth0/type=1\n", "bus/pci/devices/0/class=0x010802\n", NULL},
     true},
    {"Ethernet on PCI",
     {"class/net/eth0/type=1\n", "bus/pci/devices/0/class=0x020000\n", NULL},
     true},
    {"a fabric on PCI without a driver",
     {"class/net/eth0/type=1\n", "bus/pci/devices/0/class=0x020000\n",
      "bus/pci/devices/1/class=0x020800\n", NULL},
     false},
    {"a device on PCI without a class",
     {"class/net/eth0/type=1\n", "bus/pci/devices/0/", NULL},
     false},
};

/* Make a file with its folders, or a folder. */
static void make(const char *root, const char *entry)
{
    char path[256];
    const char *text = strchr(entry, '=');
    int length = text != NULL ? (int)(text - entry) : (int)strlen(entry);
    assert_true(snprintf(path, sizeof(path), "%s/%.*s", root, length, entry) < (int)sizeof(path));
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    if (text == NULL)
        return;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text + 1, file);
    assert_int_equal(fclose(file), 0);
}

TWILL_TEST(test_machines)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(machines); i++) {
        char root[] = "/tmp/twill-sys-XXXXXX", remove[64];
        assert_non_null(mkdtemp(root));
        for (const char *const *file = machines[i].files; *file != NULL; file++)
            make(root, *file);
        bool only = twill_ofi_only_ethernet(root);
        snprintf(remove, sizeof(remove), "rm -r %s", root);
        assert_int_equal(system(remove), 0);
        if (only != machines[i].only_ethernet)
            fail_msg("%s: libfabric is %s", machines[i].title, only ? "not asked" : "asked");
    }
}

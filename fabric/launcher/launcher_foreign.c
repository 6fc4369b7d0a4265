/* SPDX-License-Identifier: Apache-2.0 */
/* Options of mpirun, mpiexec, srun and torchrun that twillrun does not have. */
#include "fabric/launcher/launcher.h"

#include <string.h>

static const char ranks[] = "-n RANKS is the number of all ranks, --hosts HOST:RANKS,... has those "
                            "of each host";
static const char hosts[] = "--hosts HOST:RANKS,... starts the ranks of all hosts from one place";
static const char variable[] = "-x NAME=VALUE sets a variable for all ranks; those of twill are in "
                               "twill(7)";
static const char label[] = "-l puts \"[rank] \" before each line of output";
static const char folder[] = "ranks start in the current directory: cd there first";
static const char bind[] = "--bind core, l3, numa, package or none says what each rank may use";
static const char needless[] = "it is not needed here";

/* Names without the leading dashes, '_' as '-'. */
static const struct {
    const char *theirs, *hint;
} foreign[] = {
    {"N", ranks},
    {"c", ranks},
    {"ppn", ranks},
    {"npernode", ranks},
    {"n-per-node", ranks},
    {"nproc", ranks},
    {"nproc-per-node", ranks},
    {"ntasks", ranks},
    {"ntasks-per-node", ranks},
    {"nnodes", hosts},
    {"nodes", hosts},
    {"nodelist", hosts},
    {"node-rank", hosts},
    {"w", hosts},
    {"f", "--hostfile FILE names a file of hosts"},
    {"mca", variable},
    {"gmca", variable},
    {"prtemca", variable},
    {"pmixmca", variable},
    {"tune", variable},
    {"env", variable},
    {"genv", variable},
    {"genvlist", variable},
    {"genvall", needless},
    {"export", variable},
    {"tag-output", label},
    {"prepend-rank", label},
    {"tee", label},
    {"wdir", folder},
    {"wd", folder},
    {"chdir", folder},
    {"D", folder},
    {"cpu-bind", bind},
    {"bind-to-core", bind},
    {"bind-to-socket", bind},
    {"cpus-per-task", bind},
    {"cpus-per-rank", bind},
    {"rank-by", "--map core or node says which ranks go where"},
    {"ranks-by", "--map core or node says which ranks go where"},
    {"display-map", "--report-bindings prints what each rank is bound to"},
    {"display", "--report-bindings prints what each rank is bound to"},
    {"rsh", "--agent COMMAND says how to reach a host"},
    {"launcher", "--agent COMMAND says how to reach a host"},
    {"prefix", "--remote PATH says where twillrun is on the other hosts"},
    {"max-restarts", "--elastic MIN:MAX replaces ranks that fail"},
    {"enable-recovery", "--elastic MIN:MAX replaces ranks that fail"},
    {"allow-run-as-root", needless},
    {"standalone", needless},
    {"master-addr", needless},
    {"master-port", needless},
    {"rdzv-backend", needless},
    {"rdzv-endpoint", needless},
    {"rdzv-id", needless},
};

const char *twill_option_hint(const char *word)
{
    char name[32] = "";
    word += strspn(word, "-");
    size_t length = strcspn(word, "=");
    if (length >= sizeof(name))
        return NULL;
    for (size_t i = 0; i < length; i++)
        name[i] = word[i] == '_' ? '-' : word[i];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(foreign); i++)
        if (strcmp(name, foreign[i].theirs) == 0)
            return foreign[i].hint;
    return NULL;
}

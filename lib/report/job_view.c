/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the ranks of a job by the memfds that processes hold and have locked. */
#include "lib/report/job_view.h"
#include "fabric/host/tcp_links.h"
#include "fabric/shm/mapping.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A search for a job's regions, and why some could not be read. Lives while a view is opened. */
struct job_search {
    struct twill_job_view *view;
    const char *name;
    int pid;               /* the PID that was given, or 0 if `name` is a program */
    uint64_t job;          /* add only regions of this job, or of any if 0 */
    unsigned seen, denied; /* processes that match, and those of them that other users own */
    struct twill_host_process first; /* of those that match, or of those that are denied */
    const char *unreadable;          /* why a region could not be read, or NULL */
    struct twill_error *error;
};

/* Return whether the view has a region in this file. */
static bool is_known(const struct twill_job_view *view, const struct stat *about)
{
    for (size_t i = 0; i < view->regions; i++)
        if (view->region[i].device == about->st_dev && view->region[i].file == about->st_ino)
            return true;
    return false;
}

/* Set region->process to the process that has locked the file, or its PID to 0 if none has. */
static void find_owner(struct twill_job_region *region, int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK || lock.l_pid <= 0 ||
        !twill_process_read(lock.l_pid, &region->process) || region->process.state == 'Z')
        region->process = (struct twill_host_process){.pid = 0};
}

/* Set region->record and `entered` to the last call of the region's owner, if has_call, and in_call
 * to whether the owner is still in it. Set `suspended`. */
static void read_call(struct twill_job_region *region)
{
    const struct twill_node *node = &region->view->node;
    region->suspended = twill_node_is_suspended(node->area[0]);
    for (unsigned turn = 0; turn < 1000 && !region->has_call; turn++) /* it may be being written */
        region->has_call = twill_node_read_last_call(node, 0, &region->record, &region->entered);
    region->in_call = region->has_call && twill_node_left_call(node, 0) < region->record.sequence;
}

/* Add to the view the memory of a communicator in the region behind a descriptor, from *part on
 * (twill_node_view_open()). Skip it if it is none, unreadable (noted in search->unreadable), being
 * made, or of another job than search->job. *part becomes UINT64_MAX after the last one. Fails only
 * if out of memory. */
static twill_status add_part(struct job_search *search, int fd, const struct stat *about,
                             uint64_t *part)
{
    struct twill_job_view *view = search->view;
    const char *unreadable = search->unreadable;
    if (view->regions == view->capacity) {
        size_t capacity = view->capacity * 2 + 16;
        struct twill_job_region *more = realloc(view->region, capacity * sizeof(*more));
        if (more == NULL)
            return TWILL_FAIL(search->error, TWILL_ERR_MEMORY, "out of memory");
        view->region = more;
        view->capacity = capacity;
    }
    struct twill_job_region *region = &view->region[view->regions];
    *region = (struct twill_job_region){.device = about->st_dev, .file = about->st_ino};
    bool own = *part == 0;
    region->view = twill_node_view_open(fd, part, &unreadable);
    search->unreadable = own ? unreadable : search->unreadable;
    if (region->view == NULL)
        return TWILL_OK;
    search->unreadable = NULL;
    region->owner = twill_node_view_owner(region->view);
    if (region->owner->job == 0 || /* it is being made */
        (search->job != 0 && region->owner->job != search->job)) {
        twill_node_view_close(region->view);
        return TWILL_OK;
    }
    find_owner(region, fd);
    view->regions++;
    return TWILL_OK;
}

/* Add to the view what the region behind a descriptor has, which stays open, unless the view has
 * it. Fails only if out of memory. */
static twill_status add_region(struct job_search *search, int fd)
{
    struct stat about;
    if (fstat(fd, &about) != 0 || is_known(search->view, &about))
        return TWILL_OK;
    for (uint64_t part = 0; part != UINT64_MAX;)
        TWILL_TRY(NULL, add_part(search, fd, &about, &part));
    return TWILL_OK;
}

/* Add the regions whose memfds a process holds, which are its own and those of ranks after it.
 * Counts a process that may not be read in search->denied. Fails only if out of memory. */
static twill_status search_process(struct job_search *search,
                                   const struct twill_host_process *process)
{
    char path[80], target[80];
    snprintf(path, sizeof(path), "/proc/%d/fd", process->pid);
    DIR *folder = opendir(path);
    const struct dirent *entry;
    if (search->seen++ == 0)
        search->first = *process;
    if (folder == NULL) {
        if ((errno == EACCES || errno == EPERM) && search->denied++ == 0)
            search->first = *process;
        return TWILL_OK;
    }
    twill_status status = TWILL_OK;
    while (status == TWILL_OK && (entry = readdir(folder)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", process->pid, atoi(entry->d_name));
        ssize_t got = readlink(path, target, sizeof(target) - 1);
        target[got > 0 ? got : 0] = '\0';
        if (strncmp(target, "/memfd:" TWILL_MAPPING_COMM, strlen("/memfd:" TWILL_MAPPING_COMM)) !=
            0)
            continue;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        status = add_region(search, fd);
        close(fd);
    }
    closedir(folder);
    return status;
}

/* Return whether process `pid` is `from`, or descends from it. */
static bool descends(const struct twill_host_process *list, size_t count, int pid, int from)
{
    for (unsigned depth = 0; depth < 64 && pid > 1; depth++) {
        if (pid == from)
            return true;
        size_t i = 0;
        while (i < count && list[i].pid != pid)
            i++;
        pid = i < count ? list[i].parent : 0;
    }
    return false;
}

/* Return whether a process is or descends from search->pid or, if that is 0, has the name
 * search->name. Returns false for the calling process. */
static bool matches(const struct job_search *search, const struct twill_host_process *list,
                    size_t count, const struct twill_host_process *process)
{
    if (process->pid == getpid())
        return false;
    if (search->pid > 0)
        return descends(list, count, process->pid, search->pid);
    return strncmp(process->name, search->name, sizeof(process->name) - 1) == 0;
}

/* Order two regions by job, communicator and rank, for qsort(). */
static int compare_regions(const void *a, const void *b)
{
    const struct twill_node_owner *x = ((const struct twill_job_region *)a)->owner;
    const struct twill_node_owner *y = ((const struct twill_job_region *)b)->owner;
    if (x->job != y->job)
        return x->job < y->job ? -1 : 1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    if (x->root != y->root)
        return x->root < y->root ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Return the error of a search that found nothing, with a message that says why. It is
 * TWILL_ERR_SYSTEM if a process or its memory could not be read, and TWILL_ERR_ARGUMENT if there is
 * nothing to read. */
static twill_status refuse_search(const struct job_search *search)
{
    const struct twill_host_process *first = &search->first;
    if (search->seen == 0 && search->pid > 0)
        return TWILL_FAIL(search->error, TWILL_ERR_ARGUMENT, "no process has the PID %d",
                          search->pid);
    if (search->seen == 0)
        return TWILL_FAIL(search->error, TWILL_ERR_ARGUMENT, "no process is called %s",
                          search->name);
    if (search->denied > 0)
        return TWILL_FAIL(search->error, TWILL_ERR_SYSTEM,
                          "process %d (%s) belongs to user %u: ask as that user, or as root",
                          first->pid, first->name, first->user);
    if (search->unreadable != NULL)
        return TWILL_FAIL(search->error, TWILL_ERR_SYSTEM,
                          "process %d (%s): its shared memory cannot be read: %s", first->pid,
                          first->name, search->unreadable);
    if (search->pid == 0)
        return TWILL_FAIL(search->error, TWILL_ERR_ARGUMENT,
                          "process %d (%s) has no communicator of twill: what it has started is "
                          "searched only by its PID",
                          first->pid, first->name);
    return TWILL_FAIL(search->error, TWILL_ERR_ARGUMENT,
                      "process %d (%s), and what it has started, has no communicator of twill",
                      first->pid, first->name);
}

/* Return TWILL_ERR_ARGUMENT unless all regions, which are sorted, are of one job. */
static twill_status check_one_job(const struct job_search *search)
{
    const struct twill_job_view *view = search->view;
    const struct twill_job_region *first = view->region, *last = first + view->regions - 1;
    if (first->owner->job == last->owner->job)
        return TWILL_OK;
    return TWILL_FAIL(search->error, TWILL_ERR_ARGUMENT,
                      "%s is in several jobs: name one by a PID, such as %d or %d", search->name,
                      first->process.pid, last->process.pid);
}

/* Find and sort the regions of the job. Returns TWILL_OK, or the error if there is not one job. */
static twill_status find_regions(struct job_search *search)
{
    struct twill_job_view *view = search->view;
    struct twill_host_process *list;
    size_t count = twill_process_list(&list);
    twill_status status = TWILL_OK;
    for (size_t i = 0; i < count && status == TWILL_OK; i++)
        if (matches(search, list, count, &list[i]))
            status = search_process(search, &list[i]);
    /* The job's other ranks, which may have other parents and names. */
    search->job = view->regions > 0 ? view->region[0].owner->job : 0;
    for (size_t i = 0; i < count && status == TWILL_OK && search->job != 0; i++)
        if (list[i].pid != getpid())
            status = search_process(search, &list[i]);
    free(list);
    if (status != TWILL_OK)
        return status;
    if (view->regions == 0)
        return refuse_search(search);
    qsort(view->region, view->regions, sizeof(*view->region), compare_regions);
    return check_one_job(search);
}

/* Set of each region the last call of its rank, and `rate`, the nanoseconds of a tick of
 * twill_ticks(), or 0 if unknown. The rate is from the clocks now and those that the rank stored
 * when it began. Also set view->ticks to this moment. */
static void take_snapshot(struct twill_job_view *view)
{
    uint64_t now = twill_now();
    view->ticks = twill_ticks();
    for (size_t i = 0; i < view->regions; i++) {
        struct twill_job_region *region = &view->region[i];
        const struct twill_node_owner *owner = region->owner;
        read_call(region);
        region->rate = view->ticks > owner->ticks && now > owner->ns
                           ? (double)(now - owner->ns) / (double)(view->ticks - owner->ticks)
                           : 0;
    }
}

/* Append the line of the connection behind a descriptor of a process, if it is one of `links`. */
static void list_link(struct twill_job_view *view, const struct twill_job_region *region,
                      const char *descriptor, const struct twill_tcp_link *links, size_t count)
{
    char path[80], target[80];
    unsigned long long inode;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", region->process.pid, atoi(descriptor));
    ssize_t got = readlink(path, target, sizeof(target) - 1);
    target[got > 0 ? got : 0] = '\0';
    if (sscanf(target, "socket:[%llu]", &inode) != 1)
        return;
    for (size_t i = 0; i < count; i++)
        if (links[i].inode == inode)
            twill_job_add_line(view, "link\t%u\t%s\t%s\t%llu\t%.6f", region->owner->job_rank,
                               links[i].local, links[i].remote, (unsigned long long)links[i].bytes,
                               links[i].busy);
}

/* Append a line for each TCP connection of the ranks' processes. */
static void list_links(struct twill_job_view *view)
{
    struct twill_tcp_link *links;
    size_t count = twill_tcp_links_list(&links);
    for (size_t i = 0; i < view->regions && count > 0; i++) {
        const struct twill_job_region *region = &view->region[i];
        char path[40];
        const struct dirent *entry;
        snprintf(path, sizeof(path), "/proc/%d/fd", region->process.pid);
        DIR *folder = region->process.pid > 0 && twill_job_is_first(view, i) ? opendir(path) : NULL;
        while (folder != NULL && (entry = readdir(folder)) != NULL)
            list_link(view, region, entry->d_name, links, count);
        if (folder != NULL)
            closedir(folder);
    }
    free(links);
}

twill_status twill_job_view_open(twill_job_view **made, const char *name, size_t events,
                                 char *message, size_t bytes)
{
    struct twill_error error = {.status = TWILL_OK};
    char *end;
    if (made != NULL)
        *made = NULL;
    if (made == NULL || name == NULL) {
        snprintf(message, bytes, "%s is NULL", made == NULL ? "view" : "name");
        return TWILL_ERR_ARGUMENT;
    }
    long pid = strtol(name, &end, 10);
    struct twill_job_view *view = calloc(1, sizeof(*view));
    struct job_search search = {.view = view,
                                .name = name,
                                .pid = *end == '\0' && pid > 0 && pid <= INT32_MAX ? (int)pid : 0,
                                .error = &error};
    twill_status status = view == NULL ? TWILL_FAIL(&error, TWILL_ERR_MEMORY, "out of memory")
                                       : find_regions(&search);
    if (status == TWILL_OK) {
        take_snapshot(view);
        twill_job_list(view, events);
        list_links(view);
        twill_job_find(view);
        if (view->short_of_memory)
            status = TWILL_FAIL(&error, TWILL_ERR_MEMORY, "out of memory");
    }
    if (status == TWILL_OK)
        *made = view;
    else
        twill_job_view_close(view);
    snprintf(message, bytes, "%s", error.message);
    return status;
}

const char *twill_job_view_line(const twill_job_view *view, size_t index)
{
    return index < view->lines ? view->line[index] : NULL;
}

void twill_job_view_close(twill_job_view *view)
{
    if (view == NULL)
        return;
    for (size_t i = 0; i < view->regions; i++)
        twill_node_view_close(view->region[i].view);
    for (size_t i = 0; i < view->lines; i++)
        free(view->line[i]);
    free(view->region);
    free(view->line);
    free(view);
}

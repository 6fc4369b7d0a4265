/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the rails of a job. Each rank sends its rails and the request in TWILL_RAILS. All ranks
 * then compute the same number, order and weights. By default (auto), only rails that are certain
 * to help are used. These are real devices that are up, as near and as fast as the best, and
 * present on every rank, but only one in an IP network, as the kernel uses only one. */
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/rails/rails.h"
#include "lib/base/plural.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BY_NAME "TWILL_INTERFACE="

/* The rails of this rank, rail[0 .. info.count-1], and what it sends to the others about them. Part
 * of struct twill_rails_opening, or a local variable. */
struct own_rails {
    bool listed;     /* the user named them */
    char faster[96]; /* text for messages on the device in the network info.faster, or "" */
    struct twill_rails_info info;
    struct twill_rail rail[TWILL_RAILS_MOST];
};

/* The state of agreeing on rails, from twill_rails_offer() to twill_rails_opening_end(). */
struct twill_rails_opening {
    struct own_rails own;
    struct twill_rails_info *all; /* [size] */
};

/* Return whether a rail is nearer than another, or as near and faster. */
static bool goes_before(const struct twill_rail *a, const struct twill_rail *b)
{
    return a->distance != b->distance ? a->distance < b->distance : a->mbits > b->mbits;
}

void twill_rails_order(struct twill_rail *rails, size_t count, uint32_t l)
{
    size_t equal = 1;
    for (size_t i = 1; i < count; i++)
        for (size_t k = i; k > 0 && goes_before(&rails[k], &rails[k - 1]); k--) {
            struct twill_rail other = rails[k];
            rails[k] = rails[k - 1];
            rails[k - 1] = other;
        }
    while (equal < count && !goes_before(&rails[0], &rails[equal]))
        equal++;
    for (uint32_t turns = (uint32_t)(l % equal); count > 0 && turns > 0; turns--) {
        struct twill_rail first = rails[0];
        memmove(rails, rails + 1, (equal - 1) * sizeof(*rails));
        rails[equal - 1] = first;
    }
}

/* Set info->setting to the form of `text`, the value of TWILL_RAILS, and info->requested to its
 * number, if it is one. Returns TWILL_ERR_CONFIG unless that is 1 to TWILL_RAILS_MOST. */
static twill_status parse_setting(const char *text, struct twill_rails_info *info,
                                  struct twill_error *error)
{
    char *end;
    info->setting = TWILL_RAILS_LIST;
    if (text == NULL || *text == '\0' || strcmp(text, "auto") == 0) {
        info->setting = TWILL_RAILS_AUTO;
        return TWILL_OK;
    }
    if (strspn(text, "0123456789") != strlen(text))
        return TWILL_OK;
    unsigned long number = strtoul(text, &end, 10);
    info->setting = TWILL_RAILS_NUMBER;
    info->requested = (uint32_t)number;
    if (number < 1 || number > TWILL_RAILS_MOST)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_RAILS=%s: 1 to %d rails are possible",
                          text, TWILL_RAILS_MOST);
    return TWILL_OK;
}

/* Append the rails of `text`, such as "eth0,eth1", to *own and set own->listed. Fails if one does
 * not exist or they are more than TWILL_RAILS_MOST. Messages name `variable`. */
static twill_status read_list(struct own_rails *own, const struct twill_transport_ops *ops,
                              const struct twill_transport_params *params, const char *variable,
                              const char *text, struct twill_error *error)
{
    own->listed = true;
    for (const char *at = text; *at != '\0';) {
        char name[TWILL_ADDRESS_TEXT];
        size_t length = strcspn(at, ","), found = 0;
        if (own->info.count == TWILL_RAILS_MOST)
            return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s=%s: more than %d rails", variable, text,
                              TWILL_RAILS_MOST);
        if (length == 0 || length >= sizeof(name))
            return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s=%s: a name is missing at \"%s\"",
                              variable, text, at);
        memcpy(name, at, length);
        name[length] = '\0';
        struct twill_error local = {0};
        twill_status status =
            ops->rails(params, name, &own->rail[own->info.count], 1, &found, &local);
        bool other = strncmp(local.message, BY_NAME, strlen(BY_NAME)) == 0;
        if (status != TWILL_OK) /* its messages only name TWILL_INTERFACE */
            return TWILL_FAIL(error, status, "%s%s%s", other ? variable : "", other ? "=" : "",
                              local.message + (other ? strlen(BY_NAME) : 0));
        own->info.count += (uint32_t)found;
        at += length + (at[length] == ',');
    }
    return TWILL_OK;
}

/* Keep, of own->rail[0 .. found-1], the first rail and those of equal speed that are as near. Set
 * info.count to their number. If the first is on_demand or its speed is not known, keep only
 * that. */
static void keep_equals(struct own_rails *own, size_t found)
{
    const struct twill_rail *best = &own->rail[0];
    uint32_t kept = 1;
    for (size_t i = 1; i < found && !best->on_demand && best->mbits > 0; i++) {
        const struct twill_rail *rail = &own->rail[i];
        if (!rail->on_demand && rail->mbits == best->mbits && rail->distance <= best->distance)
            own->rail[kept++] = *rail;
    }
    own->info.count = kept;
}

/* Find the fastest of own->rail[0 .. found-1] by the speeds that drivers report. If it is at least
 * twice as fast as the first, set own->faster to its label and info.faster to its network. Only the
 * user knows whether it leads to the other hosts. */
static void note_faster(struct own_rails *own, size_t found)
{
    const struct twill_rail *first = &own->rail[0], *fastest = first;
    for (size_t i = 1; i < found; i++)
        if (!own->rail[i].on_demand && own->rail[i].mbits > fastest->mbits)
            fastest = &own->rail[i];
    if (first->on_demand || first->mbits == 0 || fastest->mbits / 2 < first->mbits)
        return;
    own->info.faster = fastest->network;
    snprintf(own->faster, sizeof(own->faster), "%s", fastest->label);
}

/* Set *own to the rails that a list in TWILL_RAILS names or, without one, a list in
 * TWILL_INTERFACE. With neither, take those that the transport finds, and by default of these only
 * the nearest of equal speed. Returns TWILL_OK or the error. */
static twill_status find_rails(struct own_rails *own, const struct twill_transport_ops *ops,
                               const struct twill_transport_params *params,
                               struct twill_error *error)
{
    struct twill_rails_info *info = &own->info;
    const char *listed = params->interface != NULL ? strchr(params->interface, ',') : NULL;
    size_t found = 0;
    const char *setting = twill_transport_setting(params, "TWILL_RAILS");
    TWILL_TRY(error, parse_setting(setting, info, error));
    if (info->setting == TWILL_RAILS_LIST)
        return read_list(own, ops, params, "TWILL_RAILS", setting, error);
    if (listed != NULL && info->setting == TWILL_RAILS_AUTO)
        info->setting = TWILL_RAILS_LIST;
    if (listed != NULL) {
        TWILL_TRY(error, read_list(own, ops, params, "TWILL_INTERFACE", params->interface, error));
        return TWILL_OK;
    }
    TWILL_TRY(error, ops->rails(params, NULL, own->rail, TWILL_RAILS_MOST, &found, error));
    if (found == 0)
        return TWILL_FAIL(
            error, TWILL_ERR_FABRIC,
            "%s: no network leads to other hosts: set TWILL_INTERFACE to one that does", ops->name);
    info->count = (uint32_t)found;
    if (info->setting == TWILL_RAILS_AUTO) {
        note_faster(own, found);
        keep_equals(own, found);
    }
    return TWILL_OK;
}

bool twill_rails_are_listed(const char *text)
{
    struct twill_rails_info info = {.requested = 0};
    return parse_setting(text, &info, NULL) == TWILL_OK && info.setting == TWILL_RAILS_LIST;
}

twill_status twill_rails_check(const struct twill_transport_ops *ops,
                               const struct twill_transport_params *params,
                               struct twill_error *error)
{
    struct own_rails own;
    memset(&own, 0, sizeof(own));
    return find_rails(&own, ops, params, error);
}

/* Set the status in own->info, and the message to that of `error` unless the status is TWILL_OK.
 * Set the network, speed and name of each of the info.count rails. */
static void fill_info(struct own_rails *own, twill_status status, const struct twill_error *error)
{
    struct twill_rails_info *info = &own->info;
    info->status = status;
    if (status != TWILL_OK)
        snprintf(info->message, sizeof(info->message), "%.191s", error->message);
    for (uint32_t i = 0; i < info->count; i++) {
        info->rail[i].network = own->rail[i].network;
        info->rail[i].mbits = own->rail[i].mbits;
        const char *label = own->rail[i].label;
        memcpy(info->rail[i].name, label,
               twill_min(strcspn(label, " "), sizeof(info->rail[i].name) - 1));
    }
}

/* Return the status of the first rank that failed, with its message. Return TWILL_ERR_CONFIG if
 * settings or numbers of rails differ, or TWILL_ERR_INTERNAL if they are impossible. */
static twill_status check_rails(const struct twill_rails_info *infos, uint32_t ranks,
                                struct twill_error *error)
{
    static const char *const settings[] = {"TWILL_RAILS=auto", "a number in TWILL_RAILS",
                                           "a list of rails"};
    for (uint32_t r = 0; r < ranks; r++) {
        const struct twill_rails_info *info = &infos[r];
        if (info->status != TWILL_OK)
            return TWILL_FAIL(error, twill_status_received(info->status), "rank %u: %.191s", r,
                              info->message);
        if (info->setting > TWILL_RAILS_LIST || info->count < 1 || info->count > TWILL_RAILS_MOST ||
            info->requested > TWILL_RAILS_MOST ||
            (info->setting == TWILL_RAILS_NUMBER && info->requested < 1))
            return TWILL_FAIL(error, TWILL_ERR_INTERNAL,
                              "rank %u sent an unknown kind of rails: its memory is damaged, or it "
                              "runs another version of twill",
                              r);
        if (info->setting != infos[0].setting || info->requested != infos[0].requested)
            return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                              "rank %u has %s (%u), rank 0 %s (%u): the number of rails must be "
                              "the same on all ranks",
                              r, settings[info->setting], info->requested,
                              settings[infos[0].setting], infos[0].requested);
        if (info->setting == TWILL_RAILS_LIST && info->count != infos[0].count)
            return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                              "rank %u lists %u rail%s, rank 0 lists %u (TWILL_RAILS, "
                              "TWILL_INTERFACE): the number must be the same on all ranks",
                              r, info->count, TWILL_PLURAL(info->count), infos[0].count);
    }
    return TWILL_OK;
}

/* Set *place to the index of the first rail in info->rail[] that is in this network and not in
 * *taken, a bit for each index. Sets its bit there. Returns false if there is none. */
static bool find_partner(const struct twill_rails_info *info, uint64_t network, uint32_t *taken,
                         uint32_t *place)
{
    for (uint32_t i = 0; i < info->count; i++) {
        if (info->rail[i].network != network || (*taken >> i & 1) != 0)
            continue;
        *taken |= 1u << i;
        *place = i;
        return true;
    }
    return false;
}

/* Match the rails of all ranks by network, and return their number. places[r][k] is the index of
 * rail k among those of rank r. Networks without some rank are left out, but one rail remains. */
static uint32_t match_rails(const struct twill_rails_info *infos, uint32_t ranks,
                            uint8_t (*places)[TWILL_RAILS_MOST])
{
    uint32_t count = 0;
    for (uint32_t own = 0; own < infos[0].count; own++) {
        bool all = true;
        for (uint32_t r = 0; r < ranks && all; r++) {
            uint32_t place = own, taken = 0;
            for (uint32_t k = 0; k < count; k++)
                taken |= 1u << places[r][k];
            all = r == 0 || find_partner(&infos[r], infos[0].rail[own].network, &taken, &place);
            places[r][count] = (uint8_t)place;
        }
        count += all;
    }
    if (count > 0)
        return count;
    for (uint32_t r = 0; r < ranks; r++)
        places[r][0] = 0;
    return 1;
}

/* Set weight[k] of each rail in proportion to its speed on the slowest rank, or all to 1 if a speed
 * is unknown. places[r][k] is the index of rail k in infos[r].rail[]. */
static void weigh_rails(const struct twill_rails_info *infos, uint32_t ranks,
                        uint8_t (*places)[TWILL_RAILS_MOST], uint32_t count, uint32_t *weight)
{
    uint32_t least = UINT32_MAX;
    for (uint32_t k = 0; k < count; k++) {
        weight[k] = UINT32_MAX;
        for (uint32_t r = 0; r < ranks; r++)
            weight[k] = twill_min(weight[k], infos[r].rail[places[r][k]].mbits);
        least = twill_min(least, weight[k]);
    }
    for (uint32_t k = 0; k < count; k++)
        /* in tenths of the slowest, or in whole multiples of it */
        weight[k] = least == 0 ? 1 : (uint32_t)twill_min((uint64_t)weight[k] * 10 / least, 1000);
    for (uint32_t k = 0; k < count; k++)
        if (weight[k] % 10 != 0)
            return;
    for (uint32_t k = 0; k < count; k++)
        weight[k] = twill_max(weight[k] / 10, 1u);
}

twill_status twill_rails_agree(const struct twill_rails_info *infos, uint32_t ranks, uint32_t rank,
                               uint32_t place[TWILL_RAILS_MOST], uint32_t weight[TWILL_RAILS_MOST],
                               uint32_t *count, struct twill_error *error)
{
    TWILL_TRY(error, check_rails(infos, ranks, error));
    uint8_t(*places)[TWILL_RAILS_MOST] = calloc(ranks, sizeof(*places));
    if (places == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rails: no memory for %u ranks", ranks);
    if (infos[0].setting == TWILL_RAILS_LIST) {
        *count = infos[0].count;
        for (uint32_t r = 0; r < ranks; r++)
            for (uint32_t k = 0; k < *count; k++)
                places[r][k] = (uint8_t)k;
    } else {
        *count = match_rails(infos, ranks, places);
    }
    uint32_t requested = infos[0].requested, have = *count;
    if (infos[0].setting == TWILL_RAILS_NUMBER) {
        for (uint32_t r = 0; r < ranks; r++)
            for (uint32_t k = have; k < requested; k++)
                places[r][k] = places[r][k % have];
        *count = requested;
    }
    weigh_rails(infos, ranks, places, *count, weight);
    for (uint32_t k = 0; k < *count; k++)
        place[k] = places[rank][k];
    free(places);
    return TWILL_OK;
}

/* Set choice->taken to the names of the rails that the ranks of this node use. */
static void describe_taken(struct twill_rails_choice *choice, const struct twill_rails_info *infos,
                           const struct twill_transport_params *params)
{
    const struct twill_world *world = params->world;
    size_t used = 0;
    for (uint32_t r = 0; world != NULL && r < world->size && used < sizeof(choice->taken); r++) {
        uint32_t place[TWILL_RAILS_MOST], weight[TWILL_RAILS_MOST], count = 0;
        struct twill_error ignored = {0};
        if (world->node[r] != world->node[params->oob->rank] ||
            twill_rails_agree(infos, world->size, r, place, weight, &count, &ignored) != TWILL_OK)
            continue;
        used += (size_t)snprintf(choice->taken + used, sizeof(choice->taken) - used, "%srank %u",
                                 used > 0 ? "; " : "", r);
        for (uint32_t k = 0; k < count && used < sizeof(choice->taken); k++)
            used += (size_t)snprintf(choice->taken + used, sizeof(choice->taken) - used, " %.19s",
                                     infos[r].rail[place[k]].name);
    }
}

twill_status twill_rails_offer(struct twill_rails_opening **opening,
                               const struct twill_transport_ops *ops,
                               const struct twill_transport_params *params,
                               struct twill_oob_batch *batch, struct twill_error *error)
{
    struct twill_rails_opening *made = calloc(1, sizeof(*made));
    if (made != NULL)
        made->all = calloc((size_t)params->oob->size, sizeof(*made->all));
    bool fine = made != NULL && made->all != NULL;
    *opening = fine ? made : NULL;
    twill_oob_batch_add(batch, fine ? &made->own.info : NULL, fine ? made->all : NULL,
                        sizeof(struct twill_rails_info));
    if (!fine) {
        free(made);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rails: no memory for %d ranks",
                          params->oob->size);
    }
    struct twill_error local = {0};
    fill_info(&made->own, find_rails(&made->own, ops, params, &local), &local);
    return TWILL_OK;
}

void twill_rails_opening_end(struct twill_rails_opening *opening)
{
    if (opening != NULL)
        free(opening->all);
    free(opening);
}

/* Close the shared state of all rails and free the choice. */
static void close_choice(struct twill_common *common)
{
    struct twill_rails_choice *choice = (struct twill_rails_choice *)common;
    for (uint32_t k = 0; k < TWILL_RAILS_MOST; k++)
        if (choice->way[k].common != NULL)
            choice->way[k].common->close(choice->way[k].common);
    free(choice);
}

/* Let the shared state of all rails drop what it keeps for this memory. */
static void forget_memory(struct twill_common *common, const void *start, size_t bytes)
{
    struct twill_rails_choice *choice = (struct twill_rails_choice *)common;
    for (uint32_t k = 0; k < TWILL_RAILS_MOST; k++)
        twill_common_forget(&choice->way[k].common, start, bytes);
}

/* Return whether all ranks have a faster network that is not used, and warn of it. */
static bool warn_of_faster(const struct twill_rails_opening *opening,
                           const struct twill_transport_params *params)
{
    const struct own_rails *own = &opening->own;
    for (int r = 0; r < params->oob->size; r++)
        if (opening->all[r].faster == 0 || opening->all[r].faster != own->info.faster)
            return false;
    twill_say(params->log, twill_log_once(TWILL_LOG_WARN, params->oob->rank == 0),
              "rails: %s leads to rank 0 and is used, but %s is faster, and all ranks have that "
              "network: if it connects the hosts, TWILL_INTERFACE=%.*s takes it",
              own->rail[0].label, own->faster, (int)strcspn(own->faster, " "), own->faster);
    return true;
}

twill_status twill_rails_conclude(const struct twill_rails_opening *opening,
                                  const struct twill_transport_params *params,
                                  struct twill_rails_choice **choice, struct twill_error *error)
{
    static const char *const whys[] = {"TWILL_RAILS=auto: devices as fast and near as the first",
                                       "the number set by TWILL_RAILS", "as listed"};
    const struct own_rails *own = &opening->own;
    uint32_t place[TWILL_RAILS_MOST], weight[TWILL_RAILS_MOST], count;
    TWILL_TRY(error, twill_rails_agree(opening->all, (uint32_t)params->oob->size,
                                       (uint32_t)params->oob->rank, place, weight, &count, error));
    struct twill_rails_choice *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rails: out of memory");
    made->common.close = close_choice;
    made->common.forget = forget_memory;
    made->count = count;
    made->named = own->listed;
    made->faster = warn_of_faster(opening, params);
    made->unmeasured = count > 1 && own->info.setting != TWILL_RAILS_AUTO;
    describe_taken(made, opening->all, params);
    snprintf(made->why, sizeof(made->why), "%s", whys[own->info.setting]);
    for (uint32_t k = 0; k < count; k++)
        made->way[k] = (struct twill_rails_way){.rail = own->rail[place[k]], .weight = weight[k]};
    *choice = made;
    return TWILL_OK;
}

/* Open the rails of weight above 0. The open ones are in rail[0 .. *opened-1], also on failure. */
static twill_status rails_open(struct twill_rails_choice *choice, struct twill_transport **rail,
                               uint32_t *opened, const struct twill_transport_ops *ops,
                               const struct twill_transport_params *params,
                               struct twill_error *error)
{
    *opened = 0;
    for (uint32_t k = 0; k < choice->count; k++) {
        struct twill_rails_way *way = &choice->way[k];
        struct twill_transport_params own = *params;
        if (way->weight == 0)
            continue;
        own.common = params->common != NULL ? &way->common : NULL;
        if (choice->count > 1 || choice->named || !way->rail.is_default)
            own.interface = way->rail.name;
        TWILL_TRY(error, ops->open(&rail[*opened], &own, error));
        rail[*opened]->label = way->rail.label[0] != '\0' ? way->rail.label : NULL;
        ++*opened;
    }
    return TWILL_OK;
}

/* Close those of the open rail[] that have weight 0. The others become rail[0 .. *opened-1]. */
static void close_unused(const struct twill_rails_choice *choice, struct twill_transport **rail,
                         uint32_t *opened)
{
    *opened = 0;
    for (uint32_t k = 0; k < choice->count; k++) {
        if (choice->way[k].weight > 0)
            rail[(*opened)++] = rail[k];
        else
            rail[k]->ops->close(rail[k]);
    }
}

/* Set *transport to the rail or the composite of a choice. If choice->unmeasured is set and there
 * are several nodes, first measure the rails and close those that are not used. Collective. */
static twill_status open_chosen(struct twill_transport **transport,
                                struct twill_rails_choice *choice,
                                const struct twill_transport_ops *ops,
                                const struct twill_transport_params *params,
                                struct twill_error *error)
{
    struct twill_transport *rail[TWILL_RAILS_MOST] = {NULL};
    uint32_t opened, used = 0, weight[TWILL_RAILS_MOST];
    twill_status status = rails_open(choice, rail, &opened, ops, params, error);
    bool between = params->world != NULL && params->world->nodes > 1;
    if (status == TWILL_OK && choice->unmeasured && between) {
        status = twill_rails_measure(choice, rail, params, error);
        choice->unmeasured = status != TWILL_OK;
        if (status == TWILL_OK)
            close_unused(choice, rail, &opened);
    }
    if (status != TWILL_OK) {
        while (opened-- > 0)
            ops->close(rail[opened]);
        return status;
    }
    *transport = rail[0];
    if (opened == 1)
        return TWILL_OK;
    for (uint32_t k = 0; k < choice->count; k++)
        if (choice->way[k].weight > 0)
            weight[used++] = choice->way[k].weight;
    return twill_rails_join(transport, rail, weight, opened, TWILL_RAILS_SPLIT_BYTES, params,
                            error);
}

/* Set *choice to the rails that all ranks agree on, with an exchange for that only. Collective. */
static twill_status choose_rails(struct twill_rails_choice **choice,
                                 const struct twill_transport_ops *ops,
                                 const struct twill_transport_params *params,
                                 struct twill_error *error)
{
    struct twill_oob_batch batch = {.oob = params->oob};
    struct twill_rails_opening *opening;
    twill_status status = twill_rails_offer(&opening, ops, params, &batch, error);
    status = twill_oob_batch_exchange(&batch, status, error);
    if (status == TWILL_OK)
        status = twill_rails_conclude(opening, params, choice, error);
    twill_rails_opening_end(opening);
    return status;
}

twill_status twill_rails_open(struct twill_transport **transport,
                              const struct twill_transport_ops *ops,
                              const struct twill_transport_params *params,
                              struct twill_error *error)
{
    *transport = NULL;
    if (ops->rails == NULL || params->common == NULL)
        return ops->open(transport, params, error);
    struct twill_rails_choice *choice = (struct twill_rails_choice *)*params->common;
    if (choice == NULL) {
        TWILL_TRY(error, choose_rails(&choice, ops, params, error));
        twill_common_put(params->common, &choice->common);
    }
    return open_chosen(transport, choice, ops, params, error);
}

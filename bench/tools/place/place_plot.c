/* SPDX-License-Identifier: Apache-2.0 */
/* twill-place --plot: bars of each kind of memory's rates over those of the first. */
#include "bench/tools/place/place.h"

#include <errno.h>
#include <string.h>

#define PLOT_LEFT   60.0
#define PLOT_WIDTH  760.0
#define PLOT_TOP    40.0
#define PLOT_HEIGHT 240.0

static double ratio_of(const struct memory_kind *kinds, size_t kind, int work)
{
    double base = kinds[0].rates[work];
    return base > 0 ? kinds[kind].rates[work] / base : 0;
}

static void draw_bars(FILE *out, const struct memory_kind *kinds, size_t count, double most)
{
    static const char *const colours[PLACE_KINDS] = {"#8c8c8c", "#d6604d", "#2166ac"};
    double group = PLOT_WIDTH / PLACE_WORKS, bar = group * 0.8 / (double)count;
    for (int work = 0; work < PLACE_WORKS; work++) {
        double x = PLOT_LEFT + group * (work + 0.1);
        for (size_t k = 0; k < count; k++) {
            double ratio = ratio_of(kinds, k, work), height = PLOT_HEIGHT * ratio / most;
            fprintf(out,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\">"
                    "<title>%s %s: %.2f GB/s</title></rect>\n",
                    x + bar * (double)k, PLOT_TOP + PLOT_HEIGHT - height, bar, height, colours[k],
                    kinds[k].name, place_work_names[work], kinds[k].rates[work]);
        }
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
                x + group * 0.4, PLOT_TOP + PLOT_HEIGHT + 18, place_work_names[work]);
    }
    for (size_t k = 0; k < count; k++)
        fprintf(out, "<text x=\"%.1f\" y=\"22\" fill=\"%s\">%s</text>\n",
                PLOT_LEFT + 90 * (double)k, colours[k], kinds[k].name);
}

bool plot_kinds(const char *path, const struct memory_kind *kinds, size_t count)
{
    double most = 1;
    for (size_t k = 0; k < count; k++)
        for (int work = 0; work < PLACE_WORKS; work++)
            most = ratio_of(kinds, k, work) > most ? ratio_of(kinds, k, work) : most;
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        fprintf(stderr, "twill-place: -p: %s: %s\n", path, strerror(errno));
        return false;
    }
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
            "font-family=\"sans-serif\" font-size=\"13\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            PLOT_LEFT + PLOT_WIDTH + 20, PLOT_TOP + PLOT_HEIGHT + 40);
    for (int tick = 0; tick <= (int)most; tick++)
        fprintf(out,
                "<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#cccccc\"/>"
                "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n",
                PLOT_LEFT, PLOT_LEFT + PLOT_WIDTH, PLOT_TOP + PLOT_HEIGHT * (1 - tick / most),
                PLOT_TOP + PLOT_HEIGHT * (1 - tick / most), PLOT_LEFT - 8,
                PLOT_TOP + PLOT_HEIGHT * (1 - tick / most) + 4, tick);
    draw_bars(out, kinds, count, most);
    fprintf(out,
            "<text x=\"%.0f\" y=\"22\" text-anchor=\"end\">rate over that of ddr</text>\n</svg>\n",
            PLOT_LEFT + PLOT_WIDTH);
    bool good = fclose(out) == 0;
    if (!good)
        fprintf(stderr, "twill-place: -p: %s: could not be written\n", path);
    return good;
}

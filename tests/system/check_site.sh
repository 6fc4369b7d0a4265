# SPDX-License-Identifier: Apache-2.0
# The site builds without a warning, no link or anchor of its pages is broken, nothing is loaded from elsewhere, and in Chromium its
# search, tutorials and page of times work, also on a phone. Screenshots are left in site-screenshots of the build.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

for program in sphinx-build doxygen mandoc chromium chromedriver; do
    command -v "$program" >/dev/null 2>&1 || skip "there is no $program (packages of the group site in .ci/packages)"
done
python=/usr/bin/python3 # Debian's, which has the modules of Debian's packages
for module in furo myst_parser breathe sphinx_copybutton selenium; do
    "$python" -c "import $module" 2>/dev/null || skip "Python has no module $module (packages of the group site in .ci/packages)"
done

visit()
{
    timeout -s INT 600 "$python" -B "$here/system/site/visit_site.py" "$@"
}

self_test()
{
    mkdir "$scratch/bad"
    echo '<a href="nowhere.html">x</a><a href="#nowhere">x</a><a id="here" href="#here">x</a><script src="https://example.org/x.js"></script>' \
        >"$scratch/bad/page.html"
    echo '@import url(//example.org/x.css);' >"$scratch/bad/style.css"
    must_complain 'links to nowhere.html, which' visit crawl "$scratch/bad"
    must_complain 'links to #nowhere, an anchor' visit crawl "$scratch/bad"
    must_complain 'loads https://example.org/x.js' visit crawl "$scratch/bad"
    must_complain 'loads //example.org/x.css' visit crawl "$scratch/bad"
    ! visit crawl "$scratch/bad" | grep -q '#here' || fault "crawl complains about an anchor that is there"
}

self_test
site=$scratch/build/site
must_end 0 "configure" cmake -S "$source" -B "$scratch/build" -G "$(cached CMAKE_GENERATOR)" -DCMAKE_C_COMPILER="$(cached CMAKE_C_COMPILER)" || finish
must_end 0 "build the site" cmake --build "$scratch/build" --target site || finish
must_pass "links of all pages" visit crawl "$site"
rm -rf "$build/site-screenshots"
must_pass "pages in a browser" visit browse "$site" "$build/site-screenshots"
finish

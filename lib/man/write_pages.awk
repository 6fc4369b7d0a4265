# SPDX-License-Identifier: Apache-2.0
# Write the pages into the folder `to`. There is a page for each function with its forms _start and _init, for each group,
# for each header, and twill.h(3) also has all types. All other names are links to these pages.
#
# Begin the page of `name`, up to its synopsis. `also` lists the forms, and the first clause of `what` is the description.
function start(name, also, what, included)
{
    page = to "/" name ".3"
    sub(/\n.*/, "", what)
    sub(/;.*|\.$/, "", what)
    gsub(/\\f[BIP]/, "", what)
    if (what !~ /^[A-Z][A-Z]/) what = tolower(substr(what, 1, 1)) substr(what, 2)
    printf "%s\n.Dt %s 3\n.Os\n.Sh NAME\n.Nm %s%s\n.Nd %s\n", date, toupper(name), name, also, what >page
    print ".Sh SYNOPSIS\n.In " included >page
}

# Write the prototype of a function.
function synopsis(f, a)
{
    a = substr(list[f], 2, length(list[f]) - 2)
    gsub(/, /, "\"\n.Fa \"", a)
    printf ".Ft %s\n.Fo %s\n.Fa \"%s\"\n.Fc\n", result[f], f, a >page
}

# Write a section, unless it is empty.
function section(heading, body)
{
    sub(/^\.Pp\n/, "", body)
    if (body != "") printf ".Sh %s\n%s%s", heading, toupper(substr(body, 1, 1)), substr(body, 2) >page
}

function list_of(items, compact) { return items == "" ? "" : ".Bl -tag -width Ds" compact "\n" items ".El\n" }

# Return both texts with a paragraph between them.
function and(a, b) { return a == "" || b == "" ? a b : a ".Pp\n" b }

# Return the list of errors that the text `named` mentions, or of all errors if it mentions none.
function errors(named, i, all)
{
    for (i = 1; i <= n_values; i++)
        if (values[i] ~ /^TWILL_ERR/ && (named !~ /TWILL_ERR/ || index(named, values[i] "\\")))
            all = all ".It Dv " values[i] "\n" text[values[i]]
    return list_of(all, " -compact")
}

# Make the page of `name` a link to the page `target`.
function link(name, target)
{
    page = to "/" name ".3"
    print ".so man3/" target ".3" >page
    close(page)
}

END {
    threads = text["twill.h"]
    sub(/.*\nThreads: /, "", threads)
    sub(/\n\.It\n.*/, "\n", threads)
    for (i = 1; i <= n; i++) # forms have no text
        if (text[f = functions[i]] == "" && sub(/_(start|init)$/, "", f)) {
            base[functions[i]] = f
            forms[f] = forms[f] " " functions[i]
            link(functions[i], f)
        }
    for (i = 1; i <= n; i++) {
        if ((f = functions[i]) in base) continue
        g = group[f]
        also = forms[f]
        gsub(/ /, " ,\n.Nm ", also)
        start(f, also, text[f], header[f])
        synopsis(f)
        count = split(forms[f], form, " ")
        for (k = 1; k <= count; k++) synopsis(form[k])
        also = also == "" ? "" : "The forms _start and _init are described in\n.Xr twill_requests 3 .\n"
        section("DESCRIPTION", and(and(text[f], also), text[g]))
        status = result[f] == "twill_status"
        body = returns[f]
        if (status && body == "") body = returns[g]
        if (status && body == "") body = "\\fBTWILL_OK\\fP or an error.\n"
        section("RETURN VALUES", body)
        if (status) section("ERRORS", errors(returns[f]))
        section("THREADS", (text[f] text[g]) ~ /[Aa]ny thread may call/ ? "Any thread may call it.\n" : threads)
        section("SEE ALSO", ".Xr twill.h 3 ,\n.Xr " g " 3 ,\n.Xr twill 7\n")
        close(page)
    }
    for (i = 1; i <= n_groups; i++) {
        g = groups[i]
        body = names = h = ""
        for (k = n; k > 0; k--)
            if (group[functions[k]] == g) h = header[functions[k]]
        groups_of[h] = groups_of[h] ".It " title[g] "\n.Xr " g " 3\n"
        start(g, "", title[g], h)
        for (k = 1; k <= n; k++)
            if (group[f = functions[k]] == g && !(f in base)) {
                synopsis(f)
                split(text[f], line, "\n")
                body = body ".It Xr " f " 3\n" line[1] "\n"
                names = names ".Xr " f " 3 ,\n"
            }
        section("DESCRIPTION", text[g] list_of(body))
        section("RETURN VALUES", returns[g])
        section("SEE ALSO", ".Xr twill.h 3 ,\n.Xr twill 7\n")
        close(page)
        index_of_groups = index_of_groups ".It " title[g] "\n" names ".Xr " g " 3\n"
    }
    for (h in groups_of)
        if (h != "twill.h") {
            start(h, "", text[h], h)
            section("DESCRIPTION", text[h])
            section("FUNCTIONS", list_of(groups_of[h]))
            section("SEE ALSO", ".Xr twill.h 3 ,\n.Xr twill 7\n")
            close(page)
        }
    start("twill.h", "", "types and conventions of twill's interface in C", "twill.h")
    section("DESCRIPTION", text["twill.h"])
    body = ""
    for (i = 1; i <= n_types; i++) {
        t = types[i]
        code = prototype[t] ~ /\(/ ? "\\fB" prototype[t] "\\fP\n" : ""
        body = body ".Ss " t "\n" and(and(code, text[t]), list_of(list[t], " -compact"))
    }
    section("TYPES AND CONSTANTS", body)
    section("FUNCTIONS", list_of(index_of_groups))
    section("SEE ALSO", ".Xr twill 7\n")
    close(page)
    for (i = 1; i <= n_types; i++) link(types[i], "twill.h")
}

# SPDX-License-Identifier: Apache-2.0
# awk -v to=FILE -v between=TEXT -f fill_lists.awk LISTS PAGE
# Copy PAGE to FILE and fill in the lists of lists.in, which LISTS has. @name@ becomes the words of a list, with TEXT between
# them. ".It @NAME@" becomes the item of a variable or an entry, with its name, default, help and values, and whether it must
# be the same on all ranks. If a page has such items, it must have all of them. Unknown names are errors.
# Print an error. The exit status is then 1.
function complain(text)
{
    print FILENAME ": " text >"/dev/stderr"
    failed = 1
}

# Return a limit of the table, such as 4096 or 1u << 30, with the suffix of its unit.
function limit(text, kind, part, value, suffix)
{
    value = split(text, part, /u? *<< */) == 2 ? part[1] * 2 ^ part[2] : text + 0
    for (suffix = 1; kind == "TWILL_BYTES" && suffix <= 4 && value >= 1024 && value % 1024 == 0; suffix++) value /= 1024
    return sprintf("%d%s", value, substr("KMGT", suffix - 1, suffix > 1))
}

# Return the sentence that gives the range of a number, or "".
function range(kind, least, most, from)
{
    if (kind !~ /NUMBER|BYTES|SECONDS/ || most == "0") return ""
    from = limit(least, kind)
    if (limit(most, kind) - from == 1) return "\nValues:\n.Li " from between limit(most, kind) " ."
    return "\nFrom " from " to " limit(most, kind) (kind ~ /SECONDS/ ? " seconds" : kind ~ /BYTES/ ? " bytes" : "") "."
}

# Fill item[] with the mdoc item of each variable or entry, by its name.
function read_variables(rows, count, row, field, i)
{
    count = split(rows, row, /ROW_ /)
    for (i = 2; i <= count; i++) {
        gsub(/" +"/, "", row[i]) # join adjacent literals
        gsub(/"/, "", row[i])
        split(row[i], field, / *FIELD_ */)
        help = field[9]
        sub(/ *$/, "", help)
        tag = field[1] ~ /LAYOUT|EXPERT/ ? "Li " : "Ev "
        item[field[2]] = ".It " tag field[2] (field[3] == "" ? "" : " Pq default: Li " field[3]) "\n" help "."
        if (gsub(/\|/, between, field[4])) item[field[2]] = item[field[2]] "\nValues:\n.Li " field[4] " ."
        item[field[2]] = item[field[2]] range(field[6], field[7], field[8])
        if (field[5] ~ /^SAME/) item[field[2]] = item[field[2]] "\nSame on all ranks" (field[5] == "SAME" ? "." : ", or unset on all.")
    }
}

# Return the checks of twillrun --check as the items of an mdoc list.
function read_checks(rows, count, row, field, i, text)
{
    count = split(rows, row, /ITEM_ /)
    for (i = 2; i <= count; i++) {
        gsub(/" +"/, "", row[i])
        gsub(/"/, "", row[i])
        split(row[i], field, / *FIELD_ */)
        sub(/ *$/, "", field[2])
        text = text (i > 2 ? "\n" : "") ".It Cm " field[1] "\n" field[2] "."
    }
    return text
}

FNR == NR && $1 == "LIST" {
    name = $2
    words = $0
    sub(/[^:]*: */, "", words)
    sub(/ *$/, "", words)
    if (name == "variables") {
        read_variables(words)
    } else if (name == "checks") {
        list[name] = read_checks(words)
    } else {
        gsub(/"/, "", words)
        gsub(/ +/, between, words)
        list[name] = words
    }
}
FNR == NR { next }
/^\.It @[A-Za-z_]+@$/ {
    name = substr($2, 2, length($2) - 2)
    if (!(name in item)) complain("there is no variable " name)
    else if (shown[name]++) complain(name " has two items")
    some = 1
    print item[name] >to
    next
}
{
    while (match($0, /@[a-z_]+@/)) {
        name = substr($0, RSTART + 1, RLENGTH - 2)
        if (!(name in list)) complain("there is no list " name)
        $0 = substr($0, 1, RSTART - 1) list[name] substr($0, RSTART + RLENGTH)
    }
    print >to
}
END {
    for (name in item)
        if (some && !(name in shown)) complain("no item for " name)
    exit failed
}

# SPDX-License-Identifier: Apache-2.0
# Read Doxygen's XML into tables for write_pages.awk. Each record is a tag and the text after it. The keys of the tables are
# names of groups, functions, types and values. text[] and returns[] hold mdoc. list[] holds a function's arguments, or a
# type's values or members.
BEGIN { RS = "<" }

# Return mdoc text with one sentence per line, and with .Pp only between two texts.
function tidy(t)
{
    t = "\n" t "\n"
    gsub(/ *\n[ \n]*/, "\n", t)
    gsub(/(\.Pp\n)+\.El/, ".El", t)
    gsub(/(\.Pp\n)+\.It/, ".It", t)
    gsub(/(\.Pp\n)+\.Bl/, ".Bl", t)
    gsub(/(\.Pp\n)+/, ".Pp\n", t)
    sub(/\.Pp\n$/, "", t)
    sub(/^\n(\.Pp\n)?/, "", t)
    while (match(t, /[a-zA-Z0-9)"\]]\. +[^ .']/))
        t = substr(t, 1, RSTART + 1) "\n" substr(t, RSTART + RLENGTH - 1)
    return t
}

{
    end = index($0, ">")
    tag = kind = substr($0, 1, end - 1)
    sub(/[ \n].*/, "", tag)
    sub(/^.* kind="/, "", kind)
    sub(/".*/, "", kind)
    s = substr($0, end + 1)
    if (tag != "verbatim") gsub(/[ \n]+/, " ", s)
    gsub(/\\/, "\\e", s)
    if (tag == "verbatim") gsub(/ /, "\\ ", s) # code stays as it is
    gsub(/&lt;/, "<", s)
    gsub(/&gt;/, ">", s)
    gsub(/&quot;/, "\"", s)
    gsub(/&apos;/, "'", s)
    gsub(/&amp;/, "\\&", s)
    key = value != "" ? value : substr(member, 1, 1) == "?" ? compound member : member != "" ? member : compound
}
tag == "compounddef" { of = kind; compound = member = value = "" }
tag == "memberdef" { is = kind; member = "?" }
tag == "enumvalue" { value = "?" }
tag ~ /^(compoundname|title|name|definition|argsstring|briefdescription|detaileddescription)$/ { b = "" }
tag == "/compoundname" { compound = b; if (of == "group") groups[++n_groups] = b }
tag == "location" && member != "" && match($0, /file="[^"]*\/twill[a-z_]*\.h"/) {
    header[member] = substr($0, RSTART, RLENGTH - 1)
    sub(/.*\//, "", header[member])
}
tag == "/title" { title[compound] = b }
tag == "/definition" { definition = b }
tag == "/name" { if (value != "") value = b; else member = is == "variable" ? "?" b : b }
tag == "/argsstring" { arguments = b }
tag == "/para" { b = b "\n.Pp\n" }
tag == "verbatim" { b = b "\n.Bd -literal\n" }
tag == "/verbatim" { b = b "\n.Ed\n.Pp\n" }
tag == "itemizedlist" { b = b "\n.Bl -bullet\n" }
tag == "parameterlist" { b = b "\n.Bl -tag -width Ds\n" }
tag ~ /^\/(itemized|parameter)list$/ { b = b "\n.El\n" }
tag == "listitem" { b = b "\n.It\n" }
tag == "parametername" { b = b "\n.It Fa " }
tag == "/parametername" { b = b "\n" }
tag ~ /^(ref|computeroutput)$/ && described { b = b (tag == "ref" ? "\\fB" : "\\fI") }
tag ~ /^\/(ref|computeroutput)$/ && described { b = b "\\fP" }
tag == "simplesect" { outer = b; b = "" }
tag == "/simplesect" { returns[key] = tidy(b); b = outer }
tag ~ /^(brief|detailed)description$/ { described = 1 }
tag ~ /^\/(brief|detailed)description$/ {
    described = 0
    b = tidy(b)
    if (!index(text[key], b)) text[key] = tidy(text[key] "\n.Pp\n" b) # an enum and its typedef have the same text
}
tag == "/enumvalue" {
    if (text[value] != "" && !(member in seen)) list[member] = list[member] ".It Dv " value "\n" text[value]
    values[++n_values] = value
    value = ""
}
tag == "/memberdef" && is == "variable" {
    sub(/ [^ ]*::.*/, "", definition)
    list[compound] = list[compound] ".It Fa \"" definition " " substr(member, 2) "\"\n" text[compound member]
}
tag == "/memberdef" && is == "function" && of == "group" {
    functions[++n] = member
    group[member] = compound
    list[member] = arguments
    result[member] = definition
    sub(/ ?[^ *]*$/, "", result[member])
}
tag == "/memberdef" && is !~ /^(function|variable)$/ && !(member in seen) {
    if (!(member in list)) prototype[member] = definition
    types[++n_types] = member
    seen[member] = 1
}
tag == "/memberdef" { member = definition = "" }
{ b = b s }

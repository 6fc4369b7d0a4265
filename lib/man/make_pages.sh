# SPDX-License-Identifier: Apache-2.0
# make_pages.sh DOXYGEN DOXYFILE GUIDE TO
# Make the man 3 pages of the public headers in the folder TO, which is emptied first. They get the date of the page GUIDE.
# Doxygen's XML is put into the folder of the Doxyfile.
set -eu
here=$(dirname "$0")
xml=$(dirname "$2")/xml
rm -rf "$xml" "$4"
mkdir -p "$4"
"$1" "$2"
awk -v to="$4" -v date="$(grep '^\.Dd' "$3")" -f "$here/read_xml.awk" -f "$here/write_pages.awk" \
    "$xml"/struct*.xml "$xml"/twill*_8h.xml "$xml"/group*.xml

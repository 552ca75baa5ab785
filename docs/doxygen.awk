# SPDX-License-Identifier: Apache-2.0
#
# Doxygen's view of our headers, whose comments are written to be read as they
# stand. Line for line, so that warnings name the right one:
#
# - a paragraph that begins with a name and a gap ("count  elements of ...") is
#   a table of arguments: it keeps its layout;
# - a comment behind a field or an enumerator belongs to that.

function put(line)
{
    if (NR > 1)
        print held
    held = line
}

BEGIN { held = "" }

{
    line = $0
    starts = line ~ /^ *\/\*\*/
    if (starts)
        inside = 1

    if (inside) {
        blank = line ~ /^ *\*$/
        ends = line ~ /\*\/ *$/
        if (!table && (was_blank || was_start) &&
            line ~ /^ \* +[a-z_]+(, [a-z_]+)*  +[^ ]/) {
            table = 1
            held = held " @verbatim"
        } else if (table && (blank || ends)) {
            table = 0
            closing = 1
            if (blank)
                line = " * @endverbatim"
            else
                sub(/\*\/ *$/, "@endverbatim */", line)
        }
        # A verbatim block shows the asterisks in front of its lines.
        if (table || closing)
            sub(/^ \*/, "  ", line)
        closing = 0
        was_blank = blank
        was_start = starts && line ~ /^ *\/\*\*$/
        if (ends)
            inside = 0
    } else if (line ~ /[,;].*\/\* /) {
        sub(/\/\* /, "/**< ", line)
    } else if (line ~ /^ +[A-Z].*\/\* /) {
        sub(/\/\* /, "/**< ", line)
    }
    put(line)
}

END { print held }

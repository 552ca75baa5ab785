# SPDX-License-Identifier: Apache-2.0
#
# Doxygen's view of our guides: links to headings, which it does not know by the
# names that GitHub gives them, and to what is not in the manual, become text; one
# to a heading of another guide becomes one to that guide.
s/\[([^]]*)\]\((#|\.\.\/|design\/)[^)]*\)/\1/g
s/\]\(([a-z-]+\.md)#[^)]*\)/](\1)/g

# SPDX-License-Identifier: Apache-2.0
#
# Completion of Shunt's programs in bash. The words are those of the program's own
# --help all.

# Print the options in the help $1, one a line.
_shunt_options()
{
    grep -E '^ +-' <<<"$1" | grep -oE '(^|[ ,])--?[A-Za-z][a-z0-9-]*' |
        tr -d ' ,'
}

# Print the values of the option $2 in the help $1, one a line: its text has
# "this|that".
_shunt_values()
{
    if [[ $2 == --preset ]]; then
        sed -n '/^Presets$/,/^$/s/^  \([a-z][^ ]*\) .*/\1/p' <<<"$1"
        return
    fi
    awk -v option="$2" '
        /^ +-/ { here = 0; line = $0; sub(/^ +/, "", line)
                 for (n = 1; n <= 2; n++) {
                     word = line; sub(/[ ,=[].*/, "", word)
                     if (word == option) here = 1
                     sub(/^[^ ]+ /, "", line)
                 } }
        /^$/ { here = 0 }
        here { print }' <<<"$1" |
        grep -oE '[A-Za-z0-9_.+-]+(\|[A-Za-z0-9_.+-]+)+' | head -n 1 | tr '|' '\n'
}

# Set `at` to where the words of the command begin that shunt-run starts.
_shunt_run_command()
{
    local word

    for ((at = 1; at < COMP_CWORD; at++)); do
        word=${COMP_WORDS[at]}
        case $word in
        --)
            ((at++))
            return
            ;;
        -*)
            # Skip its argument, if it takes one.
            grep -qE -- "(^| )$word(, --[a-z-]+)? [A-Z]" <<<"$1" && ((at++))
            ;;
        *) return ;;
        esac
    done
}

_shunt()
{
    local current=${COMP_WORDS[COMP_CWORD]} help words= at
    local before=$((COMP_CWORD - 1))

    # bash makes a word of the sign in --option=value.
    [[ $current != = ]] || current=
    [[ ${COMP_WORDS[before]} != = ]] || ((before--))
    COMPREPLY=()
    help=$("${1/#\~/$HOME}" --help all 2>/dev/null)
    if [[ ${COMP_WORDS[before]} == -* ]]; then
        words=$(_shunt_values "$help" "${COMP_WORDS[before]}")
    fi
    if [[ ${1##*/} == shunt-run ]]; then
        _shunt_run_command "$help"
        if ((COMP_CWORD > at)); then
            declare -F _command_offset >/dev/null && _command_offset "$at"
            return
        fi
        if ((COMP_CWORD == at)) && [[ -z $words && $current != -* ]]; then
            COMPREPLY=($(compgen -c -- "$current"))
            return
        fi
    fi
    if [[ -n $words ]]; then
        :
    elif [[ $current == -* ]]; then
        words=$(_shunt_options "$help")
    elif [[ ${1##*/} == shunt-perf ]] && ((COMP_CWORD == 1)); then
        words=$(sed -n '/^Operations:/,/^$/s/^  \([a-z].*\)/\1/p' <<<"$help" |
            sed 's/  .*//; s/,/ /g')
    fi
    # Files, if nothing else (-o default).
    [[ -z $words ]] || COMPREPLY=($(compgen -W "$words" -- "$current"))
}

complete -o default -F _shunt shunt-run shunt-info shunt-perf shunt-perf-report \
    shunt-train

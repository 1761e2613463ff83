# Completions of tine's command line. The program itself says what fits; it starts no daemon for that.

# Sets COMPREPLY to what fits after these words, the last of which is being typed.
_tine_candidates() {
    local separator=$'\013'
    COMPREPLY=()
    IFS="$separator" read -r -d '' -a COMPREPLY < <(
        _CLAP_IFS="$separator" _CLAP_COMPLETE_INDEX=$(($# - 1)) _CLAP_COMPLETE_SPACE=false TINE_COMPLETE=bash \
            command tine -- "$@" 2>/dev/null
    )
}

_tine() {
    local words=() word trimmed i
    local rest="${COMP_LINE:0:COMP_POINT}"
    # bash splits words at @, = and : as well, of which names and flags are made: what no blank parts is one word.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        trimmed="${rest#"${rest%%[![:space:]]*}"}"
        word="${COMP_WORDS[i]}"
        [ "$i" -lt "$COMP_CWORD" ] || word="$trimmed"
        if [ "$i" -gt 0 ] && [ "$trimmed" = "$rest" ]; then
            words[${#words[@]} - 1]+="$word"
        else
            words+=("$word")
        fi
        rest="${trimmed#"$word"}"
    done
    word="${words[${#words[@]} - 1]}"
    _tine_candidates "${words[@]}"

    # Of that word bash replaces only what it takes for one.
    COMPREPLY=("${COMPREPLY[@]#"${word%"$2"}"}")
    [[ "${COMPREPLY[0]-}" == *[=/:@] ]] && compopt -o nospace 2>/dev/null
    return 0
}

complete -o bashdefault -o nosort -F _tine tine 2>/dev/null || complete -o bashdefault -F _tine tine

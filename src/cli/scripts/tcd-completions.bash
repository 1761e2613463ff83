
_tcd() {
    [ "$COMP_CWORD" -eq 1 ] && _tine_candidates tine mount -- "$2"
}

complete -F _tcd tcd


_tcd() {
    (( CURRENT == 2 )) || return
    words=(tine mount -- "${words[2]}")
    CURRENT=4
    _clap_dynamic_completer_tine
}

compdef _tcd tcd


# tcd FORK goes into the fork's mount, which is mounted first if it is not; tcd alone back to the main checkout.
tcd() {
    local dir
    case "${1-}" in
        '') dir="$(command tine path --main)" || return ;;
        -) dir=- ;;
        *) dir="$(command tine mount -- "$1")" || return ;;
    esac
    cd "$dir"
}

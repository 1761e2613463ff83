
# tcd FORK goes into the fork's mount, which is mounted first if it is not; tcd alone back to the main checkout.
function tcd --description 'Go into the mount of a tine fork'
    set --local dir
    switch "$argv[1]"
        case ''
            set dir (command tine path --main); or return
        case -
            set dir -
        case '*'
            set dir (command tine mount -- $argv[1]); or return
    end
    cd $dir
end

complete --command tcd --no-files
complete --command tcd --keep-order --condition 'test (count (commandline --current-process --tokenize --cut-at-cursor)) -eq 1' \
    --arguments "(TINE_COMPLETE=fish command tine -- tine mount -- (commandline --current-token))"

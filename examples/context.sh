#!/bin/sh
# A worker with a context window: its context is the file `context`, and a token is a word. It is told between turns when to
# replace that by a checkpoint, which examples/checkpoint.sh writes.
set -eu
: > context

for turn in 1 2 3 4 5 6 7 8; do
    lanewarden worker directive --tokens "$(wc -w < context)" --into checkpoint > told
    id=$(sed -n 's/^id=//p' told)
    case $(sed -n 's/^directive=//p' told) in
    rebuild)
        cp checkpoint context
        lanewarden worker report "$id" done --inserted-tokens "$(wc -w < context)"
        ;;
    compact)
        tail -n 1 context > summary && mv summary context
        lanewarden worker report "$id" done
        ;;
    wrap_up) break ;;
    esac
    echo "turn $turn: $(sed -n 's/^directive=//p' told), $(wc -w < context) words"
    seq -s ' ' 60 >> context # the turn itself
done
lanewarden worker complete --summary "$turn turns"

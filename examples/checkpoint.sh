#!/bin/sh
# Writes a checkpoint of the context of examples/context.sh: what its next turns have to know. Its id in the marker commits it.
# Exit code 75 would say that it may work later; 77 (not allowed), 64 (a bad request) and any other, that it will not.
{
    echo "so far $(wc -l < context) turns"
    tail -n 1 context | cut -d ' ' -f 1-20
} > "$LANEWARDEN_CHECKPOINT_FILE"
echo "$LANEWARDEN_CHECKPOINT" > "$LANEWARDEN_CHECKPOINT_MARKER"

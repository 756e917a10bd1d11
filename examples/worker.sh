#!/bin/sh
# Asks before it does something that cannot be undone, exits, and is started again with the ruling.
set -eu

# A ruling is kept before it is acted on, so that it is acted on even if this script is killed in between.
if [ "$LANEWARDEN_REASON" = ruling ]; then
    lanewarden worker await > ruling.txt || true # exits 10 for reject, 11 for revise; the file says it all
fi

if [ ! -s ruling.txt ]; then
    lanewarden worker escalate --expects-reply --option delete="remove them" --option keep="leave them" \
        "May I remove $(wc -l < old-backups.txt) old backups?"
elif grep -qx 'option=delete' ruling.txt; then
    rm -f old-backups.txt
    lanewarden worker complete --summary "removed, as ruled"
else
    lanewarden worker complete --summary "kept: $(grep '^instructions=' ruling.txt)"
fi

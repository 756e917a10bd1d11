#!/bin/sh
# A session that does what it is sent. Without a login it hangs before it has read anything, as agents do.
set -eu

if [ ! -e login ]; then
    lanewarden worker progress --note "waits for somebody to log in" > /dev/null
    exec sleep 100000
fi
lanewarden worker messages # prints and acknowledges what it was sent; here the work would be done

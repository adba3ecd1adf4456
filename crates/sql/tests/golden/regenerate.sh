#!/bin/sh
# Writes expressions.out: what PostgreSQL 15 gives for each line of expressions.sql, one line each, errors with their SQLSTATE.
# Usage: regenerate.sh PSQL-ARGUMENTS of a cluster made with --locale=C.UTF-8 -E UTF8, TimeZone UTC.
cd "$(dirname "$0")" || exit 1
grep -v '^--' expressions.sql | while IFS= read -r line; do
    printf '%s\n' "$line" | psql -X -A -t -q -v VERBOSITY=verbose -v ON_ERROR_STOP=0 -P null=NULL "$@" \
        -c "select $line" 2>&1 | grep -v '^LINE\|^ *^\|^LOCATION\|^HINT\|^DETAIL\|^CONTEXT\|^ *\^' |
        sed -e 's/^ERROR:  //' | awk 'NR>1{printf "\\n"} {printf "%s", $0} END{print ""}'
done >expressions.out

#!/usr/bin/env bash
# Makes the golden files on a PostgreSQL 15 (libpq's environment says which; run as a superuser that may make roles).
cd "$(dirname "$0")"
for name in describe alter; do
  psql -X -q -d postgres -c 'DROP DATABASE IF EXISTS canon' -c 'DROP ROLE IF EXISTS reader' -c 'DROP ROLE IF EXISTS bob' \
    -c 'CREATE ROLE canon SUPERUSER LOGIN' -c 'CREATE DATABASE canon OWNER canon' 2>/dev/null
  PGUSER=canon LC_ALL=C.UTF-8 psql -X -q -P pager=off -d canon -f $name.sql > $name.out 2> $name.err
  { echo "=== errors"; cat $name.err; } >> $name.out
  rm $name.err
done

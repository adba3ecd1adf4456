//! The tables of `bench split`: plain ones, split ones, and the thesis's own way in SQL.
//!
//! ```text
//! UPDATE view SET qty = qty - 1 ─▶ trigger: the difference ─▶ a record from a random place on is locked and read ─▶ UPDATE of it, on to the next
//! SELECT qty FROM view          ─▶ sum over the records
//! ```
//! The thesis (§4.4) puts a table of records and a view under the name of the original table, and rules that call procedures. Here a
//! trigger takes the rules' place, which is what PostgreSQL 15 recommends for views. The text is our own.
//!
//! Left out on purpose: the thesis's workers over PostgreSQL. The numbers of records are fixed, as it does at READ COMMITTED.

use super::super::loads;
use super::loads::MOST_PRODUCTS;
use crate::Result;
use crate::server::Server;
use std::time::{Duration, Instant};

/// Of each row.
const STOCK: u64 = 1_000_000_000_000;

/// The last row: each client has one, and each product.
fn last_row(clients: u32) -> u32 {
    clients.max(MOST_PRODUCTS)
}

/// Row 0 is the hot one, and each client has one of its own.
pub fn prepare(server: &Server, clients: u32) -> Result<()> {
    let mut tables = vec![("plain_stock", "")];
    if server.name == loads::OURS {
        tables.push(("split_stock", " WITH (split = 'qty')"));
    }
    for (name, with) in tables {
        server.sql(&format!(
            "CREATE TABLE {name} (id int PRIMARY KEY, qty bigint NOT NULL CHECK (qty >= 0)){with}"
        ))?;
        server.sql(&format!(
            "INSERT INTO {name} SELECT g, {STOCK} FROM generate_series(0, {}) g",
            last_row(clients)
        ))?;
    }
    if server.name == loads::PEER {
        server.sql("CHECKPOINT")?;
    }
    Ok(())
}

/// The one value of a query's answer.
fn value(server: &Server, query: &str) -> Result<Option<String>> {
    let found = server.sql(query)?;
    Ok(found
        .rows
        .first()
        .and_then(|r| r.first())
        .cloned()
        .flatten())
}

/// A table whose hot row has this many records, which the worker gives to a value with deltas.
pub fn prepare_records(server: &Server, table: &str, records: u32, mode: &str) -> Result<()> {
    let further = records - 1;
    server.sql(&format!(
        "CREATE TABLE {table} (id int PRIMARY KEY, qty bigint NOT NULL CHECK (qty >= 0)) WITH (split = 'qty');
         ALTER TABLE {table} ALTER COLUMN qty SET (split_max = {further}, split_min = {further}, split_mode = {mode});
         INSERT INTO {table} VALUES (0, {STOCK})"
    ))?;
    let begun = Instant::now();
    let there = format!(
        "SELECT count(*) FROM canon_split_values WHERE table_name = '{table}' AND records = {records}"
    );
    if records == 1 {
        return Ok(());
    }
    loop {
        server.sql(&format!("UPDATE {table} SET qty = qty - 1 WHERE id = 0"))?;
        if value(server, &there)?.as_deref() == Some("1") {
            return Ok(());
        }
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(format!("{table} does not get {records} records"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The thesis's way: a view of this name over so many records for each row. Places lie in a ring of 1,024.
fn sql_text(view: &str, records: u32, last: u32) -> [String; 4] {
    let look = |from: &str| {
        format!(
            "SELECT place, qty INTO here FROM {view}_records WHERE id = NEW.id{from} ORDER BY place LIMIT 1 FOR UPDATE;"
        )
    };
    [
        format!(
            "CREATE TABLE {view}_rows (id int PRIMARY KEY);
             CREATE TABLE {view}_records (id int, place int, qty bigint NOT NULL CHECK (qty >= 0), PRIMARY KEY (id, place));
             CREATE VIEW {view} AS SELECT r.id, sum(p.qty)::bigint AS qty FROM {view}_rows r JOIN {view}_records p ON p.id = r.id GROUP BY r.id"
        ),
        format!(
            "INSERT INTO {view}_rows SELECT g FROM generate_series(0, {last}) g;
             INSERT INTO {view}_records SELECT r.id, g * 1024 / {records}, {STOCK} / {records} FROM {view}_rows r, generate_series(0, {records} - 1) g"
        ),
        format!(
            "CREATE FUNCTION {view}_change() RETURNS trigger LANGUAGE plpgsql AS $$
             DECLARE
                 missing bigint := OLD.qty - NEW.qty;
                 place_from int := floor(random() * 1024);
                 part bigint; first_place int; here record;
             BEGIN
                 LOOP
                     {}
                     IF NOT FOUND THEN {} END IF;
                     IF here.place = first_place THEN
                         RAISE EXCEPTION 'there is too little' USING ERRCODE = 'check_violation';
                     END IF;
                     first_place := coalesce(first_place, here.place);
                     part := least(here.qty, missing);
                     IF part <> 0 THEN
                         UPDATE {view}_records SET qty = qty - part WHERE id = NEW.id AND place = here.place;
                         missing := missing - part;
                     END IF;
                     EXIT WHEN missing = 0;
                     place_from := here.place + 1;
                 END LOOP;
                 RETURN NEW;
             END $$",
            look(" AND place >= place_from"),
            look("")
        ),
        format!(
            "CREATE TRIGGER change INSTEAD OF UPDATE ON {view} FOR EACH ROW EXECUTE FUNCTION {view}_change()"
        ),
    ]
}

/// Makes it, and looks whether a change of several records is one of their sum.
pub fn prepare_sql(server: &Server, view: &str, records: u32, clients: u32) -> Result<()> {
    for text in sql_text(view, records, last_row(clients)) {
        server.sql(&text)?;
    }
    server.sql("ANALYZE")?;
    let sum = format!("SELECT qty FROM {view} WHERE id = 0");
    let before = value(server, &sum)?;
    // More than one record has, where there are several.
    for sign in ['-', '+'] {
        let half = STOCK / 2 + 1;
        server.sql(&format!(
            "UPDATE {view} SET qty = qty {sign} {half} WHERE id = 0"
        ))?;
        let now = value(server, &sum)?;
        if (now == before) != (sign == '+') {
            return Err(format!("{view} has {now:?} units of {before:?}"));
        }
    }
    // That has moved half of the stock: deal it out anew.
    server.sql(&format!(
        "UPDATE {view}_records SET qty = {STOCK} / {records}; CHECKPOINT"
    ))?;
    Ok(())
}

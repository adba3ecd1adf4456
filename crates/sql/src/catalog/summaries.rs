//! Views over the catalogs and over the session: `pg_tables`, `pg_indexes`, `pg_settings`, `pg_stat_activity` …

use super::classes::{index_definition, relations, tables};
use super::relations::{RELATIONS, Rows};
use super::rows::*;
use super::{CatalogScan, DATABASE_OID, LockedThing, deparse};
use crate::ddl::privileges;
use base::schema::{Relation, Table, privilege};
use base::{Oid, Result, Type, Value};

fn schema_name(cx: &CatalogScan<'_>, namespace: Oid) -> Value {
    maybe(cx.schema().namespace(namespace).map(|n| &n.name))
}

fn owner(cx: &CatalogScan<'_>, role: Oid) -> Value {
    text(role_name(cx.schema(), role))
}

pub(super) fn pg_tables(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in RELATIONS.iter().filter(|r| r.kind == b'r') {
        rows.push(&[
            ("schemaname", schema_name(cx, r.namespace)),
            ("tablename", text(r.name)),
            ("tableowner", owner(cx, base::schema::BOOTSTRAP_ROLE)),
            ("hasindexes", Value::Bool(false)),
            ("hasrules", Value::Bool(false)),
            ("hastriggers", Value::Bool(false)),
            ("rowsecurity", Value::Bool(false)),
        ]);
    }
    for t in tables(cx) {
        let keys = !t.def.foreign_keys.is_empty() || !t.referenced_by.is_empty();
        rows.push(&[
            ("schemaname", schema_name(cx, t.def.namespace)),
            ("tablename", text(&t.def.name)),
            ("tableowner", owner(cx, t.def.owner)),
            ("hasindexes", Value::Bool(!t.def.indexes.is_empty())),
            ("hasrules", Value::Bool(false)),
            ("hastriggers", Value::Bool(keys)),
            ("rowsecurity", Value::Bool(false)),
        ]);
    }
    Ok(())
}

pub(super) fn pg_views(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in RELATIONS.iter().filter(|r| r.kind == b'v') {
        rows.push(&[
            ("schemaname", schema_name(cx, r.namespace)),
            ("viewname", text(r.name)),
            ("viewowner", owner(cx, base::schema::BOOTSTRAP_ROLE)),
        ]);
    }
    for r in relations(cx) {
        if let Relation::View(v) = r {
            rows.push(&[
                ("schemaname", schema_name(cx, v.namespace)),
                ("viewname", text(&v.name)),
                ("viewowner", owner(cx, v.owner)),
                (
                    "definition",
                    text(deparse::view(
                        cx.schema(),
                        &cx.facts.search_path(),
                        cx.facts,
                        v,
                    )),
                ),
            ]);
        }
    }
    Ok(())
}

pub(super) fn pg_indexes(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for t in tables(cx) {
        for i in &t.def.indexes {
            rows.push(&[
                ("schemaname", schema_name(cx, t.def.namespace)),
                ("tablename", text(&t.def.name)),
                ("indexname", text(&i.name)),
                ("indexdef", text(index_definition(cx, t, i))),
            ]);
        }
    }
    Ok(())
}

pub(super) fn pg_sequences(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in relations(cx) {
        let Relation::Sequence(q) = r else { continue };
        let held = privileges::held(cx.schema(), cx.facts.current_role(), r);
        let shown = held & (privilege::USAGE | privilege::SELECT) != 0;
        let last = cx.facts.sequence_state(q.id).filter(|s| shown && s.1);
        rows.push(&[
            ("schemaname", schema_name(cx, q.namespace)),
            ("sequencename", text(&q.name)),
            ("sequenceowner", owner(cx, q.owner)),
            ("data_type", oid(q.type_oid)),
            ("start_value", Value::Int8(q.start)),
            ("min_value", Value::Int8(q.min)),
            ("max_value", Value::Int8(q.max)),
            ("increment_by", Value::Int8(q.increment)),
            ("cycle", Value::Bool(q.cycle)),
            ("cache_size", Value::Int8(q.cache)),
            (
                "last_value",
                last.map_or(Value::Null, |(v, _)| Value::Int8(v)),
            ),
        ]);
    }
    Ok(())
}

/// What is counted per table: its estimated rows. The other counters are not kept and are NULL or 0.
pub(super) fn pg_stat_tables(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for t in tables(cx) {
        let live = cx.facts.estimated_rows(t.def.id);
        rows.push(&[
            ("relid", oid(t.def.id)),
            ("schemaname", schema_name(cx, t.def.namespace)),
            ("relname", text(&t.def.name)),
            (
                "n_live_tup",
                live.map_or(Value::Null, |n| Value::Int8(n as i64)),
            ),
        ]);
    }
    Ok(())
}

/// The tables again, in statistics that are not kept: all of them are 0.
pub(super) fn pg_statio_tables(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for t in tables(cx) {
        rows.push(&[
            ("relid", oid(t.def.id)),
            ("schemaname", schema_name(cx, t.def.namespace)),
            ("relname", text(&t.def.name)),
        ]);
        rows.zeros();
    }
    Ok(())
}

pub(super) fn pg_statio_sequences(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in relations(cx) {
        let Relation::Sequence(q) = r else { continue };
        rows.push(&[
            ("relid", oid(q.id)),
            ("schemaname", schema_name(cx, q.namespace)),
            ("relname", text(&q.name)),
        ]);
        rows.zeros();
    }
    Ok(())
}

/// One row of statistics about what Canon does not have: buffers, full pages.
pub(super) fn one_of_zeros(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    one_since_start(cx, rows)?;
    rows.zeros();
    Ok(())
}

/// One row of statistics that are not kept.
pub(super) fn one_since_start(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let since = Value::TimestampTz(cx.facts.counts_since());
    rows.push(&[("stats_reset", since)]);
    Ok(())
}

/// What recovery has cancelled: nothing, since replay waits for no reader.
pub(super) fn pg_stat_database_conflicts(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    rows.push(&[
        ("datid", oid(DATABASE_OID)),
        ("datname", text(cx.facts.database())),
    ]);
    rows.zeros();
    Ok(())
}

/// Keys and totals are contents of the table: its owner and superusers see them.
pub(super) fn canon_split_values(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let role = cx.facts.current_role();
    let all = cx.schema().role(role).is_some_and(|r| r.superuser);
    for v in cx.facts.split_values() {
        let Some(t) = cx.schema().table(v.table) else {
            continue;
        };
        if !all && t.def.owner != role {
            continue;
        }
        let number = |v: &Value| match v.as_i64() {
            Some(n) => Value::from(base::Numeric::from(n)),
            None => v.clone(),
        };
        let bounds = v.extremes.as_ref();
        let extreme = |one: Option<&Value>| one.map_or(Value::Null, number);
        rows.push(&[
            ("relid", oid(v.table)),
            ("table_name", text(t.def.name.clone())),
            (
                "column_name",
                text(t.def.columns[usize::from(v.column)].name.clone()),
            ),
            ("key", text(v.name)),
            ("records", Value::Int4(i32::from(v.records) + 1)),
            ("total", number(&v.total)),
            ("reserved", number(&v.reserved)),
            ("heat", Value::Float8(v.heat.rate)),
            ("mode", text(v.mode.name())),
            ("least", extreme(bounds.map(|e| &e.0))),
            ("most", extreme(bounds.map(|e| &e.1))),
        ]);
    }
    Ok(())
}

/// Whether the current role sees the key of this row: the owner of the table and superusers do.
fn sees_key(cx: &CatalogScan<'_>, label: &txn::RowLabel) -> bool {
    let (schema, role) = (cx.schema(), cx.facts.current_role());
    if schema.role(role).is_some_and(|r| r.superuser) {
        return true;
    }
    let namespace = schema.namespace_named(&label.schema).map(|n| n.id);
    let is_it = |t: &&Table| t.def.name == label.table && Some(t.def.namespace) == namespace;
    let all = tables(cx);
    let table = all.iter().map(|t| &**t).find(is_it);
    table.is_some_and(|t| t.def.owner == role)
}

/// Rows that transactions fight for, at this node.
pub(super) fn canon_stat_hot_rows(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in cx.facts.hot_rows() {
        if sees_key(cx, &r.label) {
            rows.push(&[
                ("schema_name", text(r.label.schema)),
                ("table_name", text(r.label.table)),
                ("key", text(r.label.key)),
                ("lock_waits", Value::Int8(r.waits as i64)),
                ("aborts", Value::Int8(r.lost as i64)),
            ]);
        }
    }
    Ok(())
}

/// The newest transactions of this node that were told to try again because of a row.
pub(super) fn canon_stat_conflicts(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in cx.facts.conflicts() {
        if sees_key(cx, &r.label) {
            rows.push(&[
                ("number", Value::Int8(r.number as i64)),
                ("schema_name", text(r.label.schema)),
                ("table_name", text(r.label.table)),
                ("key", text(r.label.key)),
                ("transaction", Value::Int8(r.loser as i64)),
                ("winner", text(r.winner.to_string())),
            ]);
        }
    }
    Ok(())
}

pub(super) fn pg_stat_gssapi(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for a in cx.facts.activity() {
        rows.push(&[
            ("pid", Value::Int4(a.pid)),
            ("gss_authenticated", Value::Bool(false)),
            ("encrypted", Value::Bool(false)),
        ]);
    }
    Ok(())
}

pub(super) fn pg_stat_indexes(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let mut one = |t: &Table| {
        for i in &t.def.indexes {
            rows.push(&[
                ("relid", oid(t.def.id)),
                ("indexrelid", oid(i.id)),
                ("schemaname", schema_name(cx, t.def.namespace)),
                ("relname", text(&t.def.name)),
                ("indexrelname", text(&i.name)),
            ]);
        }
    };
    tables(cx).into_iter().for_each(&mut one);
    Ok(())
}

pub(super) fn pg_settings(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for s in cx.facts.settings() {
        let enumvals = match s.enumvals.is_empty() {
            true => Value::Null,
            false => array(Type::Text, s.enumvals.iter().map(text).collect()),
        };
        rows.push(&[
            ("name", text(&s.name)),
            ("setting", text(&s.setting)),
            ("unit", maybe(s.unit.as_ref())),
            ("category", text(&s.category)),
            ("short_desc", text(&s.short_desc)),
            ("context", text(s.context)),
            ("vartype", text(s.vartype)),
            ("source", text(s.source)),
            ("min_val", maybe(s.min_val.as_ref())),
            ("max_val", maybe(s.max_val.as_ref())),
            ("enumvals", enumvals),
            ("boot_val", maybe(s.boot_val.as_ref())),
            ("reset_val", maybe(s.reset_val.as_ref())),
            ("pending_restart", Value::Bool(false)),
        ]);
    }
    Ok(())
}

/// All sessions. Of those of other roles an ordinary role sees that they are there, not what they do or where they come from.
pub(super) fn pg_stat_activity(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let client = |kind: &str| kind == "client backend";
    for a in cx.facts.activity() {
        if !cx.sees_activity_of(a.user) {
            rows.push(&[
                ("datid", oid(DATABASE_OID)),
                ("datname", text(cx.facts.database())),
                ("pid", Value::Int4(a.pid)),
                ("usesysid", oid(a.user)),
                ("usename", owner(cx, a.user)),
                ("application_name", text(&a.application_name)),
                ("query", text("<insufficient privilege>")),
            ]);
            continue;
        }
        let when = |v: Value| {
            if client(a.backend_type) {
                v
            } else {
                Value::Null
            }
        };
        rows.push(&[
            ("datid", when(oid(DATABASE_OID))),
            ("datname", when(text(cx.facts.database()))),
            ("pid", Value::Int4(a.pid)),
            ("usesysid", when(oid(a.user))),
            ("usename", when(owner(cx, a.user))),
            ("application_name", text(&a.application_name)),
            ("client_addr", maybe(a.client_addr.as_ref())),
            (
                "client_port",
                a.client_port.map_or(Value::Null, Value::Int4),
            ),
            ("backend_start", time(Some(a.backend_start))),
            ("xact_start", time(a.xact_start)),
            ("query_start", time(a.query_start)),
            ("state_change", time(a.state_change)),
            ("wait_event_type", maybe(a.wait_event_type.as_ref())),
            ("wait_event", maybe(a.wait_event.as_ref())),
            ("state", maybe((!a.state.is_empty()).then_some(a.state))),
            ("query", text(&a.query)),
            ("backend_type", text(a.backend_type)),
            ("canon_memory", when(Value::Int8(a.memory))),
        ]);
    }
    Ok(())
}

/// How the connection of each session is protected.
pub(super) fn pg_stat_ssl(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for a in cx.facts.activity() {
        if !cx.sees_activity_of(a.user) {
            rows.push(&[("pid", Value::Int4(a.pid))]);
            continue;
        }
        let Some(p) = &a.protection else {
            rows.push(&[("pid", Value::Int4(a.pid)), ("ssl", Value::Bool(false))]);
            continue;
        };
        let client = p.client.as_ref();
        let serial = client.and_then(|c| c.serial.parse().ok());
        let numeric = |n: base::Numeric| Value::from(n);
        rows.push(&[
            ("pid", Value::Int4(a.pid)),
            ("ssl", Value::Bool(true)),
            ("version", text(p.version)),
            ("cipher", text(&p.cipher)),
            ("bits", Value::Int4(p.bits)),
            ("client_dn", maybe(client.map(|c| &c.subject))),
            ("client_serial", serial.map_or(Value::Null, numeric)),
            ("issuer_dn", maybe(client.map(|c| &c.issuer))),
        ]);
    }
    Ok(())
}

pub(super) fn pg_prepared_statements(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for p in cx.facts.prepared_statements() {
        let types = p.parameter_types.iter().map(|t| oid(*t)).collect();
        rows.push(&[
            ("name", text(&p.name)),
            ("statement", text(&p.statement)),
            ("prepare_time", time(Some(p.prepare_time))),
            ("parameter_types", array(Type::RegType, types)),
            ("from_sql", Value::Bool(p.from_sql)),
        ]);
    }
    Ok(())
}

pub(super) fn pg_cursors(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for c in cx.facts.cursors() {
        rows.push(&[
            ("name", text(&c.name)),
            ("statement", text(&c.statement)),
            ("is_holdable", Value::Bool(c.is_holdable)),
            ("is_binary", Value::Bool(c.is_binary)),
            ("is_scrollable", Value::Bool(c.is_scrollable)),
            ("creation_time", time(Some(c.creation_time))),
        ]);
    }
    Ok(())
}

/// Advisory locks, and locks on tables; those of rows are not shown.
pub(super) fn pg_locks(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for l in cx.facts.locks() {
        let mut row = vec![
            ("database", oid(DATABASE_OID)),
            ("virtualtransaction", text(format!("{}/0", l.pid))),
            ("pid", Value::Int4(l.pid)),
            ("mode", text(l.mode)),
            ("granted", Value::Bool(l.granted)),
            ("fastpath", Value::Bool(l.fast)),
        ];
        match l.on {
            LockedThing::Table(table) => {
                row.extend([("locktype", text("relation")), ("relation", oid(table))]);
            }
            LockedThing::Advisory(key) => {
                let (class, object, sub) = match key {
                    txn::AdvisoryKey::One(n) => ((n as u64 >> 32) as Oid, n as Oid, 1),
                    txn::AdvisoryKey::Two(a, b) => (a as Oid, b as Oid, 2),
                };
                row.extend([
                    ("locktype", text("advisory")),
                    ("classid", oid(class)),
                    ("objid", oid(object)),
                    ("objsubid", Value::Int2(sub)),
                ]);
            }
        }
        rows.push(&row);
    }
    Ok(())
}

pub(super) fn pg_stat_database(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let s = cx.facts.database_stats();
    rows.push(&[
        ("datid", oid(DATABASE_OID)),
        ("datname", text(cx.facts.database())),
        ("numbackends", Value::Int4(s.backends)),
        ("xact_commit", Value::Int8(s.commits)),
        ("xact_rollback", Value::Int8(s.rollbacks)),
        ("conflicts", Value::Int8(s.conflicts)),
        ("deadlocks", Value::Int8(s.deadlocks)),
    ]);
    Ok(())
}

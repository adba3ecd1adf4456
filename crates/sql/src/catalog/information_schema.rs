//! The SQL standard's views. Each shows what the current role may see: what it owns or holds a privilege on.
//!
//! As in PostgreSQL 15, NOT NULL counts as a CHECK constraint with a made-up name (`2200_16384_1_not_null`).

use super::relations::{RELATIONS, Rows};
use super::rows::*;
use super::{CatalogScan, classes, deparse};
use crate::ddl::privileges;
use crate::types::typename::format_type;
use base::modifier::numeric_modifier;
use base::schema::{
    CheckOption, Column, Deferral, FkAction, Identity, Relation, Table, TypeKind, ViewDef,
    privilege,
};
use base::{ColumnType, Oid, Result, Type, Value};

fn db(cx: &CatalogScan<'_>) -> Value {
    text(cx.facts.database())
}

fn ns(cx: &CatalogScan<'_>, namespace: Oid) -> Value {
    maybe(cx.schema().namespace(namespace).map(|n| &n.name))
}

/// Whether the role holds any privilege on the relation, or on a column of it.
fn seen(cx: &CatalogScan<'_>, r: &Relation) -> bool {
    privileges::held_on_some_column(cx.schema(), cx.facts.current_role(), r) != 0
}

/// Whether it may do more than read: what the views on constraints ask.
fn changeable(cx: &CatalogScan<'_>, r: &Relation) -> bool {
    let held = privileges::held_on_some_column(cx.schema(), cx.facts.current_role(), r);
    held & !privilege::SELECT != 0
}

fn visible<'a>(cx: &CatalogScan<'a>) -> Vec<&'a Relation> {
    let all = classes::relations(cx).into_iter();
    all.filter(|r| seen(cx, r)).collect()
}

fn visible_tables<'a>(cx: &CatalogScan<'a>) -> Vec<&'a Table> {
    let all = classes::relations(cx).into_iter();
    all.filter(|r| changeable(cx, r))
        .filter_map(|r| match r {
            Relation::Table(t) => Some(&**t),
            _ => None,
        })
        .collect()
}

pub(super) fn catalog_name(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    rows.push(&[("catalog_name", db(cx))]);
    Ok(())
}

pub(super) fn schemata(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let s = cx.schema();
    let role = cx.facts.current_role();
    let mut all: Vec<_> = s.namespaces().collect();
    all.sort_by_key(|n| n.id);
    for n in all {
        if s.has_rights_of(role, n.owner) {
            rows.push(&[
                ("catalog_name", db(cx)),
                ("schema_name", text(&n.name)),
                ("schema_owner", text(role_name(s, n.owner))),
            ]);
        }
    }
    Ok(())
}

pub(super) fn tables(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let mut push = |namespace: Oid, name: &str, view: bool, insertable: bool| {
        rows.push(&[
            ("table_catalog", db(cx)),
            ("table_schema", ns(cx, namespace)),
            ("table_name", text(name)),
            (
                "table_type",
                text(match cx.schema().temporary() == Some(namespace) {
                    true => "LOCAL TEMPORARY",
                    false if view => "VIEW",
                    false => "BASE TABLE",
                }),
            ),
            ("is_insertable_into", yes_no(insertable)),
            ("is_typed", text("NO")),
        ]);
    };
    for r in RELATIONS.iter() {
        push(r.namespace, r.name, r.kind == b'v', r.kind == b'r');
    }
    for r in visible(cx) {
        match r {
            Relation::Table(t) => push(t.def.namespace, &t.def.name, false, true),
            Relation::View(v) => push(v.namespace, &v.name, true, writable(cx, v)),
            Relation::Sequence(_) => {}
        }
    }
    Ok(())
}

/// (precision, radix, scale) of a number.
fn numeric(ty: Type, typmod: i32) -> (Option<i32>, Option<i32>, Option<i32>) {
    match ty {
        Type::Int2 => (Some(16), Some(2), Some(0)),
        Type::Int4 => (Some(32), Some(2), Some(0)),
        Type::Int8 => (Some(64), Some(2), Some(0)),
        Type::Float4 => (Some(24), Some(2), None),
        Type::Float8 => (Some(53), Some(2), None),
        Type::Numeric => match numeric_modifier(typmod) {
            Some((p, s)) => (Some(p), Some(10), Some(s)),
            None => (None, Some(10), None),
        },
        _ => (None, None, None),
    }
}

/// The schema that a column's type is in.
fn udt_schema(cx: &CatalogScan<'_>, ty: Type) -> Value {
    match ty {
        Type::User(u) | Type::UserArray(u) => {
            let t = cx.schema().user_type(u.oid);
            t.map_or(Value::Null, |t| ns(cx, t.def.namespace))
        }
        ty => {
            let of = ty.extension().and_then(|e| cx.schema().extension(e));
            of.map_or(text("pg_catalog"), |e| ns(cx, e.namespace))
        }
    }
}

fn int(n: Option<i32>) -> Value {
    n.map_or(Value::Null, Value::Int4)
}

fn data_type(ty: Type) -> String {
    if matches!(ty, Type::User(_) | Type::Citext) {
        return "USER-DEFINED".into();
    }
    let array = ty.element().is_some() && ty.typname().starts_with('_');
    if array {
        "ARRAY".into()
    } else {
        format_type(ty, -1)
    }
}

pub(super) fn columns(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in RELATIONS.iter() {
        for (i, (name, ty)) in r.columns.iter().enumerate() {
            let mut c = Column::new(*name, (*ty).into());
            c.not_null = r.not_null[i];
            column(cx, rows, (r.oid, r.namespace, r.name), i, &c, false);
        }
    }
    for r in visible(cx) {
        let (id, namespace, name, columns) = match r {
            Relation::Table(t) => (t.def.id, t.def.namespace, &t.def.name, &t.def.columns),
            Relation::View(v) => (v.id, v.namespace, &v.name, &v.columns),
            Relation::Sequence(_) => continue,
        };
        let writable = match r {
            Relation::View(v) => cx
                .facts
                .writable_columns(cx.schema(), v)
                .unwrap_or_default(),
            _ => vec![true; columns.len()],
        };
        let whole = privileges::held(cx.schema(), cx.facts.current_role(), r) != 0;
        for (i, c) in columns.iter().enumerate().filter(|(_, c)| !c.dropped) {
            let role = cx.facts.current_role();
            if !whole && privileges::held_on_column(cx.schema(), role, r, i) == 0 {
                continue;
            }
            let updatable = writable.get(i) == Some(&true);
            column(cx, rows, (id, namespace, name), i, c, updatable);
        }
    }
    Ok(())
}

/// What `columns` and `domains` say of a type.
fn sizes(cx: &CatalogScan<'_>, ty: ColumnType) -> [(&'static str, Value); 10] {
    let limit = match ty.ty {
        Type::Varchar | Type::Bpchar if ty.typmod >= 4 => Some(ty.typmod - 4),
        Type::Bit | Type::VarBit if ty.typmod > 0 => Some(ty.typmod),
        _ => None,
    };
    let octets = match ty.ty {
        Type::Text | Type::Varchar | Type::Bpchar => Some(limit.map_or(1 << 30, |n| n * 4)),
        _ => None,
    };
    let (precision, radix, scale) = numeric(ty.ty, ty.typmod);
    let time = match ty.ty {
        Type::Date => Some(0),
        Type::Time | Type::TimeTz | Type::Timestamp | Type::TimestampTz | Type::Interval => {
            Some(if ty.typmod >= 0 {
                ty.typmod & 0xffff
            } else {
                6
            })
        }
        _ => None,
    };
    [
        ("data_type", text(data_type(ty.ty))),
        ("character_maximum_length", int(limit)),
        ("character_octet_length", int(octets)),
        ("numeric_precision", int(precision)),
        ("numeric_precision_radix", int(radix)),
        ("numeric_scale", int(scale)),
        ("datetime_precision", int(time)),
        ("udt_catalog", db(cx)),
        ("udt_schema", udt_schema(cx, ty.ty)),
        ("udt_name", text(ty.ty.typname())),
    ]
}

/// Domains, and types of their values.
pub(super) fn domains(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for t in cx.schema().user_types() {
        let TypeKind::Domain(d) = &t.def.kind else {
            continue;
        };
        let ty = ColumnType {
            ty: t.ty,
            typmod: d.typmod,
        };
        let mut row = vec![
            ("domain_catalog", db(cx)),
            ("domain_schema", ns(cx, t.def.namespace)),
            ("domain_name", text(&t.def.name)),
            ("domain_default", maybe(d.default.as_ref())),
            ("dtd_identifier", text("1")),
        ];
        row.extend(sizes(cx, ty));
        rows.push(&row);
    }
    Ok(())
}

pub(super) fn domain_constraints(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for (def, c) in super::user_types::checks(cx.schema()) {
        rows.push(&[
            ("constraint_catalog", db(cx)),
            ("constraint_schema", ns(cx, def.namespace)),
            ("constraint_name", text(&c.name)),
            ("domain_catalog", db(cx)),
            ("domain_schema", ns(cx, def.namespace)),
            ("domain_name", text(&def.name)),
            ("is_deferrable", text("NO")),
            ("initially_deferred", text("NO")),
        ]);
    }
    Ok(())
}

fn column(
    cx: &CatalogScan<'_>,
    rows: &mut Rows,
    (id, namespace, table): (Oid, Oid, &str),
    at: usize,
    c: &Column,
    updatable: bool,
) {
    let ty = c.ty();
    let default = match c.identity {
        None if !c.generated => deparse::default(cx.schema(), &cx.facts.search_path(), c),
        _ => None,
    };
    let mut row = vec![
        ("table_catalog", db(cx)),
        ("table_schema", ns(cx, namespace)),
        ("table_name", text(table)),
        ("column_name", text(&c.name)),
        ("ordinal_position", Value::Int4(at as i32 + 1)),
        ("column_default", maybe(default)),
        (
            "is_nullable",
            yes_no(!c.not_null && c.rules().is_none_or(|r| !r.1.not_null)),
        ),
        ("domain_name", maybe(c.rules().map(|r| &r.0.name))),
        ("domain_catalog", c.rules().map_or(Value::Null, |_| db(cx))),
        (
            "domain_schema",
            c.rules().map_or(Value::Null, |r| ns(cx, r.0.namespace)),
        ),
        ("dtd_identifier", text((at + 1).to_string())),
        ("is_self_referencing", text("NO")),
        ("is_identity", yes_no(c.identity.is_some())),
        ("identity_cycle", text("NO")),
        (
            "is_generated",
            text(if c.generated { "ALWAYS" } else { "NEVER" }),
        ),
        (
            "generation_expression",
            maybe(c.default.as_ref().filter(|_| c.generated)),
        ),
        ("is_updatable", yes_no(updatable)),
    ];
    row.extend(sizes(cx, ty));
    if let Some(identity) = c.identity {
        row.push((
            "identity_generation",
            text(match identity {
                Identity::Always => "ALWAYS",
                Identity::ByDefault => "BY DEFAULT",
            }),
        ));
        let own = |r: &&Relation| match r {
            Relation::Sequence(s) => s.owned_by == Some((id, at as base::ColumnIdx)),
            _ => false,
        };
        if let Some(Relation::Sequence(s)) = cx.schema().relations().find(own) {
            row.push(("identity_start", text(s.start.to_string())));
            row.push(("identity_increment", text(s.increment.to_string())));
            row.push(("identity_maximum", text(s.max.to_string())));
            row.push(("identity_minimum", text(s.min.to_string())));
            row.push(("identity_cycle", yes_no(s.cycle)));
        }
    }
    rows.push(&row);
}

/// Whether rows may be written through a view.
fn writable(cx: &CatalogScan<'_>, v: &ViewDef) -> bool {
    let columns = cx.facts.writable_columns(cx.schema(), v);
    columns.is_some_and(|c| c.contains(&true))
}

pub(super) fn views(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in visible(cx) {
        let Relation::View(v) = r else { continue };
        let writable = writable(cx, v);
        rows.push(&[
            ("table_catalog", db(cx)),
            ("table_schema", ns(cx, v.namespace)),
            ("table_name", text(&v.name)),
            (
                "view_definition",
                text(deparse::view(
                    cx.schema(),
                    &cx.facts.search_path(),
                    cx.facts,
                    v,
                )),
            ),
            (
                "check_option",
                text(match v.check_option {
                    None => "NONE",
                    Some(CheckOption::Local) => "LOCAL",
                    Some(CheckOption::Cascaded) => "CASCADED",
                }),
            ),
            ("is_updatable", yes_no(writable)),
            ("is_insertable_into", yes_no(writable)),
            ("is_trigger_updatable", text("NO")),
            ("is_trigger_deletable", text("NO")),
            ("is_trigger_insertable_into", text("NO")),
        ]);
    }
    Ok(())
}

pub(super) fn view_table_usage(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in visible(cx) {
        let Relation::View(v) = r else { continue };
        for on in &v.depends_on {
            let Some(on) = super::by_oid(cx.schema(), *on) else {
                continue;
            };
            rows.push(&[
                ("view_catalog", db(cx)),
                ("view_schema", ns(cx, v.namespace)),
                ("view_name", text(&v.name)),
                ("table_catalog", db(cx)),
                ("table_schema", ns(cx, on.namespace())),
                ("table_name", text(on.name())),
            ]);
        }
    }
    Ok(())
}

pub(super) fn sequences(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in visible(cx) {
        let Relation::Sequence(q) = r else { continue };
        let identity = q.owned_by.is_some_and(|(t, c)| {
            let t = cx.schema().table(t);
            t.is_some_and(|t| t.def.columns[c as usize].identity.is_some())
        });
        if identity {
            continue;
        }
        let ty = Type::from_oid(q.type_oid).unwrap_or(Type::Int8);
        rows.push(&[
            ("sequence_catalog", db(cx)),
            ("sequence_schema", ns(cx, q.namespace)),
            ("sequence_name", text(&q.name)),
            ("data_type", text(format_type(ty, -1))),
            ("numeric_precision", int(numeric(ty, -1).0)),
            ("numeric_precision_radix", Value::Int4(2)),
            ("numeric_scale", Value::Int4(0)),
            ("start_value", text(q.start.to_string())),
            ("minimum_value", text(q.min.to_string())),
            ("maximum_value", text(q.max.to_string())),
            ("increment", text(q.increment.to_string())),
            ("cycle_option", yes_no(q.cycle)),
        ]);
    }
    Ok(())
}

/// The constraints of a table: (name, kind, condition of a CHECK).
fn constraints(t: &Table) -> Vec<(String, &'static str, Option<String>)> {
    let d = &t.def;
    let mut all = vec![];
    for i in d.indexes.iter().filter(|i| i.constraint) {
        let kind = match i.is_primary_key() {
            true => "PRIMARY KEY",
            false => "UNIQUE",
        };
        all.push((i.name.clone(), kind, None));
    }
    for f in &d.foreign_keys {
        all.push((f.name.clone(), "FOREIGN KEY", None));
    }
    for c in &d.checks {
        let text = deparse::check(d, c, false);
        let inner = text.trim_start_matches("CHECK ").to_owned();
        all.push((c.name.clone(), "CHECK", Some(inner)));
    }
    for (i, c) in d
        .columns
        .iter()
        .enumerate()
        .filter(|(_, c)| c.not_null && !c.dropped)
    {
        let name = format!("{}_{}_{}_not_null", d.namespace, d.id, i + 1);
        all.push((name, "CHECK", Some(format!("{} IS NOT NULL", c.name))));
    }
    all
}

pub(super) fn table_constraints(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for t in visible_tables(cx) {
        for (name, kind, _) in constraints(t) {
            let distinct = t
                .def
                .indexes
                .iter()
                .find(|i| i.constraint && i.name == name);
            let mut keys = t.def.foreign_keys.iter().filter(|_| kind == "FOREIGN KEY");
            let deferral = match (keys.find(|f| f.name == name), distinct) {
                (Some(f), _) => f.deferral,
                (None, Some(i)) => i.deferral,
                (None, None) => Deferral::Never,
            };
            let distinct = match (kind, distinct) {
                ("UNIQUE", Some(i)) => yes_no(!i.nulls_not_distinct),
                _ => Value::Null,
            };
            rows.push(&[
                ("constraint_catalog", db(cx)),
                ("constraint_schema", ns(cx, t.def.namespace)),
                ("constraint_name", text(&name)),
                ("table_catalog", db(cx)),
                ("table_schema", ns(cx, t.def.namespace)),
                ("table_name", text(&t.def.name)),
                ("constraint_type", text(kind)),
                ("is_deferrable", yes_no(deferral != Deferral::Never)),
                ("initially_deferred", yes_no(deferral == Deferral::Deferred)),
                ("enforced", text("YES")),
                ("nulls_distinct", distinct),
            ]);
        }
    }
    Ok(())
}

pub(super) fn check_constraints(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for t in visible_tables(cx) {
        for (name, _, condition) in constraints(t) {
            let Some(condition) = condition else { continue };
            rows.push(&[
                ("constraint_catalog", db(cx)),
                ("constraint_schema", ns(cx, t.def.namespace)),
                ("constraint_name", text(name)),
                ("check_clause", text(condition)),
            ]);
        }
    }
    Ok(())
}

pub(super) fn key_column_usage(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for t in visible_tables(cx) {
        let d = &t.def;
        let mut push = |name: &str, at: usize, column: base::ColumnIdx, unique: Option<usize>| {
            rows.push(&[
                ("constraint_catalog", db(cx)),
                ("constraint_schema", ns(cx, d.namespace)),
                ("constraint_name", text(name)),
                ("table_catalog", db(cx)),
                ("table_schema", ns(cx, d.namespace)),
                ("table_name", text(&d.name)),
                ("column_name", text(&d.columns[column as usize].name)),
                ("ordinal_position", Value::Int4(at as i32 + 1)),
                (
                    "position_in_unique_constraint",
                    unique.map_or(Value::Null, |p| Value::Int4(p as i32 + 1)),
                ),
            ]);
        };
        for i in d.indexes.iter().filter(|i| i.constraint) {
            for (at, k) in i.columns.iter().enumerate() {
                push(&i.name, at, k.column, None);
            }
        }
        for f in &d.foreign_keys {
            let target = cx.schema().table(f.ref_table);
            let index = target.and_then(|t| t.def.indexes.iter().find(|i| i.id == f.ref_index));
            for (at, (c, r)) in f.columns.iter().zip(&f.ref_columns).enumerate() {
                let place = index.and_then(|i| i.columns.iter().position(|k| k.column == *r));
                push(&f.name, at, *c, place);
            }
        }
    }
    Ok(())
}

pub(super) fn referential_constraints(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let rule = |a| {
        text(match a {
            FkAction::NoAction => "NO ACTION",
            FkAction::Restrict => "RESTRICT",
            FkAction::Cascade => "CASCADE",
            FkAction::SetNull => "SET NULL",
            FkAction::SetDefault => "SET DEFAULT",
        })
    };
    for t in visible_tables(cx) {
        for f in &t.def.foreign_keys {
            let target = cx.schema().table(f.ref_table);
            let index = target.and_then(|t| t.def.indexes.iter().find(|i| i.id == f.ref_index));
            let of_constraint = index.filter(|i| i.constraint);
            let namespace = target.map_or(0, |t| t.def.namespace);
            rows.push(&[
                ("constraint_catalog", db(cx)),
                ("constraint_schema", ns(cx, t.def.namespace)),
                ("constraint_name", text(&f.name)),
                (
                    "unique_constraint_catalog",
                    of_constraint.map_or(Value::Null, |_| db(cx)),
                ),
                (
                    "unique_constraint_schema",
                    of_constraint.map_or(Value::Null, |_| ns(cx, namespace)),
                ),
                (
                    "unique_constraint_name",
                    maybe(of_constraint.map(|i| &i.name)),
                ),
                ("match_option", text("NONE")),
                ("update_rule", rule(f.on_update)),
                ("delete_rule", rule(f.on_delete)),
            ]);
        }
    }
    Ok(())
}

/// (table, column, constraint's table, constraint): what each constraint is about.
fn usage(cx: &CatalogScan<'_>, mut f: impl FnMut(&Table, Option<&str>, &Table, &str)) {
    for t in visible_tables(cx) {
        let name = |t: &Table, c: base::ColumnIdx| t.def.columns[c as usize].name.clone();
        for i in t.def.indexes.iter().filter(|i| i.constraint) {
            for k in &i.columns {
                f(t, Some(&name(t, k.column)), t, &i.name);
            }
        }
        for k in &t.def.foreign_keys {
            let Some(target) = cx.schema().table(k.ref_table) else {
                continue;
            };
            for c in &k.ref_columns {
                f(target, Some(&name(target, *c)), t, &k.name);
            }
        }
        for c in &t.def.checks {
            let names: Vec<&str> = t
                .def
                .columns
                .iter()
                .filter(|c| !c.dropped)
                .map(|c| c.name.as_str())
                .collect();
            for column in crate::ddl::expr_text::mentioned(&c.expr, &names) {
                f(t, Some(column), t, &c.name);
            }
        }
    }
}

pub(super) fn constraint_column_usage(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    usage(cx, |t, column, of, name| {
        rows.push(&[
            ("table_catalog", db(cx)),
            ("table_schema", ns(cx, t.def.namespace)),
            ("table_name", text(&t.def.name)),
            ("column_name", maybe(column)),
            ("constraint_catalog", db(cx)),
            ("constraint_schema", ns(cx, of.def.namespace)),
            ("constraint_name", text(name)),
        ]);
    });
    Ok(())
}

pub(super) fn constraint_table_usage(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let mut done: Vec<(Oid, String)> = vec![];
    usage(cx, |t, _, of, name| {
        let key = (of.def.id, name.to_owned());
        if done.contains(&key) {
            return;
        }
        done.push(key);
        rows.push(&[
            ("table_catalog", db(cx)),
            ("table_schema", ns(cx, t.def.namespace)),
            ("table_name", text(&t.def.name)),
            ("constraint_catalog", db(cx)),
            ("constraint_schema", ns(cx, of.def.namespace)),
            ("constraint_name", text(name)),
        ]);
    });
    Ok(())
}

pub(super) fn table_privileges(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    const NAMES: [(u32, &str); 7] = [
        (privilege::INSERT, "INSERT"),
        (privilege::SELECT, "SELECT"),
        (privilege::UPDATE, "UPDATE"),
        (privilege::DELETE, "DELETE"),
        (privilege::TRUNCATE, "TRUNCATE"),
        (privilege::REFERENCES, "REFERENCES"),
        (privilege::TRIGGER, "TRIGGER"),
    ];
    let s = cx.schema();
    for r in visible(cx) {
        let (namespace, owner, acl) = match r {
            Relation::Table(t) => (t.def.namespace, t.def.owner, &t.def.acl),
            Relation::View(v) => (v.namespace, v.owner, &v.acl),
            Relation::Sequence(_) => continue,
        };
        let all = match acl.is_empty() {
            true => vec![(owner, privilege::ALL)],
            false => acl.clone(),
        };
        for (to, bits) in all {
            for (bit, name) in NAMES {
                if bits & bit == 0 {
                    continue;
                }
                let grantee = if to == 0 {
                    "PUBLIC".into()
                } else {
                    role_name(s, to)
                };
                rows.push(&[
                    ("grantor", text(role_name(s, owner))),
                    ("grantee", text(grantee)),
                    ("table_catalog", db(cx)),
                    ("table_schema", ns(cx, namespace)),
                    ("table_name", text(r.name())),
                    ("privilege_type", text(name)),
                    ("is_grantable", yes_no(to == owner)),
                    ("with_hierarchy", yes_no(bit == privilege::SELECT)),
                ]);
            }
        }
    }
    Ok(())
}

/// Rights on columns: those on the relation, and their own.
pub(super) fn column_privileges(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    const NAMES: [(u32, &str); 4] = [
        (privilege::INSERT, "INSERT"),
        (privilege::SELECT, "SELECT"),
        (privilege::UPDATE, "UPDATE"),
        (privilege::REFERENCES, "REFERENCES"),
    ];
    let (s, role) = (cx.schema(), cx.facts.current_role());
    for r in classes::relations(cx) {
        let (namespace, owner, of_relation) = match r {
            Relation::Table(t) => (t.def.namespace, t.def.owner, &t.def.acl),
            Relation::View(v) => (v.namespace, v.owner, &v.acl),
            Relation::Sequence(_) => continue,
        };
        let of_relation = match of_relation.is_empty() {
            true => vec![(owner, privilege::ALL)],
            false => of_relation.clone(),
        };
        let grants = s.has_rights_of(role, owner);
        for c in r.columns().iter().filter(|c| !c.dropped) {
            let mut all = of_relation.clone();
            for &(to, bits) in &c.acl {
                match all.iter_mut().find(|(known, _)| *known == to) {
                    Some((_, held)) => *held |= bits,
                    None => all.push((to, bits)),
                }
            }
            for (to, bits) in all {
                if !grants && to != 0 && !s.has_rights_of(role, to) {
                    continue;
                }
                let grantee = match to {
                    0 => "PUBLIC".into(),
                    to => role_name(s, to),
                };
                for (_, name) in NAMES.iter().filter(|(bit, _)| bits & bit != 0) {
                    rows.push(&[
                        ("grantor", text(role_name(s, owner))),
                        ("grantee", text(&grantee)),
                        ("table_catalog", db(cx)),
                        ("table_schema", ns(cx, namespace)),
                        ("table_name", text(r.name())),
                        ("column_name", text(&c.name)),
                        ("privilege_type", text(name)),
                        (
                            "is_grantable",
                            yes_no(to != 0 && s.has_rights_of(to, owner)),
                        ),
                    ]);
                }
            }
        }
    }
    Ok(())
}

pub(super) fn enabled_roles(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let roles = cx.schema().rights_of(cx.facts.current_role());
    for role in roles.iter() {
        rows.push(&[("role_name", text(role_name(cx.schema(), role)))]);
    }
    Ok(())
}

pub(super) fn character_sets(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    rows.push(&[
        ("character_set_name", text("UTF8")),
        ("character_repertoire", text("UCS")),
        ("form_of_use", text("UTF8")),
        ("default_collate_catalog", db(cx)),
    ]);
    Ok(())
}

pub(super) fn collations(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for name in ["default", "C", "POSIX"] {
        rows.push(&[
            ("collation_catalog", db(cx)),
            ("collation_schema", text("pg_catalog")),
            ("collation_name", text(name)),
            ("pad_attribute", text("NO PAD")),
        ]);
    }
    Ok(())
}

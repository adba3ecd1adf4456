//! Relations and what they are made of: `pg_class`, `pg_attribute`, `pg_index`, `pg_constraint` and their kin.

use super::relations::{RELATIONS, Rows};
use super::rows::*;
use super::{CatalogScan, deparse, types};
use base::schema::{
    CheckOption, Column, Composite, Deferral, FkAction, Identity, Index, IndexColumn, PG_CATALOG,
    Relation, Table, TypeDef, ViewDef,
};
use base::{ColumnIdx, ColumnType, Oid, Result, Type, Value};

/// Numbers of the access methods.
const HEAP: Oid = 2;
const BTREE: Oid = 403;

/// Relations in order of their numbers, so that lists are the same each time.
pub(super) fn relations<'a>(cx: &CatalogScan<'a>) -> Vec<&'a Relation> {
    let mut all: Vec<&Relation> = cx.catalog.schema.relations().collect();
    all.sort_by_key(|r| r.id());
    all
}

/// Tables in order of their numbers.
pub(super) fn tables<'a>(cx: &CatalogScan<'a>) -> Vec<&'a Table> {
    let table = |r: &'a Relation| match r {
        Relation::Table(t) => Some(&**t),
        _ => None,
    };
    relations(cx).into_iter().filter_map(table).collect()
}

struct Class<'a> {
    id: Oid,
    name: &'a str,
    namespace: Oid,
    owner: Oid,
    kind: u8,
    columns: usize,
    file: Oid,
}

/// The options of a view as `pg_class` has them; NULL without any.
fn view_options(v: &ViewDef) -> Value {
    let check = v.check_option.map(|c| match c {
        CheckOption::Local => "check_option=local",
        CheckOption::Cascaded => "check_option=cascaded",
    });
    let invoker = v.security_invoker.then_some("security_invoker=true");
    let all: Vec<Value> = invoker.into_iter().chain(check).map(text).collect();
    match all.is_empty() {
        true => Value::Null,
        false => array(Type::Text, all),
    }
}

fn persistence(s: &base::schema::Schema, namespace: Oid) -> Value {
    char(match s.temporary() == Some(namespace) {
        true => b't',
        false => b'p',
    })
}

fn of_catalog(r: &super::relations::Relation) -> Class<'_> {
    Class {
        id: r.oid,
        name: r.name,
        namespace: r.namespace,
        owner: base::schema::BOOTSTRAP_ROLE,
        kind: r.kind,
        columns: r.columns.len(),
        file: 0,
    }
}

fn of_composite<'a>(def: &'a TypeDef, c: &Composite) -> Class<'a> {
    Class {
        id: c.relation,
        name: &def.name,
        namespace: def.namespace,
        owner: def.owner,
        kind: b'c',
        columns: c.attributes.len(),
        file: 0,
    }
}

pub(super) fn pg_class(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let s = cx.schema();
    let mut push = |c: Class<'_>, more: &[(&str, Value)]| {
        let am = match c.kind {
            b'r' if c.id >= base::id::FIRST_USER_OID => HEAP,
            b'i' => BTREE,
            _ => 0,
        };
        let mut row = vec![
            ("oid", oid(c.id)),
            ("relname", text(c.name)),
            ("relnamespace", oid(c.namespace)),
            ("relowner", oid(c.owner)),
            ("relam", oid(am)),
            ("relfilenode", oid(c.file)),
            ("reltuples", Value::Float4(-1.0)),
            ("relpersistence", persistence(s, c.namespace)),
            ("relkind", char(c.kind)),
            ("relnatts", Value::Int2(c.columns as i16)),
            ("relispopulated", Value::Bool(true)),
            (
                "relreplident",
                char(if c.kind == b'r' { b'd' } else { b'n' }),
            ),
        ];
        row.extend_from_slice(more);
        rows.push(&row);
    };
    for r in RELATIONS.iter() {
        push(of_catalog(r), &[]);
    }
    for (def, c) in super::user_types::composites(s) {
        push(of_composite(def, c), &[("reltype", oid(def.id))]);
    }
    for r in relations(cx) {
        match r {
            Relation::Table(t) => {
                let d = &t.def;
                let tuples = cx.facts.estimated_rows(d.id).map_or(-1.0, |n| n as f32);
                let class = Class {
                    id: d.id,
                    name: &d.name,
                    namespace: d.namespace,
                    owner: d.owner,
                    kind: b'r',
                    columns: d.columns.len(),
                    file: d.storage,
                };
                let keys = !d.foreign_keys.is_empty() || !t.referenced_by.is_empty();
                push(
                    class,
                    &[
                        ("reltuples", Value::Float4(tuples)),
                        ("relhasindex", Value::Bool(!d.indexes.is_empty())),
                        ("relchecks", Value::Int2(d.checks.len() as i16)),
                        ("relhastriggers", Value::Bool(keys)),
                        ("relacl", acl(s, d.owner, &d.acl)),
                    ],
                );
                for i in &d.indexes {
                    let class = Class {
                        id: i.id,
                        name: &i.name,
                        namespace: d.namespace,
                        owner: d.owner,
                        kind: b'i',
                        columns: i.columns.len(),
                        file: i.id,
                    };
                    push(class, &[("reltuples", Value::Float4(tuples))]);
                }
            }
            Relation::View(v) => {
                let class = Class {
                    id: v.id,
                    name: &v.name,
                    namespace: v.namespace,
                    owner: v.owner,
                    kind: b'v',
                    columns: v.columns.len(),
                    file: 0,
                };
                push(
                    class,
                    &[
                        ("relhasrules", Value::Bool(true)),
                        ("reloptions", view_options(v)),
                        ("relacl", acl(s, v.owner, &v.acl)),
                    ],
                );
            }
            Relation::Sequence(q) => {
                let class = Class {
                    id: q.id,
                    name: &q.name,
                    namespace: q.namespace,
                    owner: q.owner,
                    kind: b'S',
                    columns: 3,
                    file: q.id,
                };
                push(class, &[("relacl", acl(s, q.owner, &q.acl))]);
            }
        }
    }
    Ok(())
}

struct Attribute<'a> {
    relation: Oid,
    name: &'a str,
    /// From 1 on; system columns are below 0.
    number: i16,
    ty: ColumnType,
    not_null: bool,
}

fn attribute(rows: &mut Rows, a: &Attribute<'_>, more: &[(&str, Value)]) {
    let info = types::info(a.ty.ty);
    let dims = i32::from(a.ty.ty.element().is_some() && a.ty.ty.typname().starts_with('_'));
    let mut row = vec![
        ("attrelid", oid(a.relation)),
        ("attname", text(a.name)),
        ("atttypid", oid(a.ty.ty.oid())),
        ("attstattarget", Value::Int4(-1)),
        ("attlen", Value::Int2(a.ty.ty.typlen())),
        ("attnum", Value::Int2(a.number)),
        ("attndims", Value::Int4(dims)),
        ("attcacheoff", Value::Int4(-1)),
        ("atttypmod", Value::Int4(a.ty.typmod)),
        ("attbyval", Value::Bool(info.by_value)),
        ("attalign", char(info.align)),
        ("attstorage", char(info.storage)),
        ("attnotnull", Value::Bool(a.not_null)),
        ("attislocal", Value::Bool(true)),
        ("attcollation", oid(info.collation)),
    ];
    row.extend_from_slice(more);
    rows.push(&row);
}

pub(super) fn pg_attribute(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let plain =
        |rows: &mut Rows, relation: Oid, columns: &mut dyn Iterator<Item = (&str, Type)>| {
            for (i, (name, ty)) in columns.enumerate() {
                let a = Attribute {
                    relation,
                    name,
                    number: i as i16 + 1,
                    ty: ty.into(),
                    not_null: false,
                };
                attribute(rows, &a, &[]);
            }
        };
    for r in RELATIONS.iter() {
        plain(rows, r.oid, &mut r.columns.iter().copied());
        if r.kind == b'r' {
            system_columns(rows, r.oid);
        }
    }
    for (_, c) in super::user_types::composites(cx.schema()) {
        for (i, part) in c.attributes.iter().enumerate() {
            let mut column = Column::new(&part.name, Type::Bytea.into());
            let ty = cx.schema().type_numbered(part.type_oid);
            if let Some(ty) = ty.filter(|_| !part.dropped) {
                column.set_type(base::ColumnType {
                    ty,
                    typmod: part.typmod,
                });
            }
            column.dropped = part.dropped;
            self::column(rows, c.relation, i, &column, Value::Null);
        }
    }
    for r in relations(cx) {
        if !matches!(r, Relation::View(_)) {
            system_columns(rows, r.id());
        }
        match r {
            Relation::Table(t) => {
                for (i, c) in t.def.columns.iter().enumerate() {
                    column(rows, t.def.id, i, c, acl(cx.schema(), t.def.owner, &c.acl));
                }
                for x in &t.def.indexes {
                    for (i, k) in x.written().iter().enumerate() {
                        let c = &t.def.columns[k.column as usize];
                        let a = Attribute {
                            relation: x.id,
                            name: &crate::ddl::expr_text::key_name(c),
                            number: i as i16 + 1,
                            ty: c.ty(),
                            not_null: false,
                        };
                        attribute(rows, &a, &[]);
                    }
                }
            }
            Relation::View(v) => {
                for (i, c) in v.columns.iter().enumerate() {
                    column(rows, v.id, i, c, acl(cx.schema(), v.owner, &c.acl));
                }
            }
            Relation::Sequence(q) => {
                let columns = [
                    ("last_value", Type::Int8),
                    ("log_cnt", Type::Int8),
                    ("is_called", Type::Bool),
                ];
                plain(rows, q.id, &mut columns.into_iter());
            }
        }
    }
    Ok(())
}

/// The system columns that each relation with rows of its own has in PostgreSQL, whether or not a statement may read them here.
fn system_columns(rows: &mut Rows, relation: Oid) {
    const CID: Oid = 29;
    let columns = [
        ("tableoid", Type::Oid),
        ("cmax", Type::Xid),
        ("xmax", Type::Xid),
        ("cmin", Type::Xid),
        ("xmin", Type::Xid),
        ("ctid", Type::Tid),
    ];
    for (i, (name, ty)) in columns.into_iter().enumerate() {
        let a = Attribute {
            relation,
            name,
            number: i as i16 - 6,
            ty: ty.into(),
            not_null: true,
        };
        let mut more = vec![("attstattarget", Value::Int4(0))];
        if name.starts_with('c') && ty == Type::Xid {
            more.push(("atttypid", oid(CID)));
        }
        attribute(rows, &a, &more);
    }
}

fn column(rows: &mut Rows, relation: Oid, at: usize, c: &Column, acl: Value) {
    let a = Attribute {
        relation,
        name: &c.name,
        number: at as i16 + 1,
        ty: c.ty(),
        not_null: c.not_null,
    };
    let identity = match c.identity {
        None => 0,
        Some(Identity::Always) => b'a',
        Some(Identity::ByDefault) => b'd',
    };
    let mut more = vec![
        ("attidentity", char(identity)),
        (
            "attgenerated",
            char(if c.generated && !c.dropped { b's' } else { 0 }),
        ),
        (
            "atthasdef",
            Value::Bool(c.default.is_some() && c.identity.is_none() && !c.dropped),
        ),
        ("atthasmissing", Value::Bool(c.missing.is_some())),
        ("attisdropped", Value::Bool(c.dropped)),
        ("attacl", acl),
    ];
    if c.dropped {
        more.push((
            "attname",
            text(format!("........pg.dropped.{}........", at + 1)),
        ));
        more.push(("atttypid", oid(0)));
    } else if let Some(domain) = c.domain {
        more.push(("atttypid", oid(domain)));
        more.push(("atttypmod", Value::Int4(-1)));
    }
    if let Some(options) = crate::ddl::split::shown(c.split.as_ref()) {
        let options = options.into_iter().map(Value::from).collect();
        more.push(("attoptions", array(Type::Text, options)));
    }
    attribute(rows, &a, &more);
}

/// A number of its own for a default: nothing else refers to it.
pub(super) fn default_oid(table: Oid, column: usize) -> Oid {
    table.wrapping_mul(2048).wrapping_add(column as u32 + 1)
}

pub(super) fn pg_attrdef(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for t in tables(cx) {
        for (i, c) in t.def.columns.iter().enumerate() {
            if c.dropped || c.identity.is_some() {
                continue;
            }
            let path = cx.facts.search_path();
            let shown = match c.generated {
                true => deparse::generated(&t.def, c),
                false => deparse::default(cx.schema(), &path, c),
            };
            if let Some(d) = shown {
                rows.push(&[
                    ("oid", oid(default_oid(t.def.id, i))),
                    ("adrelid", oid(t.def.id)),
                    ("adnum", Value::Int2(i as i16 + 1)),
                    ("adbin", text(d)),
                ]);
            }
        }
    }
    Ok(())
}

pub(super) fn pg_index(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for t in tables(cx) {
        for i in &t.def.indexes {
            let hidden = |k: &&IndexColumn| t.def.columns[k.column as usize].is_hidden();
            let expressions: Vec<&str> = i
                .written()
                .iter()
                .filter(hidden)
                .map(|k| &*t.def.columns[k.column as usize].name)
                .collect();
            let expressions = (!expressions.is_empty()).then(|| expressions.join(", "));
            let types = || {
                i.written()
                    .iter()
                    .map(|k| t.def.columns[k.column as usize].ty().ty)
            };
            let keys = i
                .written()
                .iter()
                .map(|k| match hidden(&k) {
                    true => Value::Int2(0),
                    false => Value::Int2(k.column as i16 + 1),
                })
                .chain(i.include.iter().map(|c| Value::Int2(*c as i16 + 1)))
                .collect();
            let (key_columns, all_columns) =
                (i.written().len(), i.written().len() + i.include.len());
            let options = i
                .written()
                .iter()
                .map(|k| Value::Int2(i16::from(k.desc) | i16::from(k.nulls_first) << 1))
                .collect();
            let collations = types().map(|t| oid(types::info(t).collation)).collect();
            let classes = types().map(|t| oid(types::operator_class(t))).collect();
            rows.push(&[
                ("indexrelid", oid(i.id)),
                ("indrelid", oid(t.def.id)),
                ("indnatts", Value::Int2(all_columns as i16)),
                ("indnkeyatts", Value::Int2(key_columns as i16)),
                ("indexprs", maybe(expressions)),
                ("indpred", maybe(i.predicate.as_ref())),
                ("indisunique", Value::Bool(i.unique)),
                ("indnullsnotdistinct", Value::Bool(i.nulls_not_distinct)),
                ("indisprimary", Value::Bool(i.is_primary_key())),
                ("indimmediate", Value::Bool(i.deferral.is_never())),
                ("indisvalid", Value::Bool(true)),
                ("indisready", Value::Bool(true)),
                ("indislive", Value::Bool(true)),
                ("indkey", vector(Type::Int2, keys)),
                ("indcollation", vector(Type::Oid, collations)),
                ("indclass", vector(Type::Oid, classes)),
                ("indoption", vector(Type::Int2, options)),
            ]);
        }
    }
    Ok(())
}

fn key(columns: impl IntoIterator<Item = ColumnIdx>) -> Value {
    int2s(columns.into_iter().map(|c| c as i16 + 1))
}

pub(super) fn pg_constraint(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let action = |a| match a {
        FkAction::NoAction => char(b'a'),
        FkAction::Restrict => char(b'r'),
        FkAction::Cascade => char(b'c'),
        FkAction::SetNull => char(b'n'),
        FkAction::SetDefault => char(b'd'),
    };
    for t in tables(cx) {
        let d = &t.def;
        let mut push = |id: Oid, name: &str, kind: u8, more: &[(&str, Value)]| {
            let mut row = vec![
                ("oid", oid(id)),
                ("conname", text(name)),
                ("connamespace", oid(d.namespace)),
                ("contype", char(kind)),
                ("convalidated", Value::Bool(true)),
                ("conrelid", oid(d.id)),
                ("confupdtype", char(b' ')),
                ("confdeltype", char(b' ')),
                ("confmatchtype", char(b' ')),
                ("conislocal", Value::Bool(true)),
                ("connoinherit", Value::Bool(kind != b'c')),
            ];
            row.extend_from_slice(more);
            rows.push(&row);
        };
        for c in &d.checks {
            let all = d.columns.iter().enumerate().filter(|(_, c)| !c.dropped);
            let names: Vec<&str> = all.clone().map(|(_, c)| c.name.as_str()).collect();
            let used = crate::ddl::expr_text::mentioned(&c.expr, &names);
            let place = |n: &&str| all.clone().find(|(_, x)| x.name == **n);
            let places = used.iter().filter_map(place).map(|(i, _)| i as ColumnIdx);
            push(
                c.id,
                &c.name,
                b'c',
                &[
                    ("conkey", key(places)),
                    ("conbin", text(&c.expr)),
                    ("convalidated", Value::Bool(!c.not_valid)),
                ],
            );
        }
        for i in d.indexes.iter().filter(|i| i.constraint) {
            let kind = if i.is_primary_key() { b'p' } else { b'u' };
            let columns = key(i.columns.iter().map(|k| k.column));
            push(
                i.constraint_oid,
                &i.name,
                kind,
                &[
                    ("conindid", oid(i.id)),
                    ("condeferrable", Value::Bool(!i.deferral.is_never())),
                    ("condeferred", Value::Bool(i.deferral == Deferral::Deferred)),
                    ("conkey", columns),
                ],
            );
        }
        for f in &d.foreign_keys {
            push(
                f.id,
                &f.name,
                b'f',
                &[
                    ("conindid", oid(f.ref_index)),
                    ("convalidated", Value::Bool(!f.not_valid)),
                    ("condeferrable", Value::Bool(f.deferral != Deferral::Never)),
                    ("condeferred", Value::Bool(f.deferral == Deferral::Deferred)),
                    ("confrelid", oid(f.ref_table)),
                    ("confupdtype", action(f.on_update)),
                    ("confdeltype", action(f.on_delete)),
                    ("confmatchtype", char(b's')),
                    ("conkey", key(f.columns.iter().copied())),
                    ("confkey", key(f.ref_columns.iter().copied())),
                ],
            );
        }
    }
    super::user_types::constraints(cx, rows);
    Ok(())
}

pub(super) fn pg_namespace(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let mut all: Vec<_> = cx.schema().namespaces().collect();
    all.sort_by_key(|n| n.id);
    for n in all {
        rows.push(&[
            ("oid", oid(n.id)),
            ("nspname", text(&n.name)),
            ("nspowner", oid(n.owner)),
            ("nspacl", acl(cx.schema(), n.owner, &n.acl)),
        ]);
    }
    Ok(())
}

pub(super) fn pg_sequence(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in relations(cx) {
        if let Relation::Sequence(q) = r {
            rows.push(&[
                ("seqrelid", oid(q.id)),
                ("seqtypid", oid(q.type_oid)),
                ("seqstart", Value::Int8(q.start)),
                ("seqincrement", Value::Int8(q.increment)),
                ("seqmax", Value::Int8(q.max)),
                ("seqmin", Value::Int8(q.min)),
                ("seqcache", Value::Int8(q.cache)),
                ("seqcycle", Value::Bool(q.cycle)),
            ]);
        }
    }
    Ok(())
}

/// The catalog that an object stands in, and whether comments on it are shared between databases.
fn class_of(cx: &CatalogScan<'_>, id: Oid) -> Option<(Oid, bool)> {
    let s = cx.schema();
    let class = |name| {
        super::relations::named(PG_CATALOG, name)
            .expect("listed")
            .oid
    };
    if s.role(id).is_some() {
        return Some((class("pg_authid"), true));
    }
    if id == super::DATABASE_OID {
        return Some((class("pg_database"), true));
    }
    if s.namespace(id).is_some() {
        return Some((class("pg_namespace"), false));
    }
    if s.relation(id).is_some() || s.index(id).is_some() {
        return Some((class("pg_class"), false));
    }
    if id == types::PLPGSQL || s.extensions().any(|e| e.id == id) {
        return Some((class("pg_extension"), false));
    }
    if s.type_numbered(id).is_some() {
        return Some((class("pg_type"), false));
    }
    let constraint = |t: &std::sync::Arc<Table>| {
        let keys = t.def.indexes.iter().map(|i| i.constraint_oid);
        let others = t.def.checks.iter().map(|c| c.id);
        let foreign = t.def.foreign_keys.iter().map(|f| f.id);
        keys.chain(others).chain(foreign).any(|c| c == id)
    };
    if s.tables().any(constraint) {
        return Some((class("pg_constraint"), false));
    }
    None
}

pub(super) fn pg_description(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let extension = super::relations::named(PG_CATALOG, "pg_extension")
        .expect("listed")
        .oid;
    if !cx.schema().comments().any(|c| c.1 == types::PLPGSQL) {
        rows.push(&[
            ("objoid", oid(types::PLPGSQL)),
            ("classoid", oid(extension)),
            ("description", text("PL/pgSQL procedural language")),
        ]);
    }
    for e in cx.schema().extensions() {
        let known = crate::extensions::KNOWN.iter().find(|k| k.name == e.name);
        let own = cx.schema().comments().any(|c| c.1 == e.id);
        if let Some(k) = known.filter(|_| !own) {
            rows.push(&[
                ("objoid", oid(e.id)),
                ("classoid", oid(extension)),
                ("description", text(k.comment)),
            ]);
        }
    }
    let mut all: Vec<_> = cx.schema().comments().collect();
    all.sort_by_key(|c| c.0);
    for (_, on, column, comment) in all {
        if let Some((class, false)) = class_of(cx, on) {
            rows.push(&[
                ("objoid", oid(on)),
                ("classoid", oid(class)),
                ("objsubid", Value::Int4(column)),
                ("description", text(comment)),
            ]);
        }
    }
    Ok(())
}

pub(super) fn pg_shdescription(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for (_, on, _, comment) in cx.schema().comments() {
        if let Some((class, true)) = class_of(cx, on) {
            rows.push(&[
                ("objoid", oid(on)),
                ("classoid", oid(class)),
                ("description", text(comment)),
            ]);
        }
    }
    Ok(())
}

/// Rules are how PostgreSQL keeps views; some tools count them.
pub(super) fn pg_rewrite(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in relations(cx) {
        if let Relation::View(v) = r {
            rows.push(&[
                ("oid", oid(v.id)),
                ("rulename", text("_RETURN")),
                ("ev_class", oid(v.id)),
                ("ev_type", char(b'1')),
                ("ev_enabled", char(b'O')),
                ("is_instead", Value::Bool(true)),
                ("ev_qual", text("<>")),
                ("ev_action", text("<>")),
            ]);
        }
    }
    Ok(())
}

/// Whether the index is one that a constraint made: for lists that leave those out.
pub(super) fn index_definition(cx: &CatalogScan<'_>, t: &Table, i: &Index) -> String {
    deparse::index(cx.schema(), None, t, i)
}

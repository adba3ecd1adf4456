//! `pg_depend`: the dependencies that put a dump's statements in order, and those that tools follow.
//!
//! ```text
//! sequence -> its column            a (SERIAL) or i (IDENTITY)
//! default  -> its column            a
//! default  -> sequences it names    n
//! rule of a view -> the view        i
//! rule of a view -> what it reads   n
//! key, foreign key -> its columns   a
//! index -> its key; its columns     i; a where it belongs to no key
//! foreign key -> the referenced columns, the referenced index   n
//! ```
//!
//! `pg_dump` writes a table before the sequence that the table's column owns. Because of the third line the default comes in a
//! statement of its own, behind the sequence.
//!
//! `pg_restore` with several jobs makes a key when its table's rows are there, and a foreign key when the referenced key is made.
//!
//! Left out on purpose: dependencies on schemas, types (but for a domain's on its base) and functions, and those of CHECK constraints, which stand in the table's statement. A dump finds
//! these by other ways.

use super::classes::{default_oid, relations};
use super::relations::Rows;
use super::rows::*;
use super::{CatalogScan, deparse};
use crate::ddl::expr_text;
use base::schema::{Index, PG_CATALOG, Relation, Schema, TableDef, TypeKind};
use base::{Oid, Result, Value};
use sqlparser::tokenizer::Token;

/// One side of a dependency: the catalog, the object in it, the column or 0.
type Side = (Oid, Oid, i32);

/// What types need: domains and composite types their parts, a type of an extension the extension.
fn of_types(
    schema: &Schema,
    (types, class, extensions): (Oid, Oid, Oid),
    push: &mut dyn FnMut(Side, Side, u8),
) {
    if let Some(e) = schema.extension("citext") {
        for ty in [base::Type::Citext, base::Type::CitextArray] {
            push((types, ty.oid(), 0), (extensions, e.id, 0), b'e');
        }
    }
    for t in schema.user_types() {
        if let TypeKind::Domain(d) = &t.def.kind
            && d.base >= base::id::FIRST_USER_OID
        {
            push((types, t.def.id, 0), (types, d.base, 0), b'n');
        }
    }
    for (def, c) in super::user_types::composites(schema) {
        push((class, c.relation, 0), (types, def.id, 0), b'i');
        for (i, a) in c.attributes.iter().enumerate() {
            if a.type_oid >= base::id::FIRST_USER_OID && !a.dropped {
                let from = (class, c.relation, i as i32 + 1);
                push(from, (types, a.type_oid, 0), b'n');
            }
        }
    }
}

pub(super) fn pg_depend(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let catalog = |name| {
        super::relations::named(PG_CATALOG, name)
            .expect("listed")
            .oid
    };
    let extensions = catalog("pg_extension");
    let (types, class, default, rule, constraint) = (
        catalog("pg_type"),
        catalog("pg_class"),
        catalog("pg_attrdef"),
        catalog("pg_rewrite"),
        catalog("pg_constraint"),
    );
    let mut push = |from: Side, to: Side, kind: u8| {
        rows.push(&[
            ("classid", oid(from.0)),
            ("objid", oid(from.1)),
            ("objsubid", Value::Int4(from.2)),
            ("refclassid", oid(to.0)),
            ("refobjid", oid(to.1)),
            ("refobjsubid", Value::Int4(to.2)),
            ("deptype", char(kind)),
        ]);
    };
    let schema = cx.schema();
    of_types(schema, (types, class, extensions), &mut push);
    for r in relations(cx) {
        match r {
            Relation::Sequence(q) => {
                let Some((table, column)) = q.owned_by else {
                    continue;
                };
                let t = schema.table(table);
                let identity = t.is_some_and(|t| t.def.columns[column as usize].identity.is_some());
                let to = (class, table, i32::from(column) + 1);
                push((class, q.id, 0), to, if identity { b'i' } else { b'a' });
            }
            Relation::Table(t) => {
                for (i, c) in t.def.columns.iter().enumerate() {
                    if c.dropped
                        || c.identity.is_some()
                        || deparse::default(schema, &[], c).is_none()
                    {
                        continue;
                    }
                    let from = (default, default_oid(t.def.id, i), 0);
                    push(from, (class, t.def.id, i as i32 + 1), b'a');
                    for sequence in sequences_named(schema, c.default.as_deref()) {
                        push(from, (class, sequence, 0), b'n');
                    }
                }
                for i in &t.def.indexes {
                    let key = (constraint, i.constraint_oid, 0);
                    let from = if i.constraint { key } else { (class, i.id, 0) };
                    for column in columns_of(&t.def, i) {
                        push(from, (class, t.def.id, column as i32 + 1), b'a');
                    }
                    if i.constraint {
                        push((class, i.id, 0), key, b'i');
                    }
                }
                for c in &t.def.checks {
                    let names: Vec<&str> = t.def.columns.iter().map(|c| c.name.as_str()).collect();
                    for name in expr_text::mentioned(&c.expr, &names) {
                        if let Some(at) = t.column(name) {
                            let to = (class, t.def.id, i32::from(at) + 1);
                            push((constraint, c.id, 0), to, b'a');
                        }
                    }
                }
                for f in &t.def.foreign_keys {
                    let from = (constraint, f.id, 0);
                    for c in &f.columns {
                        push(from, (class, t.def.id, i32::from(*c) + 1), b'a');
                    }
                    for c in &f.ref_columns {
                        push(from, (class, f.ref_table, i32::from(*c) + 1), b'n');
                    }
                    push(from, (class, f.ref_index, 0), b'n');
                }
            }
            Relation::View(v) => {
                let from = (rule, v.id, 0);
                push(from, (class, v.id, 0), b'i');
                for &read in &v.depends_on {
                    push(from, (class, read, 0), b'n');
                }
            }
        }
    }
    Ok(())
}

/// The columns that an index is over, those that its expressions and its condition name included.
fn columns_of(def: &TableDef, index: &Index) -> Vec<usize> {
    let mut found: Vec<usize> = index.include.iter().map(|c| *c as usize).collect();
    for k in &index.columns {
        let c = &def.columns[k.column as usize];
        if !c.is_hidden() {
            found.push(k.column as usize);
            continue;
        }
        let live = def.columns.iter().enumerate().filter(|(_, c)| !c.dropped);
        let text = c.default.as_deref().unwrap_or_default();
        let named =
            |c: &base::schema::Column| !expr_text::mentioned(text, &[c.name.as_str()]).is_empty();
        found.extend(live.filter(|(_, c)| named(c)).map(|(i, _)| i));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The sequences that the text of a default names, each with its schema, as DDL has written them.
fn sequences_named(schema: &Schema, default: Option<&str>) -> Vec<Oid> {
    let Some(text) = default.filter(|d| d.to_ascii_lowercase().contains("nextval")) else {
        return vec![];
    };
    let sequence = |t: Token| {
        let Token::SingleQuotedString(name) = t else {
            return None;
        };
        let (namespace, name) = expr_text::parse_name(&name).ok()?;
        let namespace = schema.namespace_named(&namespace?)?;
        let id = schema.lookup(namespace.id, &name)?;
        matches!(schema.relation(id), Some(Relation::Sequence(_))).then_some(id)
    };
    expr_text::tokens(text)
        .into_iter()
        .filter_map(sequence)
        .collect()
}

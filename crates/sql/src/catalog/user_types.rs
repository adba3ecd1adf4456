//! Types that users made: what a name means, and their rows in `pg_type`, `pg_enum`, and of composite types in `pg_class` and `pg_attribute`.
//!
//! `pg_enum.enumsortorder` counts the labels from 1; PostgreSQL shows fractions for labels that were added between others.
//!
//! Left out on purpose: the composite types of tables' rows, which PostgreSQL has beside every table.

use super::relations::Rows;
use super::rows::*;
use super::{CatalogScan, namespaces};
use crate::types::ident::quote_ident;
use crate::types::typename;
use base::schema::{Check, Composite, Schema, TypeDef, TypeKind, UserTypeOf};
use base::{ColumnType, Error, Oid, Result, SqlState, Type, Value};
use std::sync::Arc;

/// A name in front of which and behind which nothing stands.
struct Written {
    schema: Option<String>,
    name: String,
    array: bool,
}

fn written(text: &str) -> Option<Written> {
    let mut name = text.trim();
    let mut array = false;
    while name.ends_with(']')
        && let Some(open) = name.rfind('[')
    {
        (name, array) = (name[..open].trim_end(), true);
    }
    let (schema, name) = crate::ddl::expr_text::parse_name(name).ok()?;
    Some(Written {
        schema,
        name,
        array,
    })
}

/// The schema that a type's name is written with.
pub fn schema_of(text: &str) -> Option<String> {
    written(text)?.schema
}

/// The last part of a type's name, as a column that is cast to it is called.
pub fn last_part(text: &str) -> Option<String> {
    Some(written(text)?.name)
}

/// The user's type of this name, and whether arrays over it are meant.
pub fn user_type<'a>(
    schema: &'a Schema,
    path: &[Oid],
    text: &str,
) -> Option<(&'a Arc<UserTypeOf>, bool)> {
    let w = written(text)?;
    let only = match &w.schema {
        Some(n) => Some(schema.namespace_named(n)?.id),
        None => None,
    };
    let path = match &only {
        Some(n) => std::slice::from_ref(n),
        None => path,
    };
    let named = |name: &str| path.iter().find_map(|n| schema.user_type_named(*n, name));
    match named(&w.name) {
        Some(t) => Some((t, w.array)),
        // `_name` is what the catalog calls the arrays.
        None => Some((named(w.name.strip_prefix('_')?)?, true)),
    }
}

/// The type of an extension that this text means, if the extension is there.
fn extension_type(schema: &Schema, path: &[Oid], text: &str) -> Option<Type> {
    let w = written(text)?;
    let ty = match (w.name.as_str(), w.array) {
        ("citext", false) => Type::Citext,
        ("citext", true) | ("_citext", false) => Type::CitextArray,
        _ => return None,
    };
    let of = schema.extension(ty.extension()?)?;
    let seen = match &w.schema {
        Some(n) => schema.namespace_named(n)?.id == of.namespace,
        None => path.contains(&of.namespace),
    };
    seen.then_some(ty)
}

/// The type of this text, built-in or a user's. `path` has the schemas to search. 42704, and what [`typename`] refuses.
pub fn type_of(
    schema: &Schema,
    path: &[Oid],
    text: &str,
    built_in: Result<ColumnType>,
) -> Result<ColumnType> {
    let e = match built_in {
        Err(e) if e.code() == SqlState::UNDEFINED_OBJECT => e,
        known => return known,
    };
    if let Some(ty) = extension_type(schema, path, text) {
        return Ok(ty.into());
    }
    let Some((t, array)) = user_type(schema, path, text) else {
        if let Some(n) = schema_of(text).filter(|n| schema.namespace_named(n).is_none()) {
            return Err(Error::new(
                SqlState::INVALID_SCHEMA_NAME,
                format!("schema \"{n}\" does not exist"),
            ));
        }
        return Err(e);
    };
    match (&t.def.kind, array) {
        (TypeKind::Domain(_), true) => Err(Error::unsupported("an array of a domain")),
        (TypeKind::Domain(d), false) => Ok(ColumnType {
            ty: t.ty,
            typmod: d.typmod,
        }),
        (TypeKind::Enum(_) | TypeKind::Composite(_), true) => {
            Ok(t.ty.array_of().expect("they have arrays").into())
        }
        (TypeKind::Enum(_) | TypeKind::Composite(_), false) => Ok(t.ty.into()),
    }
}

/// The number of the type of this name; a domain has its own.
pub fn number(schema: &Schema, search_path: &[String], text: &str) -> Result<Oid> {
    let ty = type_named(schema, search_path, text)?.ty;
    let path: Vec<Oid> = namespaces(schema, search_path).collect();
    Ok(match user_type(schema, &path, text) {
        Some((t, false)) if crate::ddl::type_from_text(text).is_err() => t.def.id,
        _ => ty.oid(),
    })
}

/// [`type_of`] with names of schemas.
pub fn type_named(schema: &Schema, search_path: &[String], text: &str) -> Result<ColumnType> {
    let path: Vec<Oid> = namespaces(schema, search_path).collect();
    type_of(schema, &path, text, crate::ddl::type_from_text(text))
}

/// Where a type is that is in a schema of users: a user's own, or an extension's.
struct Place {
    namespace: Oid,
    name: String,
    array: bool,
}

fn place(schema: &Schema, id: Oid) -> Option<Place> {
    let mut all = schema.user_types();
    if let Some(of) = all.find(|t| t.def.id == id || t.def.array == id) {
        return Some(Place {
            namespace: of.def.namespace,
            name: of.def.name.clone(),
            array: id == of.def.array,
        });
    }
    let ty = Type::from_oid(id)?;
    Some(Place {
        namespace: schema.extension(ty.extension()?)?.namespace,
        name: ty.element().unwrap_or(ty).typname().into(),
        array: ty.element().is_some(),
    })
}

/// The name of a type by number. That of a user or of an extension has its schema where the search path does not show it.
pub fn shown(schema: &Schema, search_path: &[String], id: Oid) -> Option<String> {
    let Some(of) = place(schema, id) else {
        return Some(typename::format_type(Type::from_oid(id)?, -1));
    };
    let mut name = quote_ident(&of.name);
    if !visible(schema, search_path, id) {
        let schema = schema.namespace(of.namespace);
        name = format!("{}.{name}", quote_ident(schema.map_or("?", |n| &n.name)));
    }
    Some(if of.array { format!("{name}[]") } else { name })
}

/// Whether the type is found by its name alone.
pub fn visible(schema: &Schema, search_path: &[String], id: Oid) -> bool {
    let Some(of) = place(schema, id) else {
        return true;
    };
    let mut path = namespaces(schema, search_path);
    let there = |n: &Oid| *n == of.namespace || schema.user_type_named(*n, &of.name).is_some();
    path.find(there) == Some(of.namespace)
}

/// Whether the type is in a schema of users.
pub fn is_placed(schema: &Schema, id: Oid) -> bool {
    place(schema, id).is_some()
}

pub(super) fn pg_type(cx: &CatalogScan<'_>, rows: &mut Rows) {
    let s = cx.schema();
    for t in s.user_types() {
        let def = &t.def;
        let acl = def
            .acl
            .as_ref()
            .map_or(Value::Null, |a| acl(s, def.owner, a));
        let common = [
            ("typnamespace", oid(def.namespace)),
            ("typowner", oid(def.owner)),
            ("typisdefined", Value::Bool(true)),
            ("typdelim", char(b',')),
        ];
        let mut row = vec![
            ("oid", oid(def.id)),
            ("typname", text(&def.name)),
            ("typarray", oid(def.array)),
            ("typacl", acl),
        ];
        row.extend_from_slice(&common);
        match &def.kind {
            TypeKind::Enum(_) => row.extend([
                ("typlen", Value::Int2(4)),
                ("typbyval", Value::Bool(true)),
                ("typtype", char(b'e')),
                ("typcategory", char(b'E')),
                ("typtypmod", Value::Int4(-1)),
                ("typalign", char(b'i')),
                ("typinput", oid(3506)),
                ("typoutput", oid(3507)),
                ("typreceive", oid(3532)),
                ("typsend", oid(3533)),
                ("typstorage", char(b'p')),
            ]),
            TypeKind::Composite(c) => row.extend([
                ("typlen", Value::Int2(-1)),
                ("typbyval", Value::Bool(false)),
                ("typtype", char(b'c')),
                ("typcategory", char(b'C')),
                ("typrelid", oid(c.relation)),
                ("typtypmod", Value::Int4(-1)),
                ("typalign", char(b'd')),
                ("typinput", oid(2290)),
                ("typoutput", oid(2291)),
                ("typreceive", oid(2402)),
                ("typsend", oid(2403)),
                ("typstorage", char(b'x')),
            ]),
            TypeKind::Domain(d) => {
                let info = super::types::info(t.ty);
                let (category, output, send) = super::types::category_and_output(t.ty);
                row.extend([
                    ("typlen", Value::Int2(t.ty.typlen())),
                    ("typbyval", Value::Bool(info.by_value)),
                    ("typtype", char(b'd')),
                    ("typcategory", char(category)),
                    ("typbasetype", oid(d.base)),
                    ("typtypmod", Value::Int4(d.typmod)),
                    ("typnotnull", Value::Bool(d.not_null)),
                    ("typdefault", maybe(d.default.as_ref())),
                    ("typdefaultbin", maybe(d.default.as_ref())),
                    ("typalign", char(info.align)),
                    ("typstorage", char(info.storage)),
                    ("typcollation", oid(info.collation)),
                    ("typinput", oid(2597)),
                    ("typoutput", oid(output)),
                    ("typreceive", oid(2598)),
                    ("typsend", oid(send)),
                ]);
            }
        }
        rows.push(&row);
        let composite = matches!(def.kind, TypeKind::Composite(_));
        let align = if composite { b'd' } else { b'i' };
        let name = format!("_{}", def.name);
        let mut row = vec![
            ("oid", oid(def.array)),
            ("typname", text(name)),
            ("typlen", Value::Int2(-1)),
            ("typtype", char(b'b')),
            ("typcategory", char(b'A')),
            ("typtypmod", Value::Int4(-1)),
            ("typalign", char(align)),
            ("typsubscript", oid(6179)),
            ("typelem", oid(def.id)),
            ("typinput", oid(750)),
            ("typoutput", oid(751)),
            ("typreceive", oid(2400)),
            ("typsend", oid(2401)),
            ("typstorage", char(b'x')),
        ];
        row.extend_from_slice(&common);
        rows.push(&row);
    }
}

/// The composite types.
pub(super) fn composites(schema: &Schema) -> impl Iterator<Item = (&TypeDef, &Composite)> {
    schema.user_types().filter_map(|t| match &t.def.kind {
        TypeKind::Composite(c) => Some((&t.def, c)),
        _ => None,
    })
}

/// The checks of domains, in `pg_constraint`.
pub(super) fn constraints(cx: &CatalogScan<'_>, rows: &mut Rows) {
    for (def, c) in checks(cx.schema()) {
        rows.push(&[
            ("oid", oid(c.id)),
            ("conname", text(&c.name)),
            ("connamespace", oid(def.namespace)),
            ("contype", char(b'c')),
            ("convalidated", Value::Bool(true)),
            ("contypid", oid(def.id)),
            ("confupdtype", char(b' ')),
            ("confdeltype", char(b' ')),
            ("confmatchtype", char(b' ')),
            ("conislocal", Value::Bool(true)),
            ("conbin", text(&c.expr)),
        ]);
    }
}

/// All checks of domains.
pub(super) fn checks(schema: &Schema) -> impl Iterator<Item = (&TypeDef, &Check)> {
    schema.user_types().flat_map(|t| {
        let checks = match &t.def.kind {
            TypeKind::Domain(d) => &d.checks[..],
            TypeKind::Enum(_) | TypeKind::Composite(_) => &[],
        };
        checks.iter().map(|c| (&t.def, c))
    })
}

pub(super) fn pg_enum(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for t in cx.schema().user_types() {
        let TypeKind::Enum(labels) = &t.def.kind else {
            continue;
        };
        for (i, l) in labels.iter().enumerate() {
            rows.push(&[
                ("oid", oid(l.id)),
                ("enumtypid", oid(t.def.id)),
                ("enumsortorder", Value::Float4((i + 1) as f32)),
                ("enumlabel", text(&l.name)),
            ]);
        }
    }
    Ok(())
}

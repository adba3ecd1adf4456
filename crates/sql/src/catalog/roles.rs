//! Roles: `pg_authid` and its views. Passwords are shown to superusers only.

use super::CatalogScan;
use super::DATABASE_OID;
use super::relations::Rows;
use super::rows::*;
use base::Result;
use base::schema::{DefaultFor, Role};
use base::stored_settings::For;
use base::{Type, Value};
use std::sync::Arc;

fn roles<'a>(cx: &CatalogScan<'a>) -> Vec<&'a Arc<Role>> {
    let mut all: Vec<_> = cx.catalog.schema.roles().collect();
    all.sort_by_key(|r| r.id);
    all
}

/// Stored settings as `name=value`; NULL where there are none.
fn config(values: &[(String, String)]) -> Value {
    match values.is_empty() {
        true => Value::Null,
        false => {
            let one = |(n, v): &(String, String)| text(format!("{n}={v}"));
            array(Type::Text, values.iter().map(one).collect())
        }
    }
}

pub(super) fn pg_db_role_setting(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for s in cx.schema().settings() {
        let (database, role) = match s.of {
            For::Made => continue,
            For::Database => (DATABASE_OID, 0),
            For::Role(r) => (0, r),
            For::RoleInDatabase(r) => (DATABASE_OID, r),
        };
        rows.push(&[
            ("setdatabase", oid(database)),
            ("setrole", oid(role)),
            ("setconfig", config(&s.values)),
        ]);
    }
    Ok(())
}

pub(super) fn pg_authid(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let superuser = crate::ddl::privileges::is_superuser(cx.schema(), cx.facts.current_role());
    for r in roles(cx) {
        let password = r.password.as_deref().filter(|_| superuser);
        rows.push(&[
            ("oid", oid(r.id)),
            ("rolname", text(&r.name)),
            ("rolsuper", Value::Bool(r.superuser)),
            ("rolinherit", Value::Bool(!r.no_inherit)),
            ("rolcreaterole", Value::Bool(r.createrole)),
            ("rolcreatedb", Value::Bool(r.createdb)),
            ("rolcanlogin", Value::Bool(r.login)),
            ("rolreplication", Value::Bool(r.replication)),
            ("rolbypassrls", Value::Bool(r.superuser)),
            (
                "rolconnlimit",
                Value::Int4(r.connection_limit.unwrap_or(-1)),
            ),
            ("rolvaliduntil", time(r.valid_until)),
            ("rolpassword", maybe(password)),
        ]);
    }
    Ok(())
}

pub(super) fn pg_roles(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in roles(cx) {
        rows.push(&[
            ("oid", oid(r.id)),
            ("rolname", text(&r.name)),
            ("rolsuper", Value::Bool(r.superuser)),
            ("rolinherit", Value::Bool(!r.no_inherit)),
            ("rolcreaterole", Value::Bool(r.createrole)),
            ("rolcreatedb", Value::Bool(r.createdb)),
            ("rolcanlogin", Value::Bool(r.login)),
            ("rolreplication", Value::Bool(r.replication)),
            ("rolbypassrls", Value::Bool(r.superuser)),
            (
                "rolconnlimit",
                Value::Int4(r.connection_limit.unwrap_or(-1)),
            ),
            ("rolvaliduntil", time(r.valid_until)),
            ("rolpassword", text("********")),
            ("rolconfig", config(cx.schema().stored(For::Role(r.id)))),
        ]);
    }
    Ok(())
}

pub(super) fn pg_user(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in roles(cx).into_iter().filter(|r| r.login) {
        rows.push(&[
            ("usename", text(&r.name)),
            ("usesysid", oid(r.id)),
            ("usecreatedb", Value::Bool(r.createdb)),
            ("usesuper", Value::Bool(r.superuser)),
            ("userepl", Value::Bool(r.replication)),
            ("usebypassrls", Value::Bool(r.superuser)),
            ("passwd", text("********")),
            ("valuntil", time(r.valid_until)),
        ]);
    }
    Ok(())
}

pub(super) fn pg_group(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for r in roles(cx).into_iter().filter(|r| !r.login) {
        rows.push(&[
            ("groname", text(&r.name)),
            ("grosysid", oid(r.id)),
            (
                "grolist",
                array(
                    Type::Oid,
                    cx.schema()
                        .memberships()
                        .filter(|m| m.role == r.id)
                        .map(|m| oid(m.member))
                        .collect(),
                ),
            ),
        ]);
    }
    Ok(())
}

pub(super) fn pg_default_acl(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    let mut all: Vec<_> = cx.schema().default_acls().collect();
    all.sort_by_key(|d| d.id);
    for d in all {
        let kind = match d.of {
            DefaultFor::Tables => b'r',
            DefaultFor::Sequences => b'S',
            DefaultFor::Functions => b'f',
            DefaultFor::Types => b'T',
            DefaultFor::Schemas => b'n',
        };
        let empty = array(base::Type::AclItem, vec![]);
        rows.push(&[
            ("oid", oid(d.id)),
            ("defaclrole", oid(d.role)),
            ("defaclnamespace", oid(d.namespace)),
            ("defaclobjtype", char(kind)),
            (
                "defaclacl",
                match d.acl.is_empty() {
                    true => empty,
                    false => acl(cx.schema(), d.role, &d.acl),
                },
            ),
        ]);
    }
    Ok(())
}

pub(super) fn pg_auth_members(cx: &CatalogScan<'_>, rows: &mut Rows) -> Result<()> {
    for m in cx.schema().memberships() {
        rows.push(&[
            ("roleid", oid(m.role)),
            ("member", oid(m.member)),
            ("grantor", oid(m.grantor)),
            ("admin_option", Value::Bool(m.admin)),
        ]);
    }
    Ok(())
}

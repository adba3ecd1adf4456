//! Who may do what. Owners and superusers may do everything; others what an ACL gives them, PUBLIC, or a role whose rights they have.
//!
//! A statement that lacks a right on a relation may do with its columns what their own ACLs give. It needs the right on each column that it
//! names for the purpose. Where it names none (`SELECT count(*)`), one column is enough.
//!
//! Left out on purpose: grant options (refused by GRANT).

use crate::catalog::{self, Resolved};
use base::membership::{READ_ALL_DATA, WRITE_ALL_DATA};
use base::rights::Roles;
use base::schema::{Acl, Column, PUBLIC, Relation, Schema, TypeDef, privilege};
use base::{ColumnSet, Error, Oid, Result, SqlState};

/// Whether the role exists and is a superuser.
pub fn is_superuser(schema: &Schema, role: Oid) -> bool {
    schema.role(role).is_some_and(|r| r.superuser)
}

/// The bits that the ACL gives to one of these roles, or to PUBLIC.
fn granted(acl: &Acl, roles: &Roles) -> u32 {
    acl.iter()
        .filter(|(to, _)| *to == 0 || roles.contains(*to))
        .fold(0, |bits, (_, b)| bits | b)
}

/// What members of `pg_read_all_data` and `pg_write_all_data` may do with any relation.
fn predefined(roles: &Roles) -> u32 {
    let has = |role: Oid, bits: u32| if roles.contains(role) { bits } else { 0 };
    let write = privilege::INSERT | privilege::UPDATE | privilege::DELETE;
    has(READ_ALL_DATA, privilege::SELECT) | has(WRITE_ALL_DATA, write)
}

/// The bits that the role holds on the relation.
pub fn held(schema: &Schema, role: Oid, relation: &Relation) -> u32 {
    let (owner, acl) = match relation {
        Relation::Table(t) => (t.def.owner, &t.def.acl),
        Relation::View(v) => (v.owner, &v.acl),
        Relation::Sequence(s) => (s.owner, &s.acl),
    };
    if owner == role || is_superuser(schema, role) {
        return u32::MAX;
    }
    let roles = schema.rights_of(role);
    match roles.contains(owner) {
        true => u32::MAX,
        false => granted(acl, &roles) | predefined(&roles),
    }
}

/// Columns that a statement names, by what it does with them.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub read: &'a ColumnSet,
    pub inserted: &'a ColumnSet,
    pub updated: &'a ColumnSet,
}

/// The bits that the role holds on a column, by its place; those on the relation count.
pub fn held_on_column(schema: &Schema, role: Oid, relation: &Relation, at: usize) -> u32 {
    let held = held(schema, role, relation);
    let Some(c) = relation.columns().get(at).filter(|c| !c.acl.is_empty()) else {
        return held;
    };
    held | granted(&c.acl, &schema.rights_of(role))
}

/// The bits that the role holds on the relation, or on one of its columns at least.
pub fn held_on_some_column(schema: &Schema, role: Oid, relation: &Relation) -> u32 {
    let held = held(schema, role, relation);
    let mut given = relation.columns().iter().filter(|c| !c.acl.is_empty());
    match given.next() {
        None => held,
        Some(first) => {
            let roles = schema.rights_of(role);
            let of = |bits, c: &Column| bits | granted(&c.acl, &roles);
            given.fold(of(held, first), of)
        }
    }
}

/// Whether the role holds these rights on a relation, or each on the columns that are named for it.
fn holds(schema: &Schema, role: Oid, relation: &Relation, bits: u32, named: Named<'_>) -> bool {
    let missing = bits & !held(schema, role, relation);
    if missing == 0 {
        return true;
    }
    let columns = relation.columns();
    if columns.iter().all(|c| c.acl.is_empty()) {
        return false;
    }
    let roles = schema.rights_of(role);
    let given = |c: &Column, right: u32| granted(&c.acl, &roles) & right != 0;
    let sets = [
        (privilege::SELECT, named.read),
        (privilege::INSERT, named.inserted),
        (privilege::UPDATE, named.updated),
    ];
    let by_columns = sets.iter().fold(0u32, |all, (right, _)| all | right);
    let of_right = |(right, set): &(u32, &ColumnSet)| {
        let column = |n: u16| columns.get(usize::from(n).checked_sub(1)?);
        match set.is_empty() {
            true => columns.iter().any(|c| given(c, *right)),
            false => set
                .iter()
                .all(|n| column(n).is_some_and(|c| given(c, *right))),
        }
    };
    let mut needed = sets.iter().filter(|(right, _)| missing & right != 0);
    missing & !by_columns == 0 && needed.all(of_right)
}

/// [`check`] of a statement that names columns.
pub fn check_named(
    schema: &Schema,
    role: Oid,
    relation: Oid,
    bits: u32,
    named: Named<'_>,
) -> Result<()> {
    match catalog::by_oid(schema, relation) {
        Some(Resolved::Relation(r)) if holds(schema, role, &r, bits, named) => Ok(()),
        _ => check(schema, role, relation, bits),
    }
}

/// [`check_relation`], where the right on each of these columns does, too.
pub fn check_each_column(
    schema: &Schema,
    role: Oid,
    relation: &Relation,
    columns: &[base::ColumnIdx],
    bits: u32,
) -> Result<()> {
    let holds = |at: &base::ColumnIdx| {
        bits & !held_on_column(schema, role, relation, usize::from(*at)) == 0
    };
    match !columns.is_empty() && columns.iter().all(holds) {
        true => Ok(()),
        false => check_relation(schema, role, relation, bits),
    }
}

/// Whether the role may make columns of a type; all may if nothing else is said.
pub fn may_use_type(schema: &Schema, role: Oid, ty: &TypeDef) -> bool {
    let given = ty
        .acl
        .as_ref()
        .map_or(privilege::USAGE, |a| granted(a, &schema.rights_of(role)));
    schema.has_rights_of(role, ty.owner) || given & privilege::USAGE != 0
}

/// Whether the catalog of this name is for superusers only: they hold verifiers of passwords, samples of rows, or the configuration.
pub fn is_closed(catalog: &str) -> bool {
    matches!(
        catalog,
        "pg_authid" | "pg_shadow" | "pg_statistic" | "pg_hba_file_rules" | "pg_file_settings"
    )
}

/// 42501 `permission denied for table t` unless the role holds all of `bits` on the relation. Catalogs may be read by all, but for [closed](is_closed) ones.
pub fn check(schema: &Schema, role: Oid, relation: Oid, bits: u32) -> Result<()> {
    match catalog::by_oid(schema, relation) {
        Some(Resolved::Relation(r)) => check_relation(schema, role, &r, bits),
        Some(Resolved::Virtual(v)) if is_closed(v.name()) && !is_superuser(schema, role) => {
            Err(denied("table", v.name()))
        }
        Some(Resolved::Virtual(v)) if bits & !privilege::SELECT != 0 => {
            Err(denied("table", v.name()))
        }
        _ => Ok(()),
    }
}

/// [`check`] for a relation at hand.
pub fn check_relation(schema: &Schema, role: Oid, relation: &Relation, bits: u32) -> Result<()> {
    if bits & !held(schema, role, relation) == 0 {
        return Ok(());
    }
    let kind = match relation {
        Relation::Table(_) => "table",
        Relation::View(_) => "view",
        Relation::Sequence(_) => "sequence",
    };
    Err(denied(kind, relation.name()))
}

/// The role that reads what a view's query names: the view's owner, or with `security_invoker` the role that runs the statement, however
/// deep the view stands in others.
pub fn reader_in(schema: &Schema, view: Oid, role: Oid) -> Oid {
    match schema.relation(view) {
        Some(Relation::View(v)) if !v.security_invoker => v.owner,
        _ => role,
    }
}

/// The schemas of a search path that the role may use. Names of missing ones are dropped, but for `pg_temp`, which may come yet.
pub fn usable_path(schema: &Schema, role: Oid, path: &[String]) -> Vec<String> {
    let usable = |n: &&String| {
        let found = schema.namespace_named(n);
        let held = |id| held_on_namespace(schema, role, id) & privilege::USAGE != 0;
        found.map_or(*n == "pg_temp", |n| held(n.id))
    };
    path.iter().filter(usable).cloned().collect()
}

/// 42501 unless the role may use the schema of this name. One that is missing is the business of the look-up.
pub fn check_named_namespace(schema: &Schema, role: Oid, name: &str) -> Result<()> {
    match schema.namespace_named(name) {
        Some(n) => check_namespace(schema, role, n.id, privilege::USAGE),
        None => Ok(()),
    }
}

/// The bits (USAGE, CREATE) that the role holds on a schema. Everybody may use `public` and the catalogs.
pub fn held_on_namespace(schema: &Schema, role: Oid, namespace: Oid) -> u32 {
    let Some(n) = schema.namespace(namespace) else {
        return 0;
    };
    if n.owner == role || is_superuser(schema, role) {
        return u32::MAX;
    }
    let roles = schema.rights_of(role);
    if roles.contains(n.owner) {
        return u32::MAX;
    }
    let data = [READ_ALL_DATA, WRITE_ALL_DATA];
    let open = namespace == PUBLIC && n.acl.is_empty()
        || catalog::is_system(namespace)
        || data.iter().any(|r| roles.contains(*r));
    granted(&n.acl, &roles) | if open { privilege::USAGE } else { 0 }
}

/// 42501 `permission denied for schema s`.
pub fn check_namespace(schema: &Schema, role: Oid, namespace: Oid, bits: u32) -> Result<()> {
    if bits & !held_on_namespace(schema, role, namespace) == 0 {
        return Ok(());
    }
    let name = schema.namespace(namespace).map_or("?", |n| n.name.as_str());
    Err(denied("schema", name))
}

fn denied(kind: &str, name: &str) -> Error {
    Error::new(
        SqlState::INSUFFICIENT_PRIVILEGE,
        format!("permission denied for {kind} {name}"),
    )
}

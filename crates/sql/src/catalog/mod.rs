//! Names of relations, and the system catalogs as relations.
//!
//! - [`resolve`] finds what a name in FROM means: a relation of the schema or a [`VirtualTable`];
//! - [`VirtualTable`] is a catalog relation (`pg_class`, `information_schema.tables` …), computed from the schema when it is
//!   scanned, and read by the planner like any other relation;
//! - [`SessionFacts`] is what catalogs show of sessions: settings, activity, prepared statements.
//!
//! Left out on purpose: catalogs that can be written; temporary relations of other sessions.

mod classes;
mod deparse;
mod deparse_expr;
mod depend;
pub mod functions;
mod information_schema;
mod lookup;
mod relations;
mod replication;
mod roles;
mod rows;
mod summaries;
mod types;
pub mod user_types;

pub use lookup::Names;
pub(crate) use types::PLPGSQL;

use crate::cluster_status::ClusterStatus;
use base::schema::{INFORMATION_SCHEMA, PG_CATALOG, Relation, Schema, Table, ViewDef};
use base::{Error, Oid, Result, SqlState, Type, Value};
use sqlparser::ast::{Ident, ObjectName, ObjectNamePart};
use sqlparser::tokenizer::Location;
use std::sync::Arc;
use txn::Catalog;

/// A relation that is computed: its rows come from the schema and the session.
pub trait VirtualTable: Sync {
    fn oid(&self) -> Oid;
    fn namespace(&self) -> Oid;
    fn name(&self) -> &'static str;
    fn columns(&self) -> &[(&'static str, Type)];
    /// All rows, columns in the order of [`VirtualTable::columns`].
    fn scan(&self, cx: &CatalogScan<'_>) -> Result<Vec<Vec<Value>>>;
}

/// What a scan of a catalog sees.
pub struct CatalogScan<'a> {
    pub catalog: &'a Catalog,
    pub facts: &'a dyn SessionFacts,
}

impl CatalogScan<'_> {
    pub fn schema(&self) -> &Schema {
        &self.catalog.schema
    }

    /// Whether the current role sees what a session of `user` does: it has the rights of that role, or of `pg_read_all_stats`.
    fn sees_activity_of(&self, user: Oid) -> bool {
        let (me, schema) = (self.facts.current_role(), self.schema());
        schema.has_rights_of(me, user) || schema.has_rights_of(me, base::membership::READ_ALL_STATS)
    }
}

/// One row of `pg_settings`.
#[derive(Clone, Debug, Default)]
pub struct SettingRow {
    pub name: String,
    pub setting: String,
    pub unit: Option<String>,
    pub category: String,
    pub short_desc: String,
    /// `internal`, `postmaster`, `sighup`, `superuser`, `user`.
    pub context: &'static str,
    /// `bool`, `enum`, `integer`, `real`, `string`.
    pub vartype: &'static str,
    /// `default`, `configuration file`, `session` …
    pub source: &'static str,
    pub min_val: Option<String>,
    pub max_val: Option<String>,
    pub enumvals: Vec<String>,
    pub boot_val: Option<String>,
    pub reset_val: Option<String>,
}

/// How a connection is protected, as `pg_stat_ssl` shows it.
#[derive(Clone, Debug, Default)]
pub struct Protection {
    /// `TLSv1.3`
    pub version: &'static str,
    pub cipher: String,
    pub bits: i32,
    pub client: Option<ClientCertificate>,
}

/// A client's certificate.
#[derive(Clone, Debug, Default)]
pub struct ClientCertificate {
    pub subject: String,
    /// Decimal digits.
    pub serial: String,
    pub issuer: String,
}

/// One row of `pg_stat_activity`. Times are microseconds since 2000-01-01 UTC.
#[derive(Clone, Debug, Default)]
pub struct ActivityRow {
    pub pid: i32,
    pub user: Oid,
    pub application_name: String,
    pub client_addr: Option<String>,
    pub client_port: Option<i32>,
    pub protection: Option<Arc<Protection>>,
    pub backend_start: i64,
    pub xact_start: Option<i64>,
    pub query_start: Option<i64>,
    pub state_change: Option<i64>,
    pub wait_event_type: Option<String>,
    pub wait_event: Option<String>,
    /// `active`, `idle`, `idle in transaction`, `idle in transaction (aborted)`.
    pub state: &'static str,
    pub query: String,
    /// `client backend`, or the name of a worker.
    pub backend_type: &'static str,
    /// Bytes that it takes.
    pub memory: i64,
}

/// One row of `pg_prepared_statements`.
#[derive(Clone, Debug, Default)]
pub struct PreparedRow {
    pub name: String,
    pub statement: String,
    pub prepare_time: i64,
    pub parameter_types: Vec<Oid>,
    pub from_sql: bool,
}

/// One row of `pg_cursors`.
#[derive(Clone, Debug, Default)]
pub struct CursorRow {
    pub name: String,
    pub statement: String,
    pub is_holdable: bool,
    pub is_binary: bool,
    pub is_scrollable: bool,
    pub creation_time: i64,
}

/// One row of `pg_locks`.
#[derive(Clone, Copy, Debug)]
pub struct LockRow {
    pub pid: i32,
    pub on: LockedThing,
    /// PostgreSQL's name.
    pub mode: &'static str,
    pub granted: bool,
    /// It is noted at its session only.
    pub fast: bool,
}

/// What a lock is on.
#[derive(Clone, Copy, Debug)]
pub enum LockedThing {
    Advisory(txn::AdvisoryKey),
    Table(Oid),
}

/// Counters of `pg_stat_database`, since the start.
#[derive(Clone, Debug, Default)]
pub struct DatabaseStats {
    pub backends: i32,
    pub commits: i64,
    pub rollbacks: i64,
    pub conflicts: i64,
    pub deadlocks: i64,
}

/// What catalogs show beside the schema. The defaults show nothing.
pub trait SessionFacts {
    /// The name of the database.
    fn database(&self) -> String;
    /// The role whose rights count.
    fn current_role(&self) -> Oid;
    /// Names of the schemas that are searched, for names in definitions.
    fn search_path(&self) -> Vec<String> {
        vec!["public".into()]
    }
    /// Where the query of a view names a relation without its schema, and the relation.
    fn unqualified_names(&self, _schema: &Schema, _view: &ViewDef) -> Vec<(Location, Oid)> {
        vec![]
    }
    /// Which columns of a view may be written through it; none for a view that is not updatable.
    fn writable_columns(&self, _schema: &Schema, _view: &ViewDef) -> Option<Vec<bool>> {
        None
    }
    /// Bytes of a table with its indexes, of an index, or (number 0) of the database.
    fn relation_bytes(&self, _relation: Oid) -> Option<u64> {
        None
    }
    /// When the server started, which counts from nothing.
    fn counts_since(&self) -> i64 {
        0
    }
    fn settings(&self) -> Vec<SettingRow> {
        vec![]
    }
    fn activity(&self) -> Vec<ActivityRow> {
        vec![]
    }
    /// Where the server stands in its cluster.
    fn cluster_status(&self) -> ClusterStatus {
        ClusterStatus::default()
    }
    fn prepared_statements(&self) -> Vec<PreparedRow> {
        vec![]
    }
    fn cursors(&self) -> Vec<CursorRow> {
        vec![]
    }
    /// Advisory locks that are held or waited for.
    fn locks(&self) -> Vec<LockRow> {
        vec![]
    }
    /// Values of split columns that have further records or are watched, as this node sees them now.
    fn split_values(&self) -> Vec<txn::SplitValue> {
        vec![]
    }
    /// Rows that transactions fight for, the one with the most events first.
    fn hot_rows(&self) -> Vec<txn::ContendedRow> {
        vec![]
    }
    /// Transactions that were told to try again, the newest first.
    fn conflicts(&self) -> Vec<txn::Race> {
        vec![]
    }
    fn database_stats(&self) -> DatabaseStats {
        DatabaseStats::default()
    }
    /// Estimated rows of a table, for `reltuples`.
    fn estimated_rows(&self, _table: Oid) -> Option<u64> {
        None
    }
    /// (last value, is called) of a sequence.
    fn sequence_state(&self, _sequence: Oid) -> Option<(i64, bool)> {
        None
    }
}

/// Facts of no session.
pub struct NoFacts;

impl SessionFacts for NoFacts {
    fn database(&self) -> String {
        String::new()
    }

    fn current_role(&self) -> Oid {
        0
    }
}

/// What a relation name means.
#[derive(Clone)]
pub enum Resolved {
    Relation(Relation),
    /// The table and the place of the index in it.
    Index(Arc<Table>, usize),
    Virtual(&'static dyn VirtualTable),
}

impl Resolved {
    pub fn oid(&self) -> Oid {
        match self {
            Resolved::Relation(r) => r.id(),
            Resolved::Index(t, i) => t.def.indexes[*i].id,
            Resolved::Virtual(v) => v.oid(),
        }
    }

    pub fn namespace(&self) -> Oid {
        match self {
            Resolved::Relation(Relation::Table(t)) | Resolved::Index(t, _) => t.def.namespace,
            Resolved::Relation(Relation::Sequence(s)) => s.namespace,
            Resolved::Relation(Relation::View(v)) => v.namespace,
            Resolved::Virtual(v) => v.namespace(),
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Resolved::Relation(r) => r.name(),
            Resolved::Index(t, i) => &t.def.indexes[*i].name,
            Resolved::Virtual(v) => v.name(),
        }
    }
}

/// Number of the one database.
pub const DATABASE_OID: Oid = 5;

/// Longest name, in bytes.
pub const MAX_NAME: usize = 63;

/// The name that an identifier stands for: folded to lower case unless quoted, cut to [`MAX_NAME`] bytes.
pub fn fold(ident: &Ident) -> String {
    let mut name = match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    };
    name.truncate(cut(&name));
    name
}

/// Where [`fold`] cuts a name: at a character boundary.
pub fn cut(name: &str) -> usize {
    (0..=MAX_NAME.min(name.len()))
        .rev()
        .find(|&i| name.is_char_boundary(i))
        .unwrap_or(0)
}

/// A name with its schema, if it has one: `(schema, name)`. More than a database, a schema and a name is 42601.
pub fn split_name(name: &ObjectName) -> Result<(Option<String>, String)> {
    let mut parts = Vec::with_capacity(3);
    for p in &name.0 {
        match p {
            ObjectNamePart::Identifier(i) => parts.push(fold(i)),
            ObjectNamePart::Function(f) => {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    format!("syntax error at or near \"{}\"", f.name),
                ));
            }
        }
    }
    match parts.len() {
        1 => Ok((None, parts.remove(0))),
        2 => Ok((Some(parts.remove(0)), parts.remove(0))),
        3 => Ok((Some(parts.remove(1)), parts.remove(1))),
        _ => Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("improper qualified name (too many dotted names): {name}"),
        )),
    }
}

/// What `name` means with this search path (names of schemas; unknown ones are skipped; `pg_catalog` comes first unless the
/// path names it). 42P01 when it means nothing.
pub fn resolve(schema: &Schema, search_path: &[String], name: &ObjectName) -> Result<Resolved> {
    let (ns, rel) = split_name(name)?;
    find(schema, search_path, ns.as_deref(), &rel).ok_or_else(|| {
        let shown = ns.map_or(rel.clone(), |n| format!("{n}.{rel}"));
        Error::new(
            SqlState::UNDEFINED_TABLE,
            format!("relation \"{shown}\" does not exist"),
        )
    })
}

/// [`resolve`] for a name that is already split and folded; `None` when it means nothing.
pub fn find(
    schema: &Schema,
    search_path: &[String],
    namespace: Option<&str>,
    name: &str,
) -> Option<Resolved> {
    if let Some(n) = namespace {
        return find_in(schema, schema.namespace_named(n)?.id, name);
    }
    namespaces(schema, search_path).find_map(|n| find_in(schema, n, name))
}

/// The numbers of the schemas on the path that exist, in the order in which they are searched. Temporary relations come first unless the
/// path names their schema.
pub fn namespaces<'a>(
    schema: &'a Schema,
    search_path: &'a [String],
) -> impl Iterator<Item = Oid> + 'a {
    let implicit = !search_path.iter().any(|s| s == "pg_catalog");
    let named = search_path
        .iter()
        .filter_map(|n| schema.namespace_named(n).map(|n| n.id));
    // By either of its names: `pg_temp`, or its own.
    let is = |n: &str, id: Oid| schema.namespace_named(n).is_some_and(|n| n.id == id);
    let own = schema.temporary();
    let own = own.filter(|id| !search_path.iter().any(|n| is(n, *id)));
    own.into_iter()
        .chain(implicit.then_some(PG_CATALOG))
        .chain(named)
}

/// The schema in which unqualified new objects are made: the first of the path that exists. 3F000 when there is none. That of temporary
/// objects comes with the first of these, which says TEMP.
pub fn creation_namespace(schema: &Schema, search_path: &[String]) -> Result<Oid> {
    for name in search_path {
        match schema.namespace_named(name) {
            Some(n) => return Ok(n.id),
            None if name == "pg_temp" => {
                let what = "CREATE without TEMP while pg_temp is first in search_path";
                return Err(Error::unsupported(what));
            }
            None => {}
        }
    }
    Err(Error::new(
        SqlState::INVALID_SCHEMA_NAME,
        "no schema has been selected to create in",
    ))
}

fn find_in(schema: &Schema, namespace: Oid, name: &str) -> Option<Resolved> {
    if matches!(namespace, PG_CATALOG | INFORMATION_SCHEMA) {
        return virtual_table(namespace, name).map(Resolved::Virtual);
    }
    by_oid(schema, schema.lookup(namespace, name)?)
}

/// The relation, index or catalog relation of this number.
pub fn by_oid(schema: &Schema, oid: Oid) -> Option<Resolved> {
    if let Some(r) = schema.relation(oid) {
        return Some(Resolved::Relation(r.clone()));
    }
    if let Some((t, i)) = schema.index(oid) {
        return Some(Resolved::Index(t.clone(), i));
    }
    relations::numbered(oid).map(|r| Resolved::Virtual(r))
}

/// The catalog relation of this name.
pub fn virtual_table(namespace: Oid, name: &str) -> Option<&'static dyn VirtualTable> {
    relations::named(namespace, name).map(|r| r as &dyn VirtualTable)
}

/// The code that fills a catalog relation; none: it is empty.
fn fill(namespace: Oid, name: &str) -> Option<relations::Fill> {
    if namespace == INFORMATION_SCHEMA {
        use information_schema as i;
        return Some(match name {
            "information_schema_catalog_name" => i::catalog_name,
            "schemata" => i::schemata,
            "tables" => i::tables,
            "columns" => i::columns,
            "domains" => i::domains,
            "domain_constraints" => i::domain_constraints,
            "views" => i::views,
            "view_table_usage" => i::view_table_usage,
            "sequences" => i::sequences,
            "table_constraints" => i::table_constraints,
            "check_constraints" => i::check_constraints,
            "key_column_usage" => i::key_column_usage,
            "referential_constraints" => i::referential_constraints,
            "constraint_column_usage" => i::constraint_column_usage,
            "constraint_table_usage" => i::constraint_table_usage,
            "table_privileges" | "role_table_grants" => i::table_privileges,
            "column_privileges" | "role_column_grants" => i::column_privileges,
            "enabled_roles" => i::enabled_roles,
            "character_sets" => i::character_sets,
            "collations" => i::collations,
            _ => return None,
        });
    }
    Some(match name {
        "pg_class" => classes::pg_class,
        "pg_attribute" => classes::pg_attribute,
        "pg_attrdef" => classes::pg_attrdef,
        "pg_index" => classes::pg_index,
        "pg_constraint" => classes::pg_constraint,
        "pg_namespace" => classes::pg_namespace,
        "pg_sequence" => classes::pg_sequence,
        "pg_description" => classes::pg_description,
        "pg_shdescription" => classes::pg_shdescription,
        "pg_depend" => depend::pg_depend,
        "pg_rewrite" => classes::pg_rewrite,
        "pg_type" => types::pg_type,
        "pg_enum" => user_types::pg_enum,
        "pg_proc" => types::pg_proc,
        "pg_aggregate" => types::pg_aggregate,
        "pg_operator" => types::pg_operator,
        "pg_am" => types::pg_am,
        "pg_opclass" => types::pg_opclass,
        "pg_opfamily" => types::pg_opfamily,
        "pg_cast" => types::pg_cast,
        "pg_language" => types::pg_language,
        "pg_collation" => types::pg_collation,
        "pg_tablespace" => types::pg_tablespace,
        "pg_extension" => types::pg_extension,
        "pg_available_extensions" => types::pg_available_extensions,
        "pg_available_extension_versions" => types::pg_available_extension_versions,
        "pg_db_role_setting" => roles::pg_db_role_setting,
        "pg_database" => types::pg_database,
        "pg_authid" => roles::pg_authid,
        "pg_roles" => roles::pg_roles,
        "pg_user" => roles::pg_user,
        "pg_group" => roles::pg_group,
        "pg_auth_members" => roles::pg_auth_members,
        "pg_default_acl" => roles::pg_default_acl,
        "pg_tables" => summaries::pg_tables,
        "pg_views" => summaries::pg_views,
        "pg_indexes" => summaries::pg_indexes,
        "pg_sequences" => summaries::pg_sequences,
        "pg_stat_user_tables" | "pg_stat_all_tables" => summaries::pg_stat_tables,
        "pg_statio_user_tables" | "pg_statio_all_tables" => summaries::pg_statio_tables,
        "pg_stat_xact_user_tables" | "pg_stat_xact_all_tables" => summaries::pg_statio_tables,
        "pg_stat_user_indexes" | "pg_stat_all_indexes" => summaries::pg_stat_indexes,
        "pg_statio_user_indexes" | "pg_statio_all_indexes" => summaries::pg_stat_indexes,
        "pg_statio_user_sequences" | "pg_statio_all_sequences" => summaries::pg_statio_sequences,
        "pg_stat_bgwriter" | "pg_stat_wal" | "pg_stat_recovery_prefetch" => summaries::one_of_zeros,
        "pg_stat_archiver" => summaries::one_since_start,
        "pg_stat_database_conflicts" => summaries::pg_stat_database_conflicts,
        "pg_stat_gssapi" => summaries::pg_stat_gssapi,
        "pg_settings" => summaries::pg_settings,
        "pg_stat_activity" => summaries::pg_stat_activity,
        "pg_stat_ssl" => summaries::pg_stat_ssl,
        "pg_prepared_statements" => summaries::pg_prepared_statements,
        "pg_cursors" => summaries::pg_cursors,
        "pg_locks" => summaries::pg_locks,
        "pg_stat_replication" => replication::pg_stat_replication,
        "pg_stat_wal_receiver" => replication::pg_stat_wal_receiver,
        "pg_stat_database" => summaries::pg_stat_database,
        "canon_split_values" => summaries::canon_split_values,
        "canon_stat_hot_rows" => summaries::canon_stat_hot_rows,
        "canon_stat_conflicts" => summaries::canon_stat_conflicts,
        _ => return None,
    })
}

/// Whether this is a schema of the system, in which users make nothing.
pub fn is_system(namespace: Oid) -> bool {
    matches!(namespace, PG_CATALOG | INFORMATION_SCHEMA)
}

/// A relation's name as PostgreSQL prints it: quoted where needed, qualified when the search path does not reach it.
pub fn display_name(schema: &Schema, search_path: &[String], r: &Resolved) -> String {
    let quoted = crate::ddl::quote_ident(r.name());
    match find(schema, search_path, None, r.name()) {
        Some(found) if found.oid() == r.oid() => quoted,
        _ => {
            let ns = schema.namespace(r.namespace()).map_or("?", |n| &n.name);
            format!("{}.{quoted}", crate::ddl::quote_ident(ns))
        }
    }
}

#[cfg(test)]
mod tests;

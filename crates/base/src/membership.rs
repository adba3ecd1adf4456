//! Roles, their membership in each other, and the roles that are always there.
//!
//! What a membership gives is asked of the schema (`rights`). Members of the predefined roles may do what stands in the table.
//!
//! | role | its members may |
//! |---|---|
//! | `pg_read_all_data` | read all tables, views and sequences, and use all schemas |
//! | `pg_write_all_data` | insert, update and delete in all tables, and use all schemas |
//! | `pg_read_all_stats` | see what the sessions of other roles do |
//! | `pg_monitor` | what `pg_read_all_stats`, `pg_read_all_settings` and `pg_stat_scan_tables` may |
//! | `pg_signal_backend` | cancel and end sessions of roles that are not superusers |
//! | `pg_checkpoint` | CHECKPOINT |
//! | others | nothing: what they are for is not there |
//!
//! Left out on purpose: rows of their own for the predefined roles. They are the same in each database, so none stores them.

use crate::Oid;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, LazyLock};

/// A user or role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Role {
    pub id: Oid,
    pub name: String,
    pub superuser: bool,
    pub login: bool,
    pub createdb: bool,
    pub createrole: bool,
    pub replication: bool,
    /// SCRAM-SHA-256 verifier as PostgreSQL writes it; none: no password.
    pub password: Option<String>,
    /// It has not the rights of the roles that it is a member of, unless it acts as one of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_inherit: bool,
    /// Most sessions of the role at a node; none: as many as there is room for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_limit: Option<i32>,
    /// When the password stops to count, as a `timestamptz` has it; none: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<i64>,
}

impl Role {
    /// A role that may do nothing yet.
    pub fn new(id: Oid, name: &str) -> Role {
        Role {
            id,
            name: name.into(),
            superuser: false,
            login: false,
            createdb: false,
            createrole: false,
            replication: false,
            password: None,
            no_inherit: false,
            connection_limit: None,
            valid_until: None,
        }
    }

    /// Whether the role is one that is always there.
    pub fn is_predefined(&self) -> bool {
        NAMES.iter().any(|(id, _)| *id == self.id)
    }
}

/// A role is a member of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The object's number.
    pub id: Oid,
    pub role: Oid,
    pub member: Oid,
    /// The role that granted it.
    pub grantor: Oid,
    /// The member may grant the role and take it back.
    pub admin: bool,
}

pub const READ_ALL_DATA: Oid = 6181;
pub const WRITE_ALL_DATA: Oid = 6182;
pub const READ_ALL_STATS: Oid = 3375;
pub const SIGNAL_BACKEND: Oid = 4200;
pub const CHECKPOINT: Oid = 4544;
/// The owner of the database is its one member, and no other may be.
pub const DATABASE_OWNER: Oid = 6171;
const MONITOR: Oid = 3373;
const READ_ALL_SETTINGS: Oid = 3374;
const STAT_SCAN_TABLES: Oid = 3377;

const NAMES: [(Oid, &str); 12] = [
    (MONITOR, "pg_monitor"),
    (READ_ALL_SETTINGS, "pg_read_all_settings"),
    (READ_ALL_STATS, "pg_read_all_stats"),
    (STAT_SCAN_TABLES, "pg_stat_scan_tables"),
    (SIGNAL_BACKEND, "pg_signal_backend"),
    (CHECKPOINT, "pg_checkpoint"),
    (4569, "pg_read_server_files"),
    (4570, "pg_write_server_files"),
    (4571, "pg_execute_server_program"),
    (DATABASE_OWNER, "pg_database_owner"),
    (READ_ALL_DATA, "pg_read_all_data"),
    (WRITE_ALL_DATA, "pg_write_all_data"),
];

/// The roles that are always there.
pub static PREDEFINED: LazyLock<Vec<Arc<Role>>> = LazyLock::new(|| {
    let role = |&(id, name): &(Oid, &str)| Arc::new(Role::new(id, name));
    NAMES.iter().map(role).collect()
});

/// (role, member) among the predefined ones.
pub(crate) const PREDEFINED_MEMBERS: [(Oid, Oid); 3] = [
    (READ_ALL_SETTINGS, MONITOR),
    (READ_ALL_STATS, MONITOR),
    (STAT_SCAN_TABLES, MONITOR),
];

//! Membership of roles in roles, and the roles that are always there.
//!
//! A role has the rights of the roles that it is a member of, and of theirs, as far as each role on the way inherits. It may act as any of them
//! (SET ROLE) whether or not it inherits. Members of the predefined roles may do what stands in the table.
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
use crate::schema::{BOOTSTRAP_ROLE, Role, Schema};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, LazyLock};

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
    let role = |&(id, name): &(Oid, &str)| {
        Arc::new(Role {
            id,
            name: name.into(),
            superuser: false,
            login: false,
            createdb: false,
            createrole: false,
            replication: false,
            password: None,
            no_inherit: false,
        })
    };
    NAMES.iter().map(role).collect()
});

/// (role, member) among the predefined ones.
const PREDEFINED_MEMBERS: [(Oid, Oid); 3] = [
    (READ_ALL_SETTINGS, MONITOR),
    (READ_ALL_STATS, MONITOR),
    (STAT_SCAN_TABLES, MONITOR),
];

impl Schema {
    /// All memberships that are stored, and those of predefined roles in each other.
    pub fn memberships(&self) -> impl Iterator<Item = Membership> {
        let own = self.members().map(|m| (**m).clone());
        let fixed = PREDEFINED_MEMBERS
            .iter()
            .zip(1..)
            .map(|(&(role, member), n)| Membership {
                id: n,
                role,
                member,
                grantor: BOOTSTRAP_ROLE,
                admin: false,
            });
        fixed.chain(own)
    }

    /// The role and all that it is a member of, directly or through others; `inherited`: only those whose rights it has.
    fn reach(&self, role: Oid, inherited: bool) -> Vec<Oid> {
        let mut found = vec![role];
        if self.members().next().is_none() {
            return found;
        }
        let mut at = 0;
        while let Some(&member) = found.get(at) {
            at += 1;
            if inherited && self.role(member).is_none_or(|r| r.no_inherit) {
                continue;
            }
            for m in self.memberships().filter(|m| m.member == member) {
                if !found.contains(&m.role) {
                    found.push(m.role);
                }
            }
        }
        found
    }

    /// The roles whose rights the role has, the role itself first.
    pub fn rights_of(&self, role: Oid) -> Vec<Oid> {
        self.reach(role, true)
    }

    /// Whether the role has the rights of another: it is that role, a superuser, or inherits from it.
    pub fn has_rights_of(&self, role: Oid, of: Oid) -> bool {
        role == of
            || self.role(role).is_some_and(|r| r.superuser)
            || self.rights_of(role).contains(&of)
    }

    /// Whether the role may act as another: it is that role, a superuser, or a member.
    pub fn is_member_of(&self, role: Oid, of: Oid) -> bool {
        role == of
            || self.role(role).is_some_and(|r| r.superuser)
            || self.is_plain_member_of(role, of)
    }

    /// Whether the role is that role or a member of it; a superuser is not by that alone.
    pub fn is_plain_member_of(&self, role: Oid, of: Oid) -> bool {
        self.reach(role, false).contains(&of)
    }

    /// Whether the role may grant that role: a superuser, or a role that has it with the admin option.
    pub fn may_admin(&self, role: Oid, of: Oid) -> bool {
        if self.role(role).is_some_and(|r| r.superuser) {
            return true;
        }
        let mine = self.reach(role, false);
        self.members()
            .any(|m| m.admin && m.role == of && mine.contains(&m.member))
    }
}

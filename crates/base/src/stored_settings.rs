//! Settings that a database keeps for its sessions.
//!
//! A session begins with the defaults of the program. Over these stand the settings that the database was made with, then the configuration of the node. Over
//! these stand the settings of the database, of the role, and of the role in this database. What the client asks for stands above all. The schema holds
//! the settings of the database and of roles.
//!
//! Left out on purpose: what the values mean. The statement that stores a value has checked it.

use crate::Oid;
use serde::{Deserialize, Serialize};

/// Which sessions stored settings are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum For {
    /// All, below the node's configuration: what the database was made with.
    Made,
    /// All of the database.
    Database,
    /// Those of a role.
    Role(Oid),
    /// Those of a role in this database.
    RoleInDatabase(Oid),
}

/// Settings of one kind of session: names and values, in the order in which they were first stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSettings {
    /// The object's number.
    pub id: Oid,
    pub of: For,
    pub values: Vec<(String, String)>,
}

impl StoredSettings {
    /// Stores a value, or (none) forgets it.
    pub fn set(&mut self, name: &str, value: Option<String>) {
        let at = self.values.iter().position(|(n, _)| n == name);
        match (at, value) {
            (Some(i), Some(v)) => self.values[i].1 = v,
            (None, Some(v)) => self.values.push((name.to_owned(), v)),
            (Some(i), None) => drop(self.values.remove(i)),
            (None, None) => {}
        }
    }
}

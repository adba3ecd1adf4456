//! The extensions that CREATE EXTENSION finds. Their code is built in; an extension that is made lets names mean it.

/// An extension.
pub struct Known {
    pub name: &'static str,
    /// The version that PostgreSQL 15 makes.
    pub version: &'static str,
    pub comment: &'static str,
}

pub const KNOWN: [Known; 3] = [
    Known {
        name: "citext",
        version: "1.6",
        comment: "data type for case-insensitive character strings",
    },
    Known {
        name: "pgcrypto",
        version: "1.3",
        comment: "cryptographic functions",
    },
    Known {
        name: "uuid-ossp",
        version: "1.1",
        comment: "generate universally unique identifiers (UUIDs)",
    },
];

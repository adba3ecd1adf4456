//! Identifiers. As in PostgreSQL, one number space (`Oid`) names every catalogued object; tables, indexes,
//! sequences and views are *relations*. A table's storage has its own id, so that TRUNCATE is a new storage.
//!
//! Left out on purpose: a newtype per kind of relation; the schema tells kinds apart.

/// Number of a catalogued object. User objects start at [`FIRST_USER_OID`].
pub type Oid = u32;

/// `Oid` of a relation, or of the storage behind one (log records and locks name storages).
pub type RelId = u32;

/// Zero-based place of a column in its table, dropped columns counted (PostgreSQL's `attnum` is one more).
pub type ColumnIdx = u16;

/// First number given to objects that users create, as in PostgreSQL.
pub const FIRST_USER_OID: Oid = 16384;

//! What the text of a value depends on beside the value: date style, time zone, and the names that live in the catalog.
//!
//! A session holds one [`OutputSettings`] and changes it with SET; casts and text I/O borrow it.

use base::{Oid, Result};
use std::sync::Arc;

use super::zone::Zone;

/// How dates are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateStyle {
    Iso,
    Sql,
    Postgres,
    German,
}

/// How ambiguous dates such as `1/2/2003` are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateOrder {
    Mdy,
    Dmy,
    Ymd,
}

/// How intervals are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntervalStyle {
    Postgres,
    PostgresVerbose,
    SqlStandard,
    Iso8601,
}

/// How `bytea` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteaOutput {
    Hex,
    Escape,
}

/// The session's conversion settings.
#[derive(Clone)]
pub struct OutputSettings {
    pub datestyle: DateStyle,
    pub date_order: DateOrder,
    pub timezone: Zone,
    pub intervalstyle: IntervalStyle,
    pub extra_float_digits: i32,
    pub bytea_output: ByteaOutput,
    /// Start of the transaction, microseconds since 2000-01-01 UTC: what `'now'` and `'today'` mean.
    pub now: i64,
    /// Names of relations and such; without it `reg*` types read and print numbers only.
    pub catalog: Option<Arc<dyn CatalogLookup>>,
}

impl Default for OutputSettings {
    fn default() -> Self {
        OutputSettings {
            datestyle: DateStyle::Iso,
            date_order: DateOrder::Mdy,
            timezone: Zone::utc(),
            intervalstyle: IntervalStyle::Postgres,
            extra_float_digits: 1,
            bytea_output: ByteaOutput::Hex,
            now: 0,
            catalog: None,
        }
    }
}

/// Names in the catalog as one transaction sees them, its `search_path` applied.
/// The `_oid` methods take a name as written (`"Schema".table`), the `_name` methods give it back quoted and
/// qualified where it needs to be.
pub trait CatalogLookup: Send + Sync {
    /// The relation of this name; `None` when there is none.
    fn relation_oid(&self, name: &str) -> Result<Option<Oid>>;
    fn relation_name(&self, oid: Oid) -> Option<String>;
    fn namespace_oid(&self, name: &str) -> Option<Oid>;
    fn namespace_name(&self, oid: Oid) -> Option<String>;
    /// The schema in front of a name, if there is none of that name.
    fn missing_namespace(&self, name: &str) -> Option<String>;
    /// The function of this name; 42725 when there are several.
    fn procedure_oid(&self, name: &str) -> Result<Option<Oid>>;
    fn procedure_name(&self, oid: Oid) -> Option<String>;
    /// A type that a user made.
    fn type_oid(&self, name: &str) -> Option<Oid>;
    fn type_name(&self, oid: Oid) -> Option<String>;
}

impl std::fmt::Debug for OutputSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutputSettings")
            .field("datestyle", &(self.datestyle, self.date_order))
            .field("timezone", &self.timezone)
            .field("intervalstyle", &self.intervalstyle)
            .field("extra_float_digits", &self.extra_float_digits)
            .field("bytea_output", &self.bytea_output)
            .finish_non_exhaustive()
    }
}

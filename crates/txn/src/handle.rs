//! What a transaction needs of a table: its definition, its storage, its compiled rules.

use base::schema::{Schema, Table};
use base::{Oid, Result, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Compiled CHECK constraints and defaults of a table; `sql` makes them from the text in the schema.
pub trait TableRules: Send + Sync {
    /// Fails with 23514 naming the constraint when a CHECK is false for this row (all columns, dropped ones NULL).
    fn check(&self, row: &[Value]) -> Result<()>;

    /// The value of a column's DEFAULT; NULL when it has none.
    fn default(&self, column: usize) -> Result<Value>;
}

/// Turns the expressions of a table into [`TableRules`].
pub trait RuleCompiler: Send + Sync {
    /// Called once per table and schema version, when the first row is written.
    fn compile(&self, schema: &Schema, table: &Table) -> Result<Arc<dyn TableRules>>;
}

/// A table as transactions use it; shared, one per schema version.
pub struct TableHandle {
    pub table: Arc<Table>,
}

/// One version of the schema with the tables' storages. `txn` sees the version of its snapshot, with its own DDL on top.
pub struct Catalog {
    pub schema: Arc<Schema>,
    pub tables: HashMap<Oid, Arc<TableHandle>>,
}

impl Catalog {
    /// The table of this number.
    pub fn table(&self, id: Oid) -> Option<&Arc<TableHandle>> {
        self.tables.get(&id)
    }
}
